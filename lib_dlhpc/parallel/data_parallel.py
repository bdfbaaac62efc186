"""Data parallelism: gradients are exchanged in buckets, each as soon as backward has filled it.

Sources: Li et al. 2020, "PyTorch Distributed", section 3.2; with ZeRO a reduce-scatter takes the place of the
allreduce (Rajbhandari et al. 2020, section 7): 2 stages free the gradients of each microbatch, so they are exchanged
with each.
"""

from collections.abc import Hashable, Mapping
from functools import lru_cache, partial
from typing import NamedTuple

from lib_dlhpc.costs import roofline
from lib_dlhpc.costs.exchanges import extra_reductions
from lib_dlhpc.costs.fsdp_units import buckets_of
from lib_dlhpc.costs.wire_format import is_cast
from lib_dlhpc.keyed import Keyed
from lib_dlhpc.layout import Part, shards, sizes
from lib_dlhpc.parallel.passes import Passes
from lib_dlhpc.program import Collective, Compute, Instruction
from lib_dlhpc.program.gradient_contention import GRADIENTS
from lib_dlhpc.program.instructions import WEIGHTS, WIRE
from lib_dlhpc.spec.experiment import Experiment

STREAM = GRADIENTS


def exchange_gradients(experiment: Experiment, held: tuple[Part, ...], passes: Passes) -> None:
    """Post the buckets where backward fills them; held: all parts of the rank.

    Without overlap they follow all passes, but for those of ZeRO 2 and 3, which follow each.
    """
    each_pass = _each_pass(experiment)
    if not experiment.overlaps and not each_pass:
        return
    filled = _filled(experiment, held, passes.chunk)
    passes.last = _posted(passes.last, filled)
    if each_pass:
        passes.backward = _posted(passes.backward, filled)


def remaining(experiment: Experiment, held: tuple[Part, ...]) -> list[Instruction]:
    """Return the buckets that are exchanged after all passes, those of the last chunk first."""
    if experiment.overlaps or _each_pass(experiment):
        return []
    emitted: list[Instruction] = []
    for chunk in reversed(range(len(held))):
        filled = _filled(experiment, held, chunk)
        emitted += [bucket for layer in sorted(filled, reverse=True) for bucket in filled[layer]]
    return emitted


def sharded_over(experiment: Experiment) -> str:
    """Return the group of the replicas that shard the state between them: all, or neighbors."""
    return "data" if shards(experiment) in (1, sizes(experiment).data) else "shards"


def _each_pass(experiment: Experiment) -> bool:
    """Return whether gradients are sharded, so that they are exchanged with each pass."""
    return bool(experiment.strategy.zero > 1 and shards(experiment) > 1)


def _first_bucket(experiment: Experiment, held: tuple[Part, ...], chunk: int) -> int:
    """Return the number of the first bucket of a chunk: backward goes through the chunks from the last."""
    return 1 + sum(len(cut(experiment, part)) for part in held[chunk + 1 :])


def _posted(
    instructions: list[Instruction], filled: Mapping[int, list[Collective]]
) -> list[Instruction]:
    emitted: list[Instruction] = []
    for op in instructions:
        emitted.append(op)
        if type(op) is Compute and op.phase == "backward" and op.layer in filled:
            emitted += filled[op.layer]
    return emitted


class Bucket(NamedTuple):
    """Gradients that are exchanged together: of layers first, ..., stop - 1."""

    elements: float
    first: int
    stop: int


def cut(experiment: Experiment, part: Part) -> list[Bucket]:
    """Return the buckets of a part in the order in which backward completes them."""
    strategy, stop = experiment.strategy, len(part.model.layers)
    element = roofline.BYTES[strategy.precision]
    sizes_of, layers = buckets_of(part.model, strategy)
    buckets_of_part = []
    for size, first in zip(sizes_of.tolist(), layers.tolist(), strict=True):
        if size:
            buckets_of_part.append(Bucket(size / element, first, stop))
            stop = first
    return buckets_of_part


def exchange_key(experiment: Experiment, held: tuple[Part, ...]) -> tuple[Hashable, ...]:
    """Return what the exchange of gradients and weights of a rank depends on: the same with any recomputation."""
    s, many, replicas = experiment.strategy, shards(experiment), sizes(experiment).data
    how = float(s.bucket), s.allreduce, s.precision, s.wire, s.gather, s.zero_unit
    counts = int(s.zero), int(s.experts), many
    groups = replicas > 1, many == replicas  # which group shards
    return (
        *map(id, held),
        *how,
        *counts,
        *groups,
        bool(experiment.overlap),
        bool(experiment.overlaps),
    )


def _filled(
    experiment: Experiment, held: tuple[Part, ...], chunk: int
) -> Mapping[int, list[Collective]]:
    """Return the collectives of each bucket of a chunk, by the layer whose backward completes it."""
    return _buckets(Keyed((experiment, held), *exchange_key(experiment, held)), chunk)


@lru_cache(maxsize=4096)  # all cuts of a network, with all ways to shard
def _buckets(
    key: Keyed[tuple[Experiment, tuple[Part, ...]]], chunk: int
) -> dict[int, list[Collective]]:
    experiment, held = key.value
    strategy, size, part = experiment.strategy, sizes(experiment), held[chunk]
    summed = extra_reductions(part.model)
    if size.data == 1 and not summed:
        return {}
    each_pass = _each_pass(experiment)
    element = WIRE if is_cast(strategy) else WEIGHTS
    over_replicas = partial(_replicas, size.data, shards(experiment), int(strategy.experts))
    posted: dict[int, list[Collective]] = {}
    first = _first_bucket(experiment, held, chunk)
    for number, (elements, layer, stop) in enumerate(cut(experiment, part), first):
        label, layers = "" if each_pass else f"bucket {number}", (chunk, layer, stop)
        collectives = []
        for group, share in summed:
            fields = ("data", group, "allreduce", share * elements, WEIGHTS, STREAM)
            collectives.append(Collective(*fields, label=label, layers=layers))
        for group, goal, count, omits in over_replicas(part, layer, stop, elements):
            collectives.append(
                Collective(
                    *("data", group, goal, count, element, STREAM),
                    algorithm=strategy.allreduce,
                    label=label,
                    ranked=not each_pass,
                    layers=layers,
                    omits=omits,
                )
            )
        posted.setdefault(layer if experiment.overlap or not each_pass else 0, []).extend(
            collectives
        )
    return posted


def _replicas(
    replicas: int, many: int, experts: int, part: Part, first: int, stop: int, elements: float
) -> list[tuple[str, str, float, tuple[int, ...]]]:
    """Return over which groups a bucket's replicas sum: goal, elements, and layers that each omits.

    many: of the replicas shard the state, experts: of them share out the experts.

    Replicas that share out the experts sum an expert's gradients only with those that hold it too (Rajbhandari et
    al. 2022, "DeepSpeed-MoE", section 5.2). Those that shard the state scatter the sums, and then sum each shard with
    those that have the same.
    """
    if replicas == 1:
        return []
    goal = "reduce_scatter" if many == replicas else "allreduce"
    if experts > 1:
        groups = holders(part, first, stop, elements)
        return [(group, goal, count, omits) for group, count, omits in groups]
    if 1 < many < replicas:
        return [
            ("shards", "reduce_scatter", elements, ()),
            ("copies", "allreduce", elements / many, ()),
        ]
    return [("data", goal, elements, ())]


def holders(
    part: Part, first: int, stop: int, elements: float
) -> list[tuple[str, float, tuple[int, ...]]]:
    """Return the replicas that hold the same weights of a bucket, where they share out the experts.

    Those are a group, the elements that its ranks have in common, and the layers that it omits.
    """
    inside = range(first, stop)
    theirs = tuple(index for index in inside if part.model.layers[index].has_experts)
    others = tuple(index for index in inside if index not in theirs)
    expert_parameters = float(sum(part.model.layers[index].parameters for index in theirs))
    both = (("data", elements - expert_parameters, theirs), ("alike", expert_parameters, others))
    return [holder for holder in both if holder[1]]
