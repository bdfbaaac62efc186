"""Run: epochs, target, seed and checkpoints."""

from lib_dlhpc.records import dataclass
from lib_dlhpc.spec.schema import choice, number, whole

CHECKPOINTS = ("synchronous", "asynchronous", "multilevel", "incremental")
WRITERS = ("first", "all")


@dataclass(frozen=True)
class Run:
    """Length of the run, and its checkpoints."""

    epochs: float = number(default=1.0, positive=True)
    # accuracy to reach, such as 0.76; 0: none. Predicted are epochs to it (convergence/); a run trains `epochs`
    target: float = number(default=0.0, most=1.0)
    checkpoint_interval: float = number("s", default=0.0)  # 0: no checkpoints
    seed: int = whole(default=0, least=0)
    checkpoint: str = choice(CHECKPOINTS, default="synchronous")
    # The first node writes all, or each node its shard.
    checkpoint_writers: str = choice(WRITERS, default="first")
    changed: float = number(default=1.0, most=1.0)  # fraction of the state, for "incremental"
