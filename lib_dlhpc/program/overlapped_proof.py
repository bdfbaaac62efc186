"""Proof of two passes that overlap: they are the passes of their chunks, and each waits for its own exchanges."""

from collections import Counter
from collections.abc import Container, Iterable, Iterator, Sequence
from itertools import chain

from lib_dlhpc.program.calls import BACKWARD, FORWARD
from lib_dlhpc.program.in_flight import InFlight
from lib_dlhpc.program.instructions import Collective, Compute, Instruction, Wait
from lib_dlhpc.program.program import Block, Chunk
from lib_dlhpc.schedules.checks import ProofError


def prove_overlapped(where: str, chunk: Chunk, other: Chunk) -> None:
    """Prove the forward pass of a chunk that overlaps with all of a backward pass of the other.

    Raises ProofError where they compute or exchange other than alone, or a pass computes before its exchange is done.
    """
    block = chunk.overlapped
    assert block is not None
    in_flight = InFlight()
    for op in block.variants[0].instructions:
        in_flight.follow(where, op)
    if in_flight.streams:
        raise ProofError(f"{where}: ends before {in_flight.streams[0]} does.")
    for variant, template in enumerate(block.variants):
        alone = [
            single.variants[variant].instructions if single is not None else ()
            for single in (chunk.forward, other.backward, other.weights)
        ]
        both = template.instructions
        if [*_by_pass(both, block.ahead)] != [
            [*filter(_computes, instructions)] for instructions in alone
        ]:
            raise ProofError(
                f"{where}: computes other layers than its passes, or in another order."
            )
        _prove_weights_follow(where, both)
        if _exchanged(both) != sum(map(_exchanged, alone), Counter()):
            raise ProofError(f"{where}: exchanges more or less than its passes.")
        _prove_waits(where, block, both, _inside(chain.from_iterable(alone)))


def _computes(op: Instruction) -> bool:
    return isinstance(op, Compute)


def _by_pass(both: Iterable[Instruction], ahead: int) -> Iterator[list[Instruction]]:
    """Yield what is computed forward, backward, and of weight gradients, in order; ahead: layers of the first."""
    computes = [op for op in both if isinstance(op, Compute)]
    behind = [op._replace(layer=op.layer - ahead) for op in computes if op.layer >= ahead]
    yield [op for op in computes if op.layer < ahead]
    yield [op for op in behind if op.phase != "weight_grad"]
    yield [op for op in behind if op.phase == "weight_grad"]


def _prove_weights_follow(where: str, both: Iterable[Instruction]) -> None:
    done = set[int]()
    for op in both:
        if isinstance(op, Compute) and op.phase == "weight_grad" and op.layer not in done:
            raise ProofError(f"{where}: layer {op.layer} has no gradient of its output yet.")
        if isinstance(op, Compute) and op.phase.startswith("input_grad"):
            done.add(op.layer)


def _exchanged(instructions: Sequence[Instruction]) -> Counter[tuple[object, ...]]:
    """Return what is exchanged, and how often."""
    return Counter(_what(op) for op in instructions if isinstance(op, Collective))


def _what(collective: Collective) -> tuple[object, ...]:
    return (
        collective.kind,
        collective.group,
        collective.goal,
        collective.elements,
        collective.content,
    )


def _inside(instructions: Iterable[Instruction]) -> set[tuple[object, ...]]:
    """Return the blocking exchanges of a pass, those on the stream of computation."""
    collectives = [op for op in instructions if isinstance(op, Collective)]
    posted = {_what(collective) for collective in collectives if collective.stream}
    return {_what(collective) for collective in collectives if not collective.stream} - posted


def _prove_waits(
    where: str, block: Block, both: Iterable[Instruction], inside: Container[tuple[object, ...]]
) -> None:
    """Prove that a pass computes nothing while an exchange is in flight that follows what it computed before.

    Keys of what a pass posts begin with its name.
    """
    coming = dict[str, set[str]]()
    for op in both:
        if isinstance(op, Collective) and op.stream and _what(op) in inside:
            coming.setdefault(op.key.split()[0], set()).add(op.key)
        elif isinstance(op, Wait) and op.key:
            coming.get(op.key.split()[0], set()).discard(op.key)
        elif isinstance(op, Compute) and op.phase != "weight_grad":
            name = FORWARD if op.layer < block.ahead else BACKWARD
            if coming.get(name):
                raise ProofError(f"{where}: layer {op.layer} computes before {name} has arrived.")
