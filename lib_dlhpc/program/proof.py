"""Proof that a program trains: what its instructions say of work, weights and gradients, without carrying it out.

    order       every microbatch passes every stage forward, then backward, and no stage waits for ever
                where weight gradients are computed apart, they follow, and no layer lacks them
    work        a pass computes each layer once, in order; what it repeats comes before its backward pass
    weights     a layer computes with the weights that were gathered for it, and few are gathered ahead
    overlap     passes that overlap compute and exchange what they do alone, in their order (overlapped_proof.py)
    gradients   are complete when they are posted, and summed over all replicas exactly once
    end         weights are updated once, with complete sums, and nothing posted is left in flight

A dependency too many takes time and changes no number: that is for the laws of time, not for a proof.
"""

from collections import Counter, deque
from collections.abc import Iterable, Mapping, Sequence
from math import prod
from typing import TypeGuard

from lib_dlhpc.arrays import Floats
from lib_dlhpc.program.calls import BACKWARD, FORWARD, OVERLAPPED, PASSES, WEIGHTS, calls, phase_of
from lib_dlhpc.program.group import Group
from lib_dlhpc.program.in_flight import InFlight
from lib_dlhpc.program.instructions import (
    BLOCKS,
    SCATTER,
    Barrier,
    Collective,
    Compute,
    Instruction,
    PairAllreduce,
    Transfer,
    Update,
    Wait,
    gathers,
    summed_layers,
    sums,
)
from lib_dlhpc.program.overlapped_proof import prove_overlapped
from lib_dlhpc.program.program import Block, Chunk, Prices, Program
from lib_dlhpc.schedules.checks import ProofError
from lib_dlhpc.schedules.pipeline import Work

AXES = 3  # of the ranks of a stage: replicas, space, tensor
AHEAD = 2  # units of layers with gathered weights: the current one, and the next


def prove(cycle: Sequence[Program]) -> None:
    """Prove the steps of a run, which take turns; after the last one replicas are equal.

    Raises ProofError with the stage, and the layer or the stream.
    """
    for step in cycle:
        _prove_order(step)
        for place, stage in enumerate(step.stages):
            in_flight = InFlight()
            for number, chunk in enumerate(stage):
                where = f"stage {number * len(step.stages) + place}"
                for phase in PASSES:
                    block, alone = chunk.block(phase, False), InFlight()
                    if block is None:
                        continue
                    _prove_pass(f"{where}, {phase}", block, phase, alone)
                    if alone.streams:
                        raise ProofError(f"{where}, {phase}: ends before {alone.streams[0]} does.")
                phase = WEIGHTS if chunk.weights else BACKWARD
                _prove_pass(f"{where}, last {phase}", chunk.last, phase, in_flight)
                _prove_parts(where, chunk)
                if chunk.overlapped is not None:
                    prove_overlapped(f"{where}, overlapped", chunk, stage[1 - number])
            _prove_firsts(step, place)
            _prove_end(f"stage {place}", [row[place] for row in step.end], in_flight)
        _prove_meetings(step)
        _prove_copies(step)
    for place, stage in enumerate(cycle[-1].stages):
        for number, chunk in enumerate(stage):
            _prove_sums(cycle[-1], place, number, chunk)


def _prove_order(step: Program) -> None:
    """Prove that every pass can be executed, once, forward before backward."""
    computed = [call for call in calls(step.schedule) if call.computes]
    each_pass = (half for call in computed for half in call.halves)
    done = {(call.place, call.chunk, call.microbatch, call.phase) for call in each_pass}
    done |= {(call.place, *call.partner, WEIGHTS) for call in computed if call.phase == OVERLAPPED}
    phases = PASSES if step.schedule.splits_backward else PASSES[:2]
    for place, stream in enumerate(step.schedule.streams):
        where = f"rank {place} of the pipeline"
        follows: dict[tuple[int, int], int] = {}  # the index of the pass that comes next
        for each in stream:
            if not isinstance(each, Work):
                continue
            phase, key = phase_of(each), (each.chunk, each.microbatch)
            name = f"{phase} {each.microbatch} of chunk {each.chunk}"
            if phases[follows.get(key, 0) :][:1] != (phase,):
                raise ProofError(f"{where}: {name} has no pass before it, or two.", place)
            follows[key] = follows.get(key, 0) + 1
            if (place, *key, phase) not in done:
                raise ProofError(f"{where} waits forever, for {name}.", place)
        lost = sum(next_ < len(phases) for next_ in follows.values())
        if lost:
            raise ProofError(f"{where}: {lost} microbatches have no pass back.", place)


def _prove_pass(
    where: str, block: Block, phase: str, in_flight: InFlight, kept: bool = False
) -> None:
    """Prove a pass, and leave in `in_flight` what it does not wait for; kept: it keeps the weights that it gathers."""
    first, *others = (list(map(_posted, variant.instructions)) for variant in block.variants)
    for other in others:
        if list(filter(None, other)) != list(filter(None, first)):
            raise ProofError(f"{where}: ranks of a stage post different instructions.")
    for what in block.variants[0].instructions:
        in_flight.follow(where, what)
    for variant, prices in zip(block.variants, block.prices, strict=True):
        _prove_work(where, variant.instructions, phase, len(prices.forward))
        if not kept and any(gathers(op) for op in variant.instructions):
            _prove_weights(where, variant.instructions, prices.weights_read)


def _prove_firsts(step: Program, place: int) -> None:
    """Prove the first forward passes of a rank, after which all weights are gathered, in the order of their chunks.

    One may gather weights for those that follow; no layer needs its weights before they have been waited for.
    """
    alone, coming = InFlight(), dict[str, Collective]()
    for number, chunk in enumerate(step.stages[place]):
        if chunk.first is None:
            continue
        where = f"stage {number * len(step.stages) + place}, first {FORWARD}"
        _prove_pass(where, chunk.first, FORWARD, alone, kept=True)
        block, before = chunk.first, coming
        for variant, prices in zip(block.variants, block.prices, strict=True):
            coming = _prove_first(where, number, variant.instructions, prices, dict(before))
    if alone.streams:
        raise ProofError(f"stage {place}: the first passes end before {alone.streams[0]} does.")


def _prove_first(
    where: str,
    number: int,
    instructions: Iterable[Instruction],
    prices: Prices,
    coming: dict[str, Collective],
) -> dict[str, Collective]:
    """Prove that layers of a chunk's first pass have their weights; return what is still gathered, by key."""
    there: set[int] = set()
    for op in instructions:
        if gathers(op):
            coming[op.key] = op
        elif isinstance(op, Wait) and op.key in coming:
            there.update(summed_layers(coming.pop(op.key)))
        elif isinstance(op, Compute) and prices.weights_read[op.layer]:
            gathers_of = [gather for gather in coming.values() if gather.layers[0] == number]
            late = any(summed_layers(each)[0] <= op.layer for each in gathers_of)  # or tied ones
            if late or (prices.weights[op.layer] and op.layer not in there):
                raise ProofError(f"{where}: layer {op.layer} computes without its weights.")
    return coming


def _prove_parts(where: str, chunk: Chunk) -> None:
    """Prove that the layers whose backward leaves out weight gradients are those that compute them apart."""
    blocks = (chunk.backward, chunk.weights or chunk.last, chunk.last)
    wanted, *phases = (
        {op.layer for op in block.variants[0].instructions if _is(op, phase)}
        for block, phase in zip(blocks, ("input_grad", "weight_grad", "weight_grad"), strict=True)
    )
    for layers in phases:
        if layers != wanted:
            wrong = min(layers ^ wanted)
            raise ProofError(f"{where}: layer {wrong} has no weight gradients, or has them twice.")


def _is(op: Instruction, phase: str) -> TypeGuard[Compute]:
    return isinstance(op, Compute) and BLOCKS.get(op.phase, op.phase) == phase


def _posted(op: Instruction) -> tuple[object, ...]:
    """Return what ranks have to do alike, each in its own part: collectives and moves of other streams, and waits."""
    if isinstance(op, Collective) and op.stream:
        return (op.stream, op.kind, op.group, op.goal, op.elements)
    if isinstance(op, Transfer):
        return (op.stream, op.kind)
    return (op.stream, bool(op.key)) if isinstance(op, Wait) else ()


def _prove_work(where: str, instructions: Iterable[Instruction], phase: str, layers: int) -> None:
    """Prove that a pass computes every layer in order, and posts gradients that are complete.

    A pass for weight gradients computes some layers, the others have theirs from the pass before it.
    """
    phases, order = {phase}, list(range(layers)) if phase == FORWARD else list(range(layers))[::-1]
    if phase == BACKWARD:
        phases.add("input_grad")
    elif phase == WEIGHTS:
        instructions, phases = list(instructions), {"weight_grad"}
        there = {op.layer for op in instructions if isinstance(op, Compute)}
        order = [layer for layer in order if layer in there]
    done: list[int] = []
    later = set[int]()  # layers whose weights have gradients after this pass only
    for what in instructions:
        if isinstance(what, Compute) and BLOCKS.get(what.phase, what.phase) in phases:
            later |= {what.layer} if _is(what, "input_grad") else set()
            if what.phase not in BLOCKS or done[-1:] != [what.layer]:
                done.append(what.layer)
        elif isinstance(what, Compute) and what.layer in done:
            raise ProofError(f"{where}: layer {what.layer} is repeated after its backward pass.")
        elif sums(what):
            early = set(summed_layers(what)).intersection(order) - (set(done) - later)
            if early:
                raise ProofError(f"{where}: posts gradients of layers {sorted(early)} too early.")
    if done != order:
        raise ProofError(
            f"{where}: computes layers {done}; every layer once, in order, is {order}."
        )


def _prove_weights(where: str, instructions: Sequence[Instruction], read: Sequence[int]) -> None:
    """Prove that layers have the weights that are gathered for them, and that few are gathered ahead."""
    visits = [op.layer for op in instructions if isinstance(op, Compute) and read[op.layer]]
    to_come = deque(visits)
    coming: dict[str, Collective] = {}  # by key
    # The unit whose layers compute, and the units whose weights are here.
    here, has = range(0), set[int]()
    for what in instructions:
        if gathers(what):
            coming[what.key] = what
            units = {range(*gather.layers[1:]) for gather in coming.values()}
            held = units | ({here} if to_come and to_come[0] in here else set())
            if len(held) > AHEAD:
                raise ProofError(f"{where}: has the weights of {len(held)} units at once.")
        elif isinstance(what, Wait) and what.key in coming:
            gathered = coming.pop(what.key)
            unit = range(*gathered.layers[1:])
            has = (has if unit == here else set()) | {*summed_layers(gathered)}
            here = unit
        elif isinstance(what, Compute) and read[what.layer]:
            to_come.popleft()
            if what.layer not in has:
                raise ProofError(f"{where}: layer {what.layer} computes without its weights.")


def _prove_end(where: str, after: Sequence[Instruction | None], in_flight: InFlight) -> None:
    """Prove that a stage updates once, with complete sums, and leaves nothing in flight."""
    if sum(isinstance(op, Update) for op in after) != 1:
        raise ProofError(f"{where}: a step updates the weights once.")
    for op in after:
        if isinstance(op, Update) and in_flight.sums:
            raise ProofError(f"{where}: updates weights with gradients that are being summed.")
        in_flight.follow(where, op)
    if in_flight.streams:
        raise ProofError(f"{where}: the step ends before {', '.join(in_flight.streams)} does.")


def _prove_meetings(step: Program) -> None:
    """Prove that stages meet, and swap sums, with stages that do so too."""
    for row in step.end:
        if len({isinstance(op, Barrier) for op in row}) > 1:
            raise ProofError("some stages meet and others do not: they wait forever.")
        for place, op in enumerate(row):
            if isinstance(op, PairAllreduce) and any(row[other] != op for other in op.places):
                raise ProofError(f"stage {place}: {op.name} is swapped with a stage that does not.")


def _prove_copies(step: Program) -> None:
    """Prove that ranks with the same stages of two copies of a network sum their gradients, once, before the update."""
    if step.schedule.directions == 1:
        return
    last = len(step.stages) - 1
    for place in range(len(step.stages)):
        instructions = [row[place] for row in step.end]
        updates = (index for index, op in enumerate(instructions) if isinstance(op, Update))
        before = instructions[: next(updates)]
        pairs = [op for op in before if isinstance(op, PairAllreduce) and last - place in op.places]
        if len(pairs) != 1:
            raise ProofError(
                f"stage {place}: sums its gradients {len(pairs)} times with the other copy of the network."
            )


def _prove_sums(step: Program, place: int, number: int, chunk: Chunk) -> None:
    """Prove that gradients are summed over all replicas once, and weights gathered that are updated in parts."""
    where = f"stage {number * len(step.stages) + place}"
    weights = chunk.last.prices[0].weights
    after = [row[place] for row in step.end]
    collectives = [op for op in after if isinstance(op, Collective) and op.layers[:1] == (number,)]
    # What a repeated microbatch sums, and the last one.
    before = (chunk.backward, chunk.weights) if chunk.weights else (chunk.backward,)
    after_it = (chunk.backward, chunk.last) if chunk.weights else (chunk.last,)
    every, last = (
        [op for block in passes for op in block.variants[0].instructions if sums(op)]
        for passes in (before, after_it)
    )
    total = [*last, *filter(sums, collectives)]
    for exchanged in (every, total):
        _prove_once(f"{where}: sums", exchanged, weights, step.groups)
    groups = {op.group: step.groups[op.group] for op in total}
    inside = prod(step.shape[1:])  # ranks of a replica
    over = prod(group.size for group in groups.values() if group.stride >= inside)
    if any(weights) and over % step.shape[0]:
        raise ProofError(f"{where}: replicas never sum their gradients, or not all of them.")
    ahead = any(gathers(op) for op in chunk.forward.variants[0].instructions)
    if not ahead and any(op.goal == SCATTER for op in total):
        firsts = [each.first.variants[0].instructions for each in step.stages[place] if each.first]
        gathered = (op for first in firsts for op in first if gathers(op))
        all_gathers = [
            *filter(gathers, collectives),
            *(op for op in gathered if op.layers[0] == number),
        ]
        _prove_once(f"{where}: gathers", all_gathers, weights, step.groups, required=True)


def _prove_once(
    what: str,
    collectives: Sequence[Collective],
    weights: Floats,
    groups: Mapping[str, Group],
    required: bool = False,
) -> None:
    """Prove that collectives, if there are any, have every layer with weights once, in each kind of group.

    A layer is in one of the groups of replicas that do the same, as ranks may hold different parts of others. Some
    gradients of a layer may travel with their indices, and others without.
    """
    kinds: dict[tuple[object, ...], list[Collective]] = (
        {(): []} if required and not collectives else {}
    )
    for op in collectives:
        group = groups[op.group]
        axis = min(len(group.shape) - group.axis, AXES)
        kinds.setdefault((axis, op.goal, op.content), []).append(op)
    for members in kinds.values():
        count = Counter(layer for member in members for layer in summed_layers(member))
        over = " and ".join(dict.fromkeys(member.group for member in members)) or "no group"
        wrong = {
            layer: count[layer]
            for layer, weight in enumerate(weights)
            if weight and count[layer] != 1
        }
        for layer, times in wrong.items():
            raise ProofError(f"{what} layer {layer} {times} times over {over}.")
