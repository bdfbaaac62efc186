"""Strategy: how the run is spread over devices and how gradients are exchanged."""

from dataclasses import dataclass

import numpy as np

from lib_dlhpc.spec.errors import SpecError
from lib_dlhpc.spec.schema import choice, flag, number, whole

ALLREDUCES = (
    "ring",
    "recursive_doubling",
    "rabenseifner",
    "binomial",
    "hierarchical",
    "torus_2d",
    "parameter_server",
)
UPDATES = ("synchronous", "asynchronous", "local")
OPTIMIZERS = ("sgd", "momentum", "lars", "adam", "lamb")
TRAINING_PRECISIONS = ("fp64", "fp32", "tf32", "fp16", "bf16")


@dataclass(frozen=True)
class Strategy:
    """Which devices, what batch, which numbers, which exchange. `batch` is per device.

    update: synchronous devices exchange gradients every step; asynchronous ones push theirs to the
    nodes that hold the parameters and pull what has come of them, none waiting for the others; local
    ones take `local_steps` steps alone, then average their weights. staleness: by how many steps an
    asynchronous device may be ahead of the slowest (Ho et al. 2013, "More effective distributed ML via
    a stale synchronous parallel parameter server").
    """

    nodes: int = whole(default=1)
    devices_per_node: int = whole(default=0, least=0)  # 0: all of the node
    batch: int = whole(default=32)
    precision: str = choice(TRAINING_PRECISIONS, default="fp32")
    allreduce: str = choice(ALLREDUCES, default="ring")
    overlap: bool = flag(default=True)
    bucket: float = number("B", default=25e6, positive=True)
    optimizer: str = choice(OPTIMIZERS, default="momentum")
    data: int = whole(default=0, least=0)  # 0: whatever the other splits leave
    tensor: int = whole(default=1)
    pipeline: int = whole(default=1)
    spatial: int = whole(default=1)
    update: str = choice(UPDATES, default="synchronous")
    local_steps: int = whole(default=1)  # between two averages of the weights, with local updates
    staleness: int = whole(default=0, least=0)  # with asynchronous updates; 0: no bound
    servers: int = whole(default=1)  # nodes, each with an equal part; with asynchronous updates

    @property
    def overlaps(self) -> bool:
        """Whether backward hides the exchange: only the gradients of a synchronous step can leave early."""
        return self.overlap and self.update == "synchronous"


def check_update(strategy: Strategy) -> None:
    """Raise SpecError for a number that only another way to update has a use for."""
    for name, none, update in (
        ("local_steps", 1, "local"),
        ("staleness", 0, "asynchronous"),
        ("servers", 1, "asynchronous"),
    ):
        value = getattr(strategy, name)
        if strategy.update != update and np.any(np.not_equal(value, none)):
            raise SpecError(
                f"strategy.{name} = {np.max(value)}: only strategy.update = {update!r} has a use for it;"
                f" with {strategy.update!r} the legal value is {none}."
            )


def exchange_in_words(strategy: Strategy) -> str:
    """Say what the devices of a scalar strategy exchange, and how."""
    if strategy.update == "asynchronous":
        several = "s" * (strategy.servers > 1)
        bound = f", at most {strategy.staleness} steps ahead" * bool(strategy.staleness)
        return f"asynchronous with {strategy.servers} server{several}{bound}"
    every = f" of weights, every {strategy.local_steps} steps" * (strategy.update == "local")
    return f"{strategy.allreduce}{every}"
