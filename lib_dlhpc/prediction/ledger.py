"""Memory of each rank of a split network, at each moment of a step that may be its peak.

A rank holds its shard of weights, gradients and optimizer state, sharded further by ZeRO; the stored activations of
the microbatches in flight (pipelined.in_flight, costs/stored_activations.py); the working set of one pass; and
communication buffers. With offloading only the current layer and the one in flight to or from the offload target
are on the device. Fragmentation is not modeled.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from lib_dlhpc.costs.compute import BYTES, MIXED, STATE
from lib_dlhpc.costs.state import MASTER_BYTES
from lib_dlhpc.costs.stored_activations import (
    AFTER,
    AT_ONCE,
    BETWEEN,
    backward_extra,
    resident_bytes,
    stored_bytes,
    waiting_bytes,
)
from lib_dlhpc.costs.units import buckets_of, unit_weights
from lib_dlhpc.costs.wire_format import on_wire
from lib_dlhpc.keyed import Keyed
from lib_dlhpc.layout import Part, mean_shards, parts, place, shards, sizes
from lib_dlhpc.parallel.overlapped import overlaps_passes
from lib_dlhpc.prediction.explanation import Explanation, source_of, stored_in_fp8
from lib_dlhpc.prediction.hybrid import rank_model, rank_parts
from lib_dlhpc.prediction.pipelined import (
    before_backward,
    before_mirrored_backward,
    in_flight,
    waiting,
)
from lib_dlhpc.schedules.ring_collectives import PIECE
from lib_dlhpc.spec.experiment import Experiment
from lib_dlhpc.spec.model import Model
from lib_dlhpc.spec.strategy import FORWARD, SPLIT_BACKWARD
from lib_dlhpc.spec.units import format_quantity as show

if TYPE_CHECKING:
    from lib_dlhpc.prediction.breakdown import Breakdown

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


@dataclass(frozen=True)
class Moment:
    """Memory of a rank of a pipeline at one moment of a step, in bytes by term."""

    rank: int  # its place in the pipeline
    when: str
    terms: dict[str, float]
    offloaded: float = 0.0  # offloaded bytes of this rank

    @property
    def total(self) -> float:
        """Bytes on the device, sum of all terms."""
        return sum(self.terms.values())


def moments(experiment: Experiment) -> tuple[Moment, ...]:
    """Return for each rank of a pipeline its memory after the last of consecutive forward passes, in the
    backward pass that follows, and in the update. The experiment holds no arrays.

    Of the ranks that share a stage, the one with most.
    """
    stages, found = sizes(experiment).pipeline, list[Moment]()
    for rank, needs in enumerate(_needs_of_ranks(experiment)):
        each = (_of_rank(experiment, one, rank, stages) for one in needs)
        found += max(each, key=lambda three: max(moment.total for moment in three))
    return tuple(found)


def peak_of(experiment: Experiment, rank: int) -> Moment:
    """Return the moment of the memory peak of one rank, numbered as in `layout.place`."""
    here, stages = place(experiment, rank).pipeline, sizes(experiment).pipeline
    needs = _needs(experiment, parts(experiment, rank), stages)
    return max(_of_rank(experiment, needs, here, stages), key=lambda moment: moment.total)


def peak(experiment: Experiment) -> Moment:
    """Return the moment of the highest memory peak of all ranks."""
    return _peak(Keyed(experiment, id(experiment)))


@lru_cache(maxsize=8)  # a planner looks whether a layout fits, and then predicts it
def _peak(key: Keyed[Experiment]) -> Moment:
    experiment, strategy = key.value, key.value.strategy
    stages = sizes(experiment).pipeline
    one_of_each = _one_of_each(experiment, strategy.schedule)
    seen, found = set[int](), list[Moment]()
    for rank, needs in enumerate(_needs_of_ranks(experiment)):
        for one in needs:
            if not (one_of_each and id(one) in seen):
                seen.add(id(one))
                found += _of_rank(experiment, one, rank, stages)
    return max(found, key=lambda moment: moment.total)


def _needs_of_ranks(experiment: Experiment) -> "list[list[Needs]]":
    """Return what each rank of a pipeline holds, at each place in space that can be the slowest; alike ones have the
    same object."""
    chains, stages = rank_parts(experiment), sizes(experiment).pipeline
    unlike = {id(held): held for chain in chains for held in chain}
    known = {key: _needs(experiment, held, stages) for key, held in unlike.items()}
    return [[known[id(held)] for held in ranks] for ranks in zip(*chains, strict=True)]


def peaks(
    experiment: Experiment, many: NDArray[np.int64], schedules: NDArray[np.str_]
) -> dict[str, Floats]:
    """Return the terms of the highest peak of all ranks, for each number of microbatches with its schedule.

    The experiment holds no arrays and does not offload; stages are cut as with its own microbatches, and backward
    passes have as many parts as with its own schedule. B, (microbatches,) each.
    """
    places = dict[int, tuple[Needs, list[int]]]()
    for rank, needs in enumerate(_needs_of_ranks(experiment)):
        for one in needs:
            places.setdefault(id(one), (one, []))[1].append(rank)
    found = np.empty((len(TERMS), len(many)))
    for schedule in {*schedules.tolist()}:
        some, first = schedules == schedule, _one_of_each(experiment, schedule)
        each = [
            _held(experiment, one, ranks[:1] if first else ranks, many[some], schedule)
            for one, ranks in places.values()
        ]
        every = np.concatenate(each, axis=1)
        fullest = every.sum(axis=0).argmax(axis=0)
        found[:, some] = every[:, fullest, np.arange(len(fullest))]
    return dict(zip(TERMS, found, strict=True))


def _held(
    experiment: Experiment, needs: "Needs", ranks: list[int], many: NDArray[np.int64], schedule: str
) -> Floats:
    """Return what ranks hold in the backward pass where they hold most, (terms, ranks, microbatches)."""
    at = np.array(ranks)[:, None] if len(ranks) > 1 else ranks[0]
    place = at, sizes(experiment).pipeline
    keeps, extra, _, between = _bytes(experiment, needs, place, many, schedule)
    found = np.empty((len(TERMS), len(ranks), len(many)))
    found[:] = np.array([*needs.fixed.values()])[:, None, None]
    found[TERMS.index("activations")] = keeps
    found[TERMS.index("working set")] = extra
    found[TERMS.index("communication buffer")] += between
    return found


def _one_of_each(experiment: Experiment, schedule: str) -> bool:
    """Return whether of ranks with the same parts the first has the most passes in flight, and nothing else waits."""
    return schedule not in SPLIT_BACKWARD and experiment.strategy.offload == "none"


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


def _needs(experiment: Experiment, held: tuple[Part, ...], stages: int) -> Needs:
    strategy = experiment.strategy
    size, out = BYTES[strategy.precision], strategy.offload != "none"
    in_two = strategy.splits_backward and stages > 1
    apart = AFTER if in_two else "", BETWEEN if in_two and overlaps_passes(experiment) else ""
    how = (size, strategy.recompute, out, *apart)
    model = rank_model(held)
    fixed, away = _state(experiment, model)
    fixed["input batch"] = _samples(experiment, held) * size
    fixed["communication buffer"] = _buffers(experiment, model)
    fixed["driver and workspace"] = float(experiment.machine.device.reserved_memory)
    whole = strategy.zero < 2 or shards(experiment) == 1
    if in_two and not whole:  # what backward computes waits for the buckets of weight gradients
        early = (one for one in model.layers if not one.traits.splits_backward)
        fixed["gradients"] += size * sum(one.trained for one in early if not one.traits.stand_in)
    accumulates = whole and strategy.offload != "all"
    largest = float(model.layer_trained.max(initial=0.0))
    return _activations(Keyed(held, tuple(part.likeness for part in held)), *how)._replace(
        summed=largest * size if accumulates else 0.0,
        fixed={name: float(fixed.get(name, 0.0)) for name in TERMS},
        away=away,
    )


@lru_cache(maxsize=4096)
def _activations(
    key: Keyed[tuple[Part, ...]], size: int, recompute: str, out: bool, in_two: str, whole: str
) -> Needs:
    """Return what a rank holds for each sample, which is the same with any ZeRO, machine and number of replicas."""
    held = key.value
    residents = (resident_bytes(part, size, recompute) for part in held) if out else ()
    beside, together = (
        np.array([backward_extra(part, size, recompute, out, where) for part in held])
        for where in (in_two, whole)
    )
    return Needs(
        np.array([stored_bytes(part, size, recompute, out) for part in held]),
        beside,
        together,
        np.array([waiting_bytes(part, size) if in_two else 0.0 for part in held]),
        max(residents, key=sum, default=(0.0, 0.0)),
        max(part.elements(part.receives) for part in held),
        max(part.elements(part.sends) for part in held),
    )


def _of_rank(experiment: Experiment, needs: Needs, rank: int, stages: int) -> tuple[Moment, ...]:
    strategy = experiment.strategy
    many, chunks = int(strategy.microbatches), int(strategy.chunks)
    found = _bytes(experiment, needs, (rank, stages), np.array([many]), strategy.schedule)
    keeps, extra, away, between = (float(each[0]) for each in found)
    passes = int(in_flight(rank, stages, many, strategy.schedule, chunks))
    buffer = needs.fixed["communication buffer"] + between

    def moment(when: str, activations: float, working: float) -> Moment:
        terms = {**needs.fixed, "activations": activations, "working set": working}
        return Moment(rank, when, {**terms, "communication buffer": buffer}, away)

    some = f"{passes} pass{'es' * (passes > 1)} kept"
    where = f"rank {rank} of the pipeline, " if stages > 1 else ""
    return (
        moment(f"{where}after a forward pass, with {some}", keeps, 0.0),
        moment(f"{where}in a backward pass, with {some}", keeps, extra),
        moment(f"{where}in the update", 0.0, 0.0),
    )


def _bytes(
    experiment: Experiment,
    needs: Needs,
    at: tuple[Any, int],
    many: NDArray[np.int64],
    schedule: str,
) -> tuple[Floats, Floats, Floats, Floats]:
    """Return for each number of microbatches the B of activations, of the working set, that are offloaded, and of the
    buffers of messages between stages; at: rank and stages; of several ranks, (ranks, 1), arrays are of each."""
    strategy, (rank, stages) = experiment.strategy, at
    batch = np.ceil(strategy.batch / many)
    later = waiting(rank, stages, many, schedule)
    if schedule == "interleaved":
        kept, extra = _of_chunks(needs, rank, stages, many, int(strategy.chunks))
    elif strategy.mirrored:
        kept, extra = (each + 0.0 * many for each in _of_copies(needs, rank, stages))
    else:
        kept = (in_flight(rank, stages, many, schedule) - later) * needs.stored[0]
        extra = needs.beside[0] + 0.0 * kept
    keeps, extra = batch * (kept + later * needs.waiting[0]), batch * extra
    away = needs.away + 0 * kept
    if strategy.offload != "none":
        near, moved = needs.resident
        near = np.minimum(keeps, batch * near)
        extra, away, keeps = batch * moved, away + keeps - near, near
    # Each is sent from a copy and received into one; gradients are copied once more. At the peak of a last
    # stage its previous gradient is in flight and its next input is expected, except in GPipe.
    last = 1 if schedule == "gpipe" else np.minimum(3, many)
    between = (2 if needs.after else last) * needs.before + 3 * needs.after
    between = between * batch * BYTES[strategy.precision] * (stages > 1)
    return keeps, extra + needs.summed * (many > 1), away, between


def _of_chunks(
    needs: Needs, rank: int, stages: int, many: NDArray[np.int64], chunks: int
) -> tuple[Floats, Floats]:
    """Return the B of a sample that an interleaved rank keeps when it has most, and the working set of that pass."""
    found = dict[int, tuple[float, float]]()
    # A rank is less than two groups of microbatches, one for each stage, ahead: after three of them its passes repeat.
    enough = np.minimum(many, 3 * stages).tolist()
    for each in {*enough}:
        counts, back = before_backward(rank, stages, each, chunks)
        held = counts @ needs.stored
        fullest = (held + needs.beside[back]).argmax()
        found[each] = held[fullest], needs.beside[back[fullest]]
    kept, extra = np.array([found[each] for each in enough]).T
    return kept, extra


def _of_copies(needs: Needs, rank: Any, stages: int) -> tuple[Any, Any]:
    """Return the same of a rank with a stage of each copy of the network, or of several ranks, (ranks, 1)."""
    found = []
    for each in np.ravel(rank).tolist():
        counts, later, back, whole = before_mirrored_backward(each, stages)
        held = counts @ needs.stored + later @ needs.waiting
        extra = np.where(whole, needs.whole[back], needs.beside[back])
        fullest = (held + extra).argmax()
        found.append((held[fullest], extra[fullest]))
    kept, extra = np.array(found).T
    return (kept[:, None], extra[:, None]) if np.ndim(rank) else (kept[0], extra[0])


def _state(experiment: Experiment, model: Model) -> tuple[dict[str, float], float]:
    """Return weights, gradients and optimizer state of a rank, and their offloaded bytes."""
    strategy, replicas = experiment.strategy, mean_shards(experiment, model)
    size = BYTES[strategy.precision]
    master = MASTER_BYTES * (strategy.precision in MIXED)
    each = {
        "weights": (size, 3),
        "gradients": (size, 2),
        "master weights": (master, 1),
        "optimizer state": (STATE[strategy.optimizer] * max(size, MASTER_BYTES), 1),
    }
    split = {
        name: (float(count) * b / (replicas if strategy.zero >= level else 1))
        for name, (b, level) in each.items()
        for count in (model.parameters if name == "weights" else model.trained,)
    }
    if strategy.offload != "all":
        return split, 0.0
    largest = float(model.layer_parameters.max(initial=0.0))
    near = {name: min(split[name], AT_ONCE * largest * b) for name, (b, _) in each.items()}
    return near, sum(split.values()) - sum(near.values())


def _samples(experiment: Experiment, held: tuple[Part, ...]) -> float:
    """Return the elements of the samples that a rank reads in a step."""
    reads = [part for part in held if part.model.reads_samples]
    if not reads:
        return 0.0
    shape: Any = reads[0].model.input_shape
    if int(experiment.strategy.spatial) == 1:
        shape = experiment.dataset.sample_shape or shape
    strategy = experiment.strategy
    share = strategy.context * (1 + strategy.mirrored)  # the other copy reads half of the batch
    return float(strategy.batch * np.prod(shape) / share)


def _buffers(experiment: Experiment, model: Model) -> float:
    """Return the bytes of the buffers in which weights and gradients are exchanged."""
    strategy, found = experiment.strategy, 0.0
    element = BYTES[strategy.precision]
    if sizes(experiment).data > 1:
        bucket = float(strategy.bucket)
        if strategy.zero >= 2:  # of whole layers; one is filled while another is in flight
            bucket = AT_ONCE * float(buckets_of(model, strategy).sizes.max(initial=0.0))
        if strategy.zero == 1:  # reduced in place, a message at a time
            bucket = min(bucket, float(PIECE))
        copies = 2 if strategy.experts > 1 and not strategy.zero else 1  # of a bucket: packed
        found += copies * on_wire(strategy, min(bucket, model.trained * element))
        if strategy.zero == 3:  # gathered weights
            kept = strategy.gather == FORWARD
            two = AT_ONCE * max(unit_weights(model, strategy.zero_unit), default=0)
            found += element * (model.parameters if kept else two)
    return found


def explain_split_memory(p: "Breakdown") -> Explanation:
    """Return the explanation of the peak memory of a split network."""
    e = p.experiment
    strategy = e.strategy
    fullest = max(p.moments, key=lambda moment: moment.total)
    passes = in_flight(
        fullest.rank,
        int(strategy.pipeline),
        int(strategy.microbatches),
        strategy.schedule,
        int(strategy.chunks),
    )
    terms = tuple((name, show(size, "B"), "ledger") for name, size in fullest.terms.items())
    return Explanation(
        "memory of one device",
        show(float(p.memory_total), "B"),
        "the fullest rank at its peak: its shard of weights, gradients and optimizer state; activations of the"
        " microbatches in flight; the working set of a backward pass; buffers",
        (
            ("which and when", fullest.when, "computed"),
            ("microbatches in flight", f"{passes}", f"schedule {strategy.schedule}"),
            *terms,
            ("offloaded", show(float(p.offloaded), "B"), "computed"),
            ("capacity", show(e.machine.device.memory, "B"), source_of(p, "device", "memory")),
        ),
        "layer shapes; Narayanan et al. 2021 (microbatches in flight); Korthikanti et al. 2022;"
        " Rajbhandari et al. 2020",
        "No fragmentation. The all-gather before a matmul is repeated in backward, unless activations are offloaded."
        + stored_in_fp8(p),
    )
