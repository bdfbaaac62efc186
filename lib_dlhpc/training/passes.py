"""A pass: what forward saves of one microbatch for backward."""

from dataclasses import dataclass, field

from lib_dlhpc.layers.base.saved import Array, Saved
from lib_dlhpc.training.activation_offload import Offloaded


@dataclass
class Pass:
    """The saved state of one microbatch; several may be in flight."""

    saved: list[Saved]  # of each layer
    ready: bool = False  # for backward
    step: int = 0
    first_sample: int = 0
    held: dict[int, dict[str, Array]] = field(
        default_factory=dict
    )  # inputs of each recomputed segment
    offloaded: Offloaded = field(default_factory=Offloaded)  # what is offloaded

    def clear(self) -> None:
        """Discard what is in memory."""
        self.ready = False
        self.held.clear()
        for saved in self.saved:
            saved.values.clear()
