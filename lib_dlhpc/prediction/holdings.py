"""What ranks of a pipeline hold while it runs, as columns: ranks of one layout, or of many at once.

A rank has parts, and for each some bytes of a sample; how many microbatches of it are in flight, the schedule says
(pipelined.py). Everything is computed on columns, with an entry for each rank.
"""

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from lib_dlhpc.costs.compute import BYTES
from lib_dlhpc.keyed import Keyed
from lib_dlhpc.layout import sizes
from lib_dlhpc.prediction.pipelined import (
    before_backward,
    before_mirrored_backward,
    in_flight,
    waiting,
)
from lib_dlhpc.spec.experiment import Experiment

Floats = NDArray[np.float64]
TERMS = (
    "weights",
    "master weights",
    "gradients",
    "optimizer state",
    "activations",
    "working set",
    "input batch",
    "communication buffer",
    "driver and workspace",
)


class Needs(NamedTuple):
    """What a rank holds with these parts, whatever its place in the pipeline."""

    stored: Floats  # B of a sample that each part stores
    beside: Floats  # B of a sample by which the backward pass of each part exceeds that
    whole: Floats  # the same of a pass whose weight gradients are in its turn
    waiting: Floats  # B of a sample of each part that wait for weight gradients
    resident: tuple[float, float]  # B of a sample if activations are offloaded: stored, working set
    before: float  # elements of a sample that a part receives from the stage before it
    after: float  # and sends to the next
    summed: float = 0.0  # B of the largest gradient of a pass, to be accumulated
    fixed: Mapping[str, float] = {}  # B by term
    away: float = 0.0  # B offloaded of the state


class Ranks(NamedTuple):
    """Ranks of pipelines, a column each: (ranks,), fixed (terms, ranks); bytes are those of a sample."""

    needs: NDArray[np.object_]
    fixed: Floats  # B
    rank: NDArray[np.int64]
    stages: NDArray[np.int64]
    chunks: NDArray[np.int64]
    batch: Floats
    size: NDArray[np.int64]  # B of an element
    stored: Floats  # by the first part
    beside: Floats
    waiting: Floats
    before: Floats  # elements
    after: Floats
    summed: Floats  # B
    mirrored: bool = False
    offloads: bool = False

    def take(self, some: NDArray[np.intp]) -> "Ranks":
        """Return some of them."""
        return Ranks(*(each[..., some] for each in self[:-2]), *self[-2:])


def ranks_of(experiment: Experiment, each: Sequence[tuple[int, Needs]]) -> Ranks:
    """Return ranks of a scalar experiment with what they hold."""
    s = experiment.strategy
    needs = np.empty(len(each), object)
    needs[:] = [one for _, one in each]
    numbers = [
        (one.stored[0], one.beside[0], one.waiting[0], one.before, one.after, one.summed)
        for _, one in each
    ]
    same = sizes(experiment).pipeline, int(s.chunks), s.batch, BYTES[s.precision]
    return Ranks(
        needs,
        np.array([[*one.fixed.values()] for _, one in each]).T,
        np.array([rank for rank, _ in each]),
        *(np.full(len(each), one) for one in same),
        *np.array(numbers, float).T,
        mirrored=s.mirrored,
        offloads=s.offload != "none",
    )


def in_passes(
    ranks: Ranks, many: NDArray[np.int64], schedule: str
) -> tuple[Floats, Floats, Floats, Floats]:
    """Return for each rank, with so many microbatches, the B of activations where it has most, of the working set, that
    are offloaded, and of the buffers of messages between stages."""
    later = waiting(ranks.rank, ranks.stages, many, schedule)
    if schedule == "interleaved" or ranks.mirrored:
        kept, extra = _of_parts(ranks, many)
    else:
        kept = (in_flight(ranks.rank, ranks.stages, many, schedule) - later) * ranks.stored
        extra = ranks.beside
    batch = np.ceil(ranks.batch / many)
    keeps, extra = batch * (kept + later * ranks.waiting), batch * extra
    away = 0.0 * keeps
    if ranks.offloads:
        near, moved = np.array([needs.resident for needs in ranks.needs]).T
        near = np.minimum(keeps, batch * near)
        away = keeps - near + [needs.away for needs in ranks.needs]
        keeps, extra = near, batch * moved
    # Each is sent from a copy and received into one; gradients are copied once more. At the peak of a last
    # stage its previous gradient is in flight and its next input is expected, except in GPipe.
    last = 1 if schedule == "gpipe" else np.minimum(3, many)
    between = np.where(ranks.after, 2, last) * ranks.before + 3 * ranks.after
    between = between * batch * ranks.size * (ranks.stages > 1)
    return keeps, extra + ranks.summed * (many > 1), away, between


def peaks(
    each: Sequence[Ranks],
    of: NDArray[np.intp],
    many: NDArray[np.int64],
    schedules: NDArray[np.str_],
) -> Floats:
    """Return the terms of the highest peak of each layout, B, (terms, layouts).

    each: ranks of layouts with the same parts, which do not offload; of: which of these every layout has, with how many
    microbatches, and which schedule.
    """
    counts, mirrored = (np.array([one(ranks) for ranks in each]) for one in (_count, _is_mirrored))
    first = np.cumsum(counts) - counts
    columns = zip(*(ranks[:-2] for ranks in each), strict=True)
    every = Ranks(*(np.concatenate(column, axis=-1) for column in columns))
    found = np.empty((len(TERMS), len(of)))
    for schedule in {*schedules.tolist()}:
        for both in (False, True):
            some = np.flatnonzero((schedules == schedule) & (mirrored[of] == both))
            if len(some):
                own = counts[of[some]]
                ends = np.cumsum(own)
                rows = np.repeat(first[of[some]] - ends + own, own) + np.arange(ends[-1])
                ranks = every.take(rows)._replace(mirrored=both)
                terms = _terms(ranks, np.repeat(many[some], own), schedule)
                found[:, some] = terms[:, _fullest(terms.sum(axis=0), ends - own)]
    return found


def _count(ranks: Ranks) -> int:
    return len(ranks.rank)


def _is_mirrored(ranks: Ranks) -> bool:
    return ranks.mirrored


def _terms(ranks: Ranks, many: NDArray[np.int64], schedule: str) -> Floats:
    """Return what ranks hold in the backward pass where they hold most, (terms, ranks)."""
    keeps, extra, _, between = in_passes(ranks, many, schedule)
    found = ranks.fixed.copy()
    found[TERMS.index("activations")] = keeps
    found[TERMS.index("working set")] = extra
    found[TERMS.index("communication buffer")] += between
    return found


def _fullest(total: Floats, first: NDArray[np.intp]) -> NDArray[np.intp]:
    """Return the first rank with most of each layout; first: of each."""
    most = np.maximum.reduceat(total, first)
    layout = np.repeat(np.arange(len(first)), np.diff(first, append=len(total)))
    rows = np.flatnonzero(total == most[layout])
    return rows[np.unique(layout[rows], return_index=True)[1]]


def _of_parts(ranks: Ranks, many: NDArray[np.int64]) -> tuple[Floats, Floats]:
    """Return the B of a sample that ranks with several parts keep when they have most, and the working set of that
    pass."""
    # A rank is less than two groups of microbatches, one for each stage, ahead: after three of them its passes repeat.
    enough = 0 * many if ranks.mirrored else np.minimum(many, 3 * ranks.stages)
    each = (column.tolist() for column in (ranks.rank, ranks.stages, ranks.chunks, enough))
    found = [
        _most(Keyed(needs, id(needs.stored), id(needs.beside), id(needs.waiting)), *one)
        for needs, *one in zip(ranks.needs, *each, strict=True)
    ]
    kept, extra = np.array(found).T
    return kept, extra


@lru_cache(maxsize=1 << 15)
def _most(key: Keyed[Needs], rank: int, stages: int, chunks: int, many: int) -> tuple[float, float]:
    """Return the same of a rank; many: microbatches, or 0 where the rank has a stage of each copy of the network."""
    needs = key.value
    if many:
        counts, back = before_backward(rank, stages, many, chunks)
        held, extra = counts @ needs.stored, needs.beside[back]
    else:
        counts, later, back, whole = before_mirrored_backward(rank, stages)
        held = counts @ needs.stored + later @ needs.waiting
        extra = np.where(whole, needs.whole[back], needs.beside[back])
    fullest = (held + extra).argmax()
    return float(held[fullest]), float(extra[fullest])
