"""What differs from step to step and from rank to rank: jitter, batches that come late, checkpoints."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

from lib_dlhpc.arrays import Floats
from lib_dlhpc.simulation.input import Supply

# progress(simulated seconds, messages delivered, messages in all); return False to cancel.
StepProgress: TypeAlias = Callable[[float, int, int], object]


@dataclass(frozen=True, eq=False)
class Conditions:
    """The conditions of each step on each rank."""

    factor: Floats  # (steps, ranks) of the compute time: jitter over speed
    fetch: Floats  # (steps, ranks): s to fetch the next batch
    saving: Floats  # (steps,): s in which all ranks are idle for a checkpoint after the step
    speed: Floats  # (ranks,) of what a rank combines; 1 is normal
    supply: Supply | None = None  # readers that decide when a batch is ready, in place of `fetch`

    @property
    def steps(self) -> int:
        """How many training steps there are."""
        return len(self.factor)

    @property
    def ranks(self) -> int:
        """How many ranks take part."""
        return self.factor.shape[1]

    def started(self, step: int, start: Any, rank: int | None = None) -> None:
        """Note when a step begins: of one rank, or of each."""
        if self.supply is not None:
            self.supply.started(step, start, rank)

    def coming(self, step: int, start: Any, rank: int | None = None) -> tuple[Any, Any]:
        """Return from when to when the next batch is fetched: of one rank, or of each; start: of this step."""
        ranks = slice(None) if rank is None else rank
        if self.supply is None:
            return start, start + self.fetch[step, ranks]
        ready = self.supply.available(step, rank)
        return self.supply.begun[step + 1, ranks], ready
