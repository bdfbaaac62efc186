"""A pass: what one microbatch leaves on its way forward for its way back."""

from dataclasses import dataclass, field

from lib_dlhpc.training.aside import Away
from lib_dlhpc.training.layers.kept import Array, Kept


@dataclass
class Pass:
    """Several of one network may be under way, each with its own."""

    kept: list[Kept]  # of each layer
    ready: bool = False  # to go back
    step: int = 0
    first_sample: int = 0
    held: dict[int, dict[str, Array]] = field(default_factory=dict)  # what each segment reads
    away: Away = field(default_factory=Away)  # what of all this is on disk

    def clear(self) -> None:
        """Give up what is in memory."""
        self.ready = False
        self.held.clear()
        for kept in self.kept:
            kept.values.clear()
