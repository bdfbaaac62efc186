"""What instructions cost in a pass forward that overlaps with a pass backward through another part, on one device.

The layers of the part that passes forward come first, and behind them those of the part that passes backward.

The authors of DualPipe let 20 of an H800's 132 multiprocessors serve the messages of experts, and all others compute
(DeepSeek-AI 2024, arXiv 2412.19437, sections 3.2.1 and 3.2.2). So arithmetic has 112/132 of its rate for as long as
passes overlap; layers that memory limits lose nothing.
"""

from collections.abc import Mapping, Sequence
from functools import cached_property, lru_cache

import numpy as np

from lib_dlhpc.arrays import Floats
from lib_dlhpc.costs.instruction_prices import PartPrices
from lib_dlhpc.keyed import Keyed
from lib_dlhpc.program import Collective, Compute, Priced
from lib_dlhpc.program.pass_contention import Busy

SERVING, MULTIPROCESSORS = 20, 132
LEFT = 1 - SERVING / MULTIPROCESSORS  # of the rate of arithmetic


def overlapped_prices(ahead: PartPrices, back: PartPrices) -> "OverlappedPrices":
    """Return the cost of the instructions of two parts; equal ones are one."""
    return _overlapped_prices(Keyed((ahead, back), id(ahead), id(back)))


@lru_cache(maxsize=1024)
def _overlapped_prices(key: Keyed[tuple[PartPrices, PartPrices]]) -> "OverlappedPrices":
    return OverlappedPrices(*key.value)


class OverlappedPrices:
    """The cost of the instructions of two parts; see PartPrices."""

    def __init__(self, ahead: PartPrices, back: PartPrices) -> None:
        self.parts = ahead, back
        self.groups = ahead.groups
        self.first = len(ahead.weights)  # layer of the second
        self.forward, self.backward = self._joined("forward"), self._joined("backward")
        self.weights = self._joined("weights")

    def _joined(self, name: str) -> Floats:
        return np.concatenate([getattr(part, name) for part in self.parts], axis=-1)

    @cached_property
    def input_grad(self) -> Floats:
        """The seconds of backward without weight gradients."""
        return self._joined("input_grad")

    @cached_property
    def weight_grad(self) -> Floats:
        """The seconds of weight gradients."""
        return self._joined("weight_grad")

    @cached_property
    def forward_block(self) -> Floats:
        """The seconds of one of the blocks in which a layer is computed."""
        return self._joined("forward_block")

    @cached_property
    def backward_block(self) -> Floats:
        """The seconds of one of the blocks of its backward."""
        return self._joined("backward_block")

    @cached_property
    def input_grad_block(self) -> Floats:
        """The seconds of one of the blocks of its backward without weight gradients."""
        return self._joined("input_grad_block")

    @cached_property
    def seconds(self) -> Mapping[str, list[float]]:
        """The seconds of each layer, by phase."""
        ahead, back = (part.seconds for part in self.parts)
        return {phase: [*ahead[phase], *back[phase]] for phase in ahead}

    @cached_property
    def limited(self) -> Mapping[str, tuple[Floats, Floats]]:
        """The seconds of each layer that arithmetic and memory limit, of "forward" and "backward"."""
        ahead, back = (part.limited for part in self.parts)

        def joined(phase: str, limit: int) -> Floats:
            return np.concatenate([ahead[phase][limit], back[phase][limit]], axis=-1)

        return {phase: (joined(phase, 0), joined(phase, 1)) for phase in ahead}

    @property
    def weights_read(self) -> Sequence[int]:
        """Return the elements of the weights that each layer reads."""
        return [*self.parts[0].weights_read, *self.parts[1].weights_read]

    def bytes(self, what: Collective) -> float:
        """Return the bytes of the buffer of a collective."""
        return float(self.parts[0].bytes(what))

    def priced(self, what: Collective) -> Priced:
        """Return what a collective costs whose ranks start together."""
        return self.parts[0].priced(what)

    def busy(self, what: Collective, lane: int) -> Busy:
        """Return for how long a collective keeps links busy."""
        return self.parts[0].busy(what, lane)

    def work(self, what: Compute) -> tuple[float, float]:
        """Return the FLOP of a computation, and the bytes that it reads and writes."""
        behind = what.layer >= self.first
        return self.parts[behind].work(what._replace(layer=what.layer - behind * self.first))
