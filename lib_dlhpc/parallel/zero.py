"""ZeRO: weights are gathered ahead of their layers (stage 3), after the update (1 and 2), or behind the first pass.

Stage 3 gathers a unit at a time, a block of the network or a layer (costs/fsdp_units.py). At most two units are on the
device: the current one, and the next, whose all-gather overlaps it (AT_ONCE, as in the memory model and the trainer).
With hybrid sharding neighbors shard, and what they hold is replicated (data_parallel.py). Sources: Rajbhandari et al.
2020, section 7; Zhao et al. 2023, section 3.2.

In a pipeline, too, each microbatch gathers and reduce-scatters anew. For this cost DeepSpeed's pipeline engine refuses
stages 2 and 3, and torchtitan by default keeps gathered weights where there is a pipeline. In a zero-bubble pipeline
weights are gathered for the gradients of inputs alone, and gradients leave with those of the weights.

Gathered once a step, weights arrive a bucket at a time behind the first forward pass, and stay until the last backward
pass: Megatron-LM's overlap-param-gather with stage 1, FSDP's reshard_after_forward = False with stage 3 (Grattafiori et
al. 2024, "The Llama 3 herd of models", section 3.3.2). A rank with several chunks of an interleaved pipeline posts the
buckets of all of them before its first pass, so those of later chunks arrive behind the passes of earlier ones.
"""

from collections import deque
from collections.abc import Callable
from functools import lru_cache
from itertools import islice

from lib_dlhpc.costs.exchanges import weights_read
from lib_dlhpc.costs.fsdp_units import unit_weights, units
from lib_dlhpc.costs.stored_activations import AT_ONCE
from lib_dlhpc.layout import Part, shards
from lib_dlhpc.parallel.data_parallel import STREAM, cut, holders, sharded_over
from lib_dlhpc.parallel.passes import Passes
from lib_dlhpc.program import Collective, Compute, Instruction, Wait
from lib_dlhpc.program.instructions import WEIGHTS
from lib_dlhpc.spec.experiment import Experiment
from lib_dlhpc.spec.strategy import FORWARD

LABEL = "weights and gradients"
_wait = lru_cache(maxsize=1 << 13)(Wait)  # passes wait alike: equal ones are one object


def shard(experiment: Experiment, held: tuple[Part, ...], passes: Passes) -> None:
    """Gather the weights of each unit before its passes (ZeRO 3); wait for the gradients of each pass (2 and 3)."""
    strategy, chunk = experiment.strategy, passes.chunk
    if not strategy.zero or shards(experiment) == 1:
        return
    if strategy.gather == FORWARD:
        passes.first = _gathered_once(experiment, held, chunk, passes.forward)
    if strategy.zero == 1:
        return
    if strategy.zero == 3 and strategy.gather != FORWARD:
        passes.forward = _gathered(experiment, passes.part, chunk, passes.forward)
        passes.backward = _gathered(experiment, passes.part, chunk, passes.backward)
        if passes.weights is None:  # that of weight gradients reads no weights
            passes.last = _gathered(experiment, passes.part, chunk, passes.last)
    repeated = passes.backward if passes.weights is None else passes.weights
    for instructions in (repeated, passes.last):
        instructions.append(Wait("data", STREAM, "", LABEL))


def gathered_after_update(experiment: Experiment, held: tuple[Part, ...]) -> list[Instruction]:
    """Return the all-gathers of updated weights, a bucket at a time (ZeRO 1 and 2)."""
    strategy = experiment.strategy
    if strategy.zero not in (1, 2) or strategy.gather == FORWARD or shards(experiment) == 1:
        return []
    gather, emitted = _gather(experiment), list[Instruction]()
    for chunk, part in enumerate(held):
        for bucket in cut(experiment, part):
            whole = gather(bucket.elements, (chunk, bucket.first, bucket.stop), "")
            emitted += _of_each_group(experiment, part, whole)
    return emitted


def _of_each_group(experiment: Experiment, part: Part, whole: Collective) -> list[Collective]:
    """Return the all-gathers of some weights: those of experts are sharded over the replicas that hold them."""
    if experiment.strategy.experts == 1:
        return [whole]
    _, first, stop = whole.layers
    return [
        whole._replace(
            group=group, elements=count, omits=omits, key=whole.key and f"{whole.key} {group}"
        )
        for group, count, omits in holders(part, first, stop, whole.elements)
    ]


def _gathered_once(
    experiment: Experiment, held: tuple[Part, ...], chunk: int, instructions: list[Instruction]
) -> list[Instruction]:
    """Post all buckets, the first layers' first; wait for each before the first layer of it that needs weights.

    With overlap the first of a rank's chunks posts those of all chunks, in the order in which they compute. Where
    microbatches enter from both ends, either chunk may be first, and each posts its own.
    """
    weights = weights_read(held[chunk].model)
    gathers, emitted = _of_chunk(experiment, held, chunk), list[Instruction]()
    if experiment.overlap and experiment.strategy.mirrored:
        emitted += gathers
    elif experiment.overlap and chunk == 0:
        emitted += [
            gather for index in range(len(held)) for gather in _of_chunk(experiment, held, index)
        ]
    coming = deque(gathers)
    for instruction in instructions:
        if isinstance(instruction, Compute) and weights[instruction.layer]:
            while coming and coming[0].layers[1] <= instruction.layer:
                gather = coming.popleft()
                emitted += [] if experiment.overlap else [gather]
                emitted.append(Wait("data", STREAM, gather.key, LABEL))
        emitted.append(instruction)
    return emitted


def _of_chunk(experiment: Experiment, held: tuple[Part, ...], chunk: int) -> list[Collective]:
    """Return the all-gathers of a chunk's buckets, the first layers' first."""
    gather_of, gathers = _gather(experiment), list[Collective]()
    prefix = f"{chunk} " if len(held) > 1 else ""
    for number, bucket in enumerate(reversed(cut(experiment, held[chunk]))):
        layers = chunk, bucket.first, bucket.stop
        whole = gather_of(bucket.elements, layers, f"weights {prefix}{number}")
        gathers += _of_each_group(experiment, held[chunk], whole)
    return gathers


def _gather(experiment: Experiment) -> Callable[[float, tuple[int, ...], str], Collective]:
    """Return what makes the all-gather of some elements, of the weights of some layers, with a key."""
    group, algorithm = sharded_over(experiment), experiment.strategy.allreduce

    def made(elements: float, layers: tuple[int, ...], key: str) -> Collective:
        fields = ("data", group, "allgather", elements, WEIGHTS, STREAM, key)
        return Collective(*fields, algorithm, layers=layers)

    return made


def _gathered(
    experiment: Experiment, part: Part, chunk: int, instructions: list[Instruction]
) -> list[Instruction]:
    """Post an all-gather as soon as a unit frees its weights; wait for it before the unit that needs it.

    A unit frees its weights after the last of consecutive visits: a block that is recomputed as a whole keeps those
    that its recomputation has gathered.
    """
    kind, weights = experiment.strategy.zero_unit, weights_read(part.model)
    layers, sizes = units(part.model, kind), unit_weights(part.model, kind)
    unit_of = {layer: number for number, unit in enumerate(layers) for layer in unit}
    needs = list[tuple[int, list[int]]]()  # a unit, and where consecutive instructions visit it
    for position, instruction in enumerate(instructions):
        if type(instruction) is Compute and weights[instruction.layer]:
            unit = unit_of[instruction.layer]
            if not needs or needs[-1][0] != unit:
                needs.append((unit, []))
            needs[-1][1].append(position)
    first = {positions[0] for _, positions in needs}
    last = {positions[-1] for _, positions in needs}
    gather_of = _gather(experiment)
    coming, emitted = iter(needs), list[Instruction]()
    keys = dict[int, list[str]]()  # of the gathers to wait for, by where they are needed

    def post_next() -> None:
        for unit, positions in islice(coming, 1):
            span = (chunk, layers[unit].start, layers[unit].stop)
            whole = gather_of(sizes[unit], span, f"weights {positions[0]}")
            gathers = _of_each_group(experiment, part, whole)
            keys[positions[0]] = [gather.key for gather in gathers]
            emitted.extend(gathers)

    for _ in range(AT_ONCE if experiment.overlap else 1):
        post_next()
    for position, instruction in enumerate(instructions):
        if position in first:
            emitted += [_wait("data", STREAM, key, LABEL) for key in keys[position]]
        emitted.append(instruction)
        if position in last:
            post_next()
    return emitted
