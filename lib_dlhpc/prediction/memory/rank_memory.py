"""Memory of each rank of a split network, at each moment of a step that may be its peak.

A rank holds its shard of weights, gradients and optimizer state, sharded further by ZeRO (zero.py); the stored
activations of the microbatches in flight (pipelined.in_flight, costs/stored_activations.py); the working set of one
pass; and communication buffers. With offloading only the current layer and the one in flight to or from the offload
target are on the device. Fragmentation is not modeled.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain
from typing import TYPE_CHECKING, Any

import numpy as np

from lib_dlhpc.costs.fsdp_units import unit_weights
from lib_dlhpc.costs.roofline import BYTES
from lib_dlhpc.costs.stored_activations import (
    AFTER,
    BETWEEN,
    backward_extra,
    resident_bytes,
    stored_bytes,
    waiting_bytes,
)
from lib_dlhpc.keyed import Keyed
from lib_dlhpc.layout import Part, folded, parts, place, representative, shards, sizes
from lib_dlhpc.prediction.explanation import Explanation, source_of, stored_narrow
from lib_dlhpc.prediction.memory.peaks import TERMS, RankColumns, RankNeeds, in_passes, ranks_of
from lib_dlhpc.prediction.memory.pytorch_pipelines import StoredMessages, holds_messages, kept_by
from lib_dlhpc.prediction.memory.rank_parts import rank_model, rank_parts
from lib_dlhpc.prediction.memory.zero import exchange_buffers, gradient_bytes, model_states
from lib_dlhpc.prediction.pipelines.pipelined import in_flight
from lib_dlhpc.spec.experiment import Experiment
from lib_dlhpc.spec.strategy import PYTORCH, SPLIT_BACKWARD
from lib_dlhpc.spec.units import count
from lib_dlhpc.spec.units import format_quantity as show

if TYPE_CHECKING:
    from lib_dlhpc.prediction.breakdown import Breakdown


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
    experiment = folded(experiment)
    stages, found = sizes(experiment).pipeline, list[Moment]()
    for rank, needs in enumerate(_needs_of_ranks(experiment)):
        each = (_of_rank(experiment, need, rank, stages) for need in needs)
        found += max(each, key=lambda three: max(moment.total for moment in three))
    return tuple(found)


def peak_of(experiment: Experiment, rank: int) -> Moment:
    """Return the moment of the memory peak of one rank, numbered as in `layout.place`."""
    experiment = folded(experiment)
    here, stages = place(experiment, rank).pipeline, sizes(experiment).pipeline
    needs = _needs(experiment, parts(experiment, rank), stages)
    return max(_of_rank(experiment, needs, here, stages), key=lambda moment: moment.total)


def peak(experiment: Experiment) -> Moment:
    """Return the moment of the highest memory peak of all ranks."""
    return _peak(Keyed(experiment, id(experiment)))


@lru_cache(maxsize=8)  # a planner looks whether a layout fits, and then predicts it
def _peak(key: Keyed[Experiment]) -> Moment:
    experiment = folded(key.value)
    stages = sizes(experiment).pipeline
    each = (_of_rank(experiment, needs, rank, stages) for rank, needs in _fullest(experiment))
    return max(chain.from_iterable(each), key=lambda moment: moment.total)


def _needs_of_ranks(experiment: Experiment) -> "list[list[RankNeeds]]":
    """Return what each rank of a pipeline holds, at each place in space that can be the slowest; alike ones have the
    same object."""
    chains, stages = rank_parts(experiment), sizes(experiment).pipeline
    unlike = {id(held): held for chain in chains for held in chain}
    known = {key: _needs(experiment, held, stages) for key, held in unlike.items()}
    return [[known[id(held)] for held in ranks] for ranks in zip(*chains, strict=True)]


def rank_columns(experiment: Experiment) -> RankColumns:
    """Return what the ranks of a pipeline hold that may have the highest peak; the experiment holds no arrays.

    Of ranks with the same parts the first, where that has most. Raises SpecError where the network cannot be split so.
    """
    return _holding(Keyed(experiment, id(experiment)))


@lru_cache(maxsize=4096)  # the cuts of a space, with all ways to shard and to recompute
def _holding(key: Keyed[Experiment]) -> RankColumns:
    experiment = folded(key.value)
    return ranks_of(experiment, [*_fullest(experiment)])


def _fullest(experiment: Experiment) -> Iterator[tuple[int, RankNeeds]]:
    """Yield ranks of which one has the highest peak, with what they hold."""
    # Then the first has the most passes in flight, and nothing else waits.
    strategy = experiment.strategy
    one_of_each = strategy.schedule not in SPLIT_BACKWARD and strategy.offload == "none"
    one_of_each = one_of_each and strategy.pipeline_runtime != PYTORCH
    seen = set[int]()
    for rank, needs in enumerate(_needs_of_ranks(experiment)):
        for need in needs:
            if not (one_of_each and id(need) in seen):
                seen.add(id(need))
                yield rank, need


def _needs(experiment: Experiment, held: tuple[Part, ...], stages: int) -> RankNeeds:
    from lib_dlhpc.parallel.overlapped_passes import overlaps_passes

    strategy = experiment.strategy
    size, out = BYTES[strategy.precision], strategy.offload != "none"
    in_two = strategy.splits_backward and stages > 1
    apart = AFTER if in_two else "", BETWEEN if in_two and overlaps_passes(experiment) else ""
    how = (size, strategy.recompute, out, *apart)
    model = rank_model(held)
    fixed, away = model_states(experiment, model)
    fixed["input batch"] = _samples(experiment, held) * size
    fixed["communication buffer"] = exchange_buffers(experiment, model)
    fixed["driver and workspace"] = float(experiment.machine.device.reserved_memory)
    whole = strategy.zero < 2 or shards(experiment) == 1
    if in_two and not whole:  # what backward computes waits for the buckets of weight gradients
        early = (layer for layer in model.layers if not layer.traits.splits_backward)
        fixed["gradients"] += size * sum(one.trained for one in early if not one.traits.stand_in)
    accumulates, kept = whole and strategy.offload != "all", holds_messages(strategy)
    largest = float(model.layer_trained.max(initial=0.0))
    if kept and strategy.zero:
        largest = max(largest, float(max(unit_weights(model, "block"), default=0)))
    like = tuple(representative(experiment.model, part) for part in held)
    return _activations(Keyed(like, *map(id, like)), *how)._replace(
        summed=largest * size if accumulates else 0.0,
        fixed={name: float(fixed.get(name, 0.0)) for name in TERMS},
        away=away,
        kept=kept_by(held) if kept else StoredMessages(),
        # Without shards they stay until the update.
        gradients=_of_parts(held, experiment) if kept and whole and shards(experiment) > 1 else (),
    )


def _of_parts(held: tuple[Part, ...], experiment: Experiment) -> tuple[float, ...]:
    """Return the bytes of the gradients of each stage of a rank."""
    return tuple(float(gradient_bytes(experiment) * part.model.trained) for part in held)


@lru_cache(maxsize=4096)
def _activations(
    key: Keyed[tuple[Part, ...]], size: int, recompute: str, out: bool, in_two: str, whole: str
) -> RankNeeds:
    """Return what a rank holds for each sample, which is the same with any ZeRO, machine and number of replicas."""
    held = key.value
    residents = (resident_bytes(part, size, recompute) for part in held) if out else ()
    beside, together = (
        np.array([backward_extra(part, size, recompute, out, where) for part in held])
        for where in (in_two, whole)
    )
    return RankNeeds(
        np.array([stored_bytes(part, size, recompute, out) for part in held]),
        beside,
        together,
        np.array([waiting_bytes(part, size) if in_two else 0.0 for part in held]),
        max(residents, key=sum, default=(0.0, 0.0)),
        max(part.elements(part.receives) for part in held),
        max(part.elements(part.sends) for part in held),
    )


def _of_rank(
    experiment: Experiment, needs: RankNeeds, rank: int, stages: int
) -> tuple[Moment, ...]:
    strategy = experiment.strategy
    many, chunks = int(strategy.microbatches), int(strategy.chunks)
    found = in_passes(ranks_of(experiment, [(rank, needs)]), np.array([many]), strategy.schedule)
    keeps, extra, away, between, absent = (float(each[0]) for each in found)
    passes = int(in_flight(rank, stages, many, strategy.schedule, chunks))
    buffer = needs.fixed["communication buffer"] + between

    def moment(when: str, activations: float, working: float) -> Moment:
        terms = {**needs.fixed, "activations": activations, "working set": working}
        terms["gradients"] -= absent
        return Moment(rank, when, {**terms, "communication buffer": buffer}, away)

    of_chunks = ", one chunk each," * (chunks > 1)
    some = f"the activations of {count(passes, 'microbatch')}{of_chunks} stored"
    where = f"rank {rank} of the pipeline, " if stages > 1 else ""
    return (
        moment(f"{where}after a forward pass, with {some}", keeps, 0.0),
        moment(f"{where}in a backward pass, with {some}", keeps, extra),
        moment(f"{where}in the update", 0.0, 0.0),
    )


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
    return float(strategy.batch) * float(np.prod(shape)) / float(share)


def explain_split_memory(p: "Breakdown") -> Explanation:
    """Return the explanation of the peak memory of a split network."""
    e = folded(p.experiment)
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
        + stored_narrow(p),
    )
