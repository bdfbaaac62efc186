"""The instructions of a training step.

An instruction belongs to a stream. Those of the compute stream ("") follow one another. An instruction of another
stream is posted when the compute stream reaches it: it starts when the instructions before it on its own stream
are done, while the compute stream continues. `Wait` makes the compute stream wait for it.

Sizes are in elements of one sample of a microbatch, or of weights: one block serves every batch and precision.
"""

from collections.abc import Iterable, Iterator
from typing import NamedTuple, TypeAlias, TypeGuard

from lib_dlhpc.schedules.network import Cost
from lib_dlhpc.spec.strategy import AUTO

# What the elements of a buffer are.
SAMPLES, WEIGHTS = "samples", "weights"  # activations of a sample; weights, or their gradients
WIRE, PAIRS = (
    "wire",
    "pairs",
)  # gradients in the format of the exchange; gradients with their indices
NARROW, WIDE = "narrow", "wide"  # activations in fp8, with scales; in fp32
GATHER, SCATTER = "allgather", "reduce_scatter"  # goals
SHIFT = "shift"  # each rank of a ring sends to the next


class Compute(NamedTuple):
    """Compute one layer; it takes as long as the layer's `phase`, "forward" or "backward".

    Where backward is computed in two parts, "input_grad" and "weight_grad". "forward_block", "backward_block" and
    "input_grad_block" are one of several equal parts of a layer, beside which ranks exchange.
    """

    layer: int
    phase: str


BLOCKS = {  # the phase that each is a part of
    "forward_block": "forward",
    "backward_block": "backward",
    "input_grad_block": "input_grad",
}


def whole_layers(instructions: "Iterable[Instruction | None]") -> "Iterator[Instruction | None]":
    """Yield the instructions, the blocks of a layer, which follow one another, as one computation."""
    before: Compute | None = None
    for instruction in instructions:
        if not isinstance(instruction, Compute):
            yield instruction
            continue
        if instruction.phase not in BLOCKS or instruction != before:
            yield instruction._replace(phase=BLOCKS.get(instruction.phase, instruction.phase))
        before = instruction


class Collective(NamedTuple):
    """A collective of the ranks of a group."""

    kind: str  # what its time is counted as
    group: str
    goal: str  # a key of schedules.COLLECTIVES
    elements: float  # of the buffer; of an all-to-all: of one rank; of neighbors: received or sent, the more of the two
    content: str = SAMPLES  # what the elements are
    stream: str = ""
    key: str = ""  # by which a Wait of the same block names it
    algorithm: str = AUTO
    label: str = ""  # of its row
    ranked: bool = False  # ranks leave after their own last message, not all together
    # Messages between neighbors: from, to (places in the group), elements.
    pairs: tuple[tuple[int, int, float], ...] = ()
    layers: tuple[int, ...] = ()  # of weights: chunk, first layer, one past the last
    omits: tuple[int, ...] = ()  # layers between these that it leaves to another group


class Transfer(NamedTuple):
    """Transfer `seconds` worth of data: device to host or storage, both directions at once, or within memory."""

    kind: str
    stream: str
    seconds: float
    bytes: float  # that leave or enter the device
    key: str = ""
    label: str = ""  # of its row


class Wait(NamedTuple):
    """Wait for the posted instruction of this key in the block; "": for all that is on the stream."""

    kind: str
    stream: str
    key: str
    label: str  # what is waited for


class PairAllreduce(NamedTuple):
    """Ranks of two stages sum a buffer: each sends it to the other."""

    kind: str
    name: str
    bytes: float
    places: tuple[int, ...]  # of the stages in the pipeline
    cost: Cost
    label: str


class Update(NamedTuple):
    """Update the weights."""

    seconds: float


class Barrier(NamedTuple):
    """Wait for all ranks of all stages."""


Instruction: TypeAlias = Compute | Collective | Transfer | Wait | PairAllreduce | Update | Barrier


def sums(instruction: Instruction | None) -> TypeGuard[Collective]:
    """Return whether an instruction sums gradients, or weights, of some layers; ranks that gather pairs add them."""
    if not isinstance(instruction, Collective) or not instruction.layers:
        return False
    return instruction.goal != GATHER or instruction.content == PAIRS


def summed_layers(collective: Collective) -> list[int]:
    """Return the layers of which a collective has the gradients or the weights."""
    return [layer for layer in range(*collective.layers[1:]) if layer not in collective.omits]


def gathers(instruction: Instruction | None) -> TypeGuard[Collective]:
    """Return whether an instruction gathers the weights of some layers."""
    return (
        isinstance(instruction, Collective) and bool(instruction.layers) and not sums(instruction)
    )
