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
    for instruction in block.variants[0].instructions:
        in_flight.follow(where, instruction)
    if in_flight.streams:
        raise ProofError(f"{where}: ends before {in_flight.streams[0]} does.")
    for variant, template in enumerate(block.variants):
        alone = [
            one.variants[variant].instructions if one is not None else ()
            for one in (chunk.forward, other.backward, other.weights)
        ]
        both = template.instructions
        if [*_by_pass(both, block.ahead)] != [[*filter(_computes, each)] for each in alone]:
            raise ProofError(
                f"{where}: computes other layers than its passes, or in another order."
            )
        _prove_weights_follow(where, both)
        if _exchanged(both) != sum(map(_exchanged, alone), Counter()):
            raise ProofError(f"{where}: exchanges more or less than its passes.")
        _prove_waits(where, block, both, _inside(chain.from_iterable(alone)))


def _computes(each: Instruction) -> bool:
    return isinstance(each, Compute)


def _by_pass(both: Iterable[Instruction], ahead: int) -> Iterator[list[Instruction]]:
    """Yield what is computed forward, backward, and of weight gradients, in order; ahead: layers of the first."""
    found = [each for each in both if isinstance(each, Compute)]
    behind = [each._replace(layer=each.layer - ahead) for each in found if each.layer >= ahead]
    yield [each for each in found if each.layer < ahead]
    yield [each for each in behind if each.phase != "weight_grad"]
    yield [each for each in behind if each.phase == "weight_grad"]


def _prove_weights_follow(where: str, both: Iterable[Instruction]) -> None:
    done = set[int]()
    for each in both:
        if isinstance(each, Compute) and each.phase == "weight_grad" and each.layer not in done:
            raise ProofError(f"{where}: layer {each.layer} has no gradient of its output yet.")
        if isinstance(each, Compute) and each.phase.startswith("input_grad"):
            done.add(each.layer)


def _exchanged(instructions: Sequence[Instruction]) -> Counter[tuple[object, ...]]:
    """Return what is exchanged, and how often."""
    return Counter(
        _what(instruction) for instruction in instructions if isinstance(instruction, Collective)
    )


def _what(each: Collective) -> tuple[object, ...]:
    return each.kind, each.group, each.goal, each.elements, each.of


def _inside(instructions: Iterable[Instruction]) -> set[tuple[object, ...]]:
    """Return the blocking exchanges of a pass, those on the stream of computation."""
    found = [instruction for instruction in instructions if isinstance(instruction, Collective)]
    posted = {_what(each) for each in found if each.stream}
    return {_what(each) for each in found if not each.stream} - posted


def _prove_waits(
    where: str, block: Block, both: Iterable[Instruction], inside: Container[tuple[object, ...]]
) -> None:
    """Prove that a pass computes nothing while an exchange is in flight that follows what it computed before.

    Keys of what a pass posts begin with its name.
    """
    coming = dict[str, set[str]]()
    for each in both:
        if isinstance(each, Collective) and each.stream and _what(each) in inside:
            coming.setdefault(each.key.split()[0], set()).add(each.key)
        elif isinstance(each, Wait) and each.key:
            coming.get(each.key.split()[0], set()).discard(each.key)
        elif isinstance(each, Compute) and each.phase != "weight_grad":
            name = FORWARD if each.layer < block.ahead else BACKWARD
            if coming.get(name):
                raise ProofError(f"{where}: layer {each.layer} computes before {name} has arrived.")
