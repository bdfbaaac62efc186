"""What ranks of a pipeline hold while it runs, as columns: ranks of one layout, or of many at once.

A rank has parts, and for each some bytes of a sample; how many microbatches of it are in flight, the schedule says
(pipelines/pipelined.py). Everything is computed on columns, with an entry for each rank.
"""

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from lib_dlhpc.arrays import Floats
from lib_dlhpc.costs.roofline import BYTES
from lib_dlhpc.keyed import Keyed
from lib_dlhpc.layout import sizes
from lib_dlhpc.prediction.memory.pytorch_pipelines import StoredMessages, kept_elements
from lib_dlhpc.prediction.pipelines.pipelined import (
    before_backward,
    before_mirrored_backward,
    in_flight,
    waiting,
)
from lib_dlhpc.spec.experiment import Experiment

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


class RankNeeds(NamedTuple):
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
    kept: StoredMessages = StoredMessages()
    # B of each part, there from its first backward pass to its last, after which shards replace them; (): always
    gradients: tuple[float, ...] = ()


class RankColumns(NamedTuple):
    """Ranks of pipelines, a column each.

    needs: (ranks,). fixed: B, (terms, ranks). numbers: (16, ranks): rank, stages, chunks, batch, B of an element; of a
    first part B of a sample that it stores, by which its backward pass exceeds that, that wait; elements of a sample
    that are received and sent; B of the largest gradient, B offloaded of the state; what is kept of messages.
    """

    needs: NDArray[np.object_]
    fixed: Floats
    numbers: Floats
    mirrored: bool
    offloads: bool


def ranks_of(experiment: Experiment, each: Sequence[tuple[int, RankNeeds]]) -> RankColumns:
    """Return ranks of a scalar experiment with what they hold."""
    s = experiment.strategy
    same = sizes(experiment).pipeline, s.chunks, s.batch, BYTES[s.precision]
    needs, numbers = np.empty(len(each), object), []
    for index, (rank, one) in enumerate(each):
        first = one.stored[0], one.beside[0], one.waiting[0]
        needs[index] = one
        numbers.append(
            (rank, *same, *first, one.before, one.after, one.summed, one.away, *one.kept)
        )
    return RankColumns(
        needs,
        np.array([[*one.fixed.values()] for _, one in each]).T,
        np.array(numbers, float).T,
        s.mirrored,
        s.offload != "none",
    )


def in_passes(
    ranks: RankColumns, many: NDArray[np.int64], schedule: str
) -> tuple[Floats, Floats, Floats, Floats, Floats]:
    """Return for each rank, with `many` microbatches, the B of activations where it has most, of the working set, that
    are offloaded, of the buffers of messages between stages, and of gradients that are not held."""
    rank, stages, chunks, batch, size, stored, beside, waits, before, after = ranks.numbers[:10]
    summed, gone, *rest = ranks.numbers[10:]
    later, absent = waiting(rank, stages, many, schedule), np.zeros(len(rank))
    if schedule == "interleaved" or ranks.mirrored:
        kept, extra, absent = _of_parts(ranks, many)
    else:
        kept, extra = (in_flight(rank, stages, many, schedule) - later) * stored, beside
    batch = np.ceil(batch / many)
    keeps, extra, away = batch * (kept + later * waits), batch * extra, gone
    if ranks.offloads:
        near, moved = np.array([needs.resident for needs in ranks.needs]).T
        near = np.minimum(keeps, batch * near)
        extra, away, keeps = batch * moved, gone + keeps - near, near
    # Each is sent from a copy and received into one; gradients are copied once more. At the peak of a last
    # stage its previous gradient is in flight and its next input is expected, except in GPipe.
    last = 1 if schedule == "gpipe" else np.minimum(3, many)
    between = np.where(after, 2, last) * before + 3 * after
    messages = StoredMessages(*rest)
    everything = kept_elements(messages, rank, stages, chunks, many, schedule, (before, after))
    between = np.where(messages.none, between, everything) * batch * size * (stages > 1)
    return keeps, extra + summed * (many > 1), away, between, absent


def peaks(
    each: Sequence[RankColumns],
    of: NDArray[np.intp],
    many: NDArray[np.int64],
    schedules: NDArray[np.str_],
) -> Floats:
    """Return the terms of the highest peak of each layout, B, (terms, layouts).

    each: ranks of layouts with the same parts, which do not offload; of: which of these every layout has, with how many
    microbatches, and which schedule.
    """
    counts, mirrored = np.array([(len(ranks.needs), ranks.mirrored) for ranks in each]).T
    first = np.cumsum(counts) - counts
    every = [np.concatenate(one, axis=-1) for one in zip(*(one[:3] for one in each), strict=True)]
    found = np.empty((len(TERMS), len(of)))
    kinds = zip(schedules.tolist(), mirrored[of].tolist(), strict=True)
    for schedule, both in {*kinds}:
        some = np.flatnonzero((schedules == schedule) & (mirrored[of] == both))
        own = counts[of[some]]
        ends = np.cumsum(own)
        rows = np.repeat(first[of[some]] - ends + own, own) + np.arange(ends[-1])
        needs, fixed, numbers = (column[..., rows] for column in every)
        ranks = RankColumns(needs, fixed, numbers, bool(both), offloads=False)
        terms = _terms(ranks, np.repeat(many[some], own), schedule)
        found[:, some] = terms[:, _fullest(terms.sum(axis=0), ends - own)]
    return found


def _terms(ranks: RankColumns, many: NDArray[np.int64], schedule: str) -> Floats:
    """Return what ranks hold in the backward pass where they hold most, (terms, ranks)."""
    keeps, extra, _, between, absent = in_passes(ranks, many, schedule)
    found = ranks.fixed.copy()
    found[TERMS.index("activations")] = keeps
    found[TERMS.index("working set")] = extra
    found[TERMS.index("gradients")] -= absent
    found[TERMS.index("communication buffer")] += between
    return found


def _fullest(total: Floats, first: NDArray[np.intp]) -> NDArray[np.intp]:
    """Return the first rank with most of each layout; first: of each."""
    most = np.maximum.reduceat(total, first)
    layout = np.repeat(np.arange(len(first)), np.diff(first, append=len(total)))
    rows = np.flatnonzero(total == most[layout])
    return rows[np.unique(layout[rows], return_index=True)[1]]


def _of_parts(ranks: RankColumns, many: NDArray[np.int64]) -> tuple[Floats, Floats, Floats]:
    """Return the B of a sample that ranks with several parts keep when they have most, the working set of that pass,
    and the B of gradients that are not held."""
    # A rank is less than two groups of microbatches, one for each stage, ahead: after three of them its passes repeat.
    rank, stages, chunks = ranks.numbers[:3].astype(int)
    enough = 0 * many if ranks.mirrored else np.minimum(many, 3 * stages)
    batch = np.ceil(ranks.numbers[3] / many)
    each = (column.tolist() for column in (rank, stages, chunks, enough, batch))
    found = [
        _most(
            Keyed(needs, id(needs.stored), id(needs.beside), id(needs.waiting), needs.gradients),
            *one,
        )
        for needs, *one in zip(ranks.needs, *each, strict=True)
    ]
    kept, extra, absent = np.array(found).T
    return kept, extra, absent


@lru_cache(maxsize=1 << 15)
def _most(
    key: Keyed[RankNeeds], rank: int, stages: int, chunks: int, many: int, batch: float
) -> tuple[float, float, float]:
    """Return the same of a rank; many: microbatches, or 0 where the rank has a stage of each copy of the network;
    batch: samples of one."""
    needs, absent = key.value, np.zeros(1)
    if many:
        counts, back = before_backward(rank, stages, many, chunks)
        held, extra = counts @ needs.stored, needs.beside[back]
        if needs.gradients:
            absent = _absent(back, np.array(needs.gradients))
    else:
        counts, later, back, whole = before_mirrored_backward(rank, stages)
        held = counts @ needs.stored + later @ needs.waiting
        extra = np.where(whole, needs.whole[back], needs.beside[back])
    missing = np.broadcast_to(absent, held.shape)
    fullest = (batch * (held + extra) - missing).argmax()
    return float(held[fullest]), float(extra[fullest]), float(missing[fullest])


def _absent(back: NDArray[np.int64], gradients: Floats) -> Floats:
    """Return the B of gradients in each backward pass of parts that have not had their first, or have had their last;
    back: the part of each pass, which has more than one."""
    passes = np.arange(len(back))
    each = [passes[back == part] for part in range(len(gradients))]
    return sum(
        size * ((passes < own.min()) | (passes > own.max()))
        for size, own in zip(gradients, each, strict=True)
    )
