"""Passes of one microbatch: the order of their instructions, and what forward saves for backward."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from lib_dlhpc.layers.base.saved import Array, Saved
from lib_dlhpc.parallel.data_parallel import STREAM
from lib_dlhpc.parallel.recomputation import repeated
from lib_dlhpc.program import Collective, Compute, Instruction, Wait
from lib_dlhpc.program.instructions import whole_layers
from lib_dlhpc.spec.model import Model
from lib_dlhpc.training.activation_offload import Offloaded


class Order(NamedTuple):
    """The instructions of a part of the network; `last` is the pass that completes the gradients."""

    forward: Sequence[Instruction]
    backward: Sequence[Instruction]
    last: Sequence[Instruction]
    weights: Sequence[Instruction] | None = None  # where backward leaves out weight gradients
    first: Sequence[Instruction] | None = None  # the first forward pass, if it gathers weights

    @property
    def early(self) -> frozenset[int]:
        """The layers that compute all gradients in backward, where others leave those of weights to a later pass."""
        computed = (op for op in self.backward if isinstance(op, Compute))
        layers = (op.layer for op in computed if op.phase == "backward")
        return frozenset(layers) if self.weights is not None else frozenset()


def executed(
    model: Model, instructions: Iterable[Instruction | None], waits: bool = False
) -> list[Instruction]:
    """Return the instructions of a pass that the trainer executes one by one; waits: include waits for weights.

    Layers do their own exchanges within a pass, and wait for their own weights where these are gathered.
    """
    instructions = list(whole_layers(instructions))
    skipped = [layer.traits.stand_in and not layer.traits.message for layer in model.layers]
    return [
        op
        for op in instructions
        if (isinstance(op, Compute) and not skipped[op.layer])
        or (isinstance(op, Collective) and op.stream and op.layers)
        or (isinstance(op, Wait) and (not op.key or (waits and op.stream == STREAM)))
    ]


def layer_by_layer(model: Model, recompute: str) -> Order:
    """Return the passes of a network that is not partitioned."""
    count = len(model.layers)
    back: list[Instruction] = [Compute(index, "backward") for index in reversed(range(count))]
    back = executed(model, repeated(back, model, recompute))
    forward = [Compute(index, "forward") for index in range(count)]
    return Order(executed(model, forward), back, back)


@dataclass
class Pass:
    """The saved state of one microbatch; several may be in flight."""

    saved: list[Saved]  # of each layer
    ready: bool = False  # for backward
    weights_pending: bool = False  # after it, for weight gradients
    step: int = 0
    first_sample: int = 0
    # Inputs of each recomputed segment.
    held: dict[int, dict[str, Array]] = field(default_factory=dict)
    again: dict[str, Array] = field(default_factory=dict)  # outputs of the one being recomputed
    # Output gradients of layers whose weight gradients are still to be computed.
    later: dict[int, Array | None] = field(default_factory=dict)
    offloaded: Offloaded = field(default_factory=Offloaded)  # what is offloaded

    def clear(self) -> None:
        """Discard what is in memory."""
        self.ready = self.weights_pending = False
        self.held.clear()
        self.again.clear()
        self.later.clear()
        for saved in self.saved:
            saved.values.clear()
