"""Strategy: how the run is spread over devices and how gradients are exchanged."""

from dataclasses import dataclass

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
OPTIMIZERS = ("sgd", "momentum", "lars", "adam", "lamb")
TRAINING_PRECISIONS = ("fp64", "fp32", "tf32", "fp16", "bf16")


@dataclass(frozen=True)
class Strategy:
    """Which devices, what batch, which numbers, which exchange. `batch` is per device."""

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
