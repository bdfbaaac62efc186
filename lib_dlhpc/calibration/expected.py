"""The predicted time of a point on a tier: the formula that predicts a run, for one sample."""

from typing import Protocol

from lib_dlhpc.costs.storage_reads import limits
from lib_dlhpc.spec.experiment import Experiment
from lib_dlhpc.spec.machine import StorageTier
from lib_dlhpc.spec.schema import to_table

SAMPLES = 1000  # of the data set; the mean does not depend on it


class ReadRequest(Protocol):
    """The read that is predicted: a Setting or a Point."""

    @property
    def size(self) -> int:
        """B a sample."""

    @property
    def readers(self) -> int:
        """Processes that read at the same time."""

    @property
    def packed(self) -> bool:
        """Whether samples are parts of a few large files."""


def expected(tier: StorageTier, asked: ReadRequest) -> float:
    """Return the seconds a sample for all readers together on the tier."""
    return float(max(limits(reading(tier, asked)).values()))


def reading(tier: StorageTier, asked: ReadRequest) -> Experiment:
    """Return an experiment that reads samples of that size from the tier, as files or from packed partitions."""
    table = to_table(tier) | {"name": "tier", "scope": "node"}
    return Experiment(
        model={"family": "mlp", "widths": [1, 1]},
        dataset={
            "name": "imagenet",
            "samples": SAMPLES,
            "files": SAMPLES,
            "bytes": float(SAMPLES * asked.size),
        },
        machine={"name": "laptop", "storage": {"tier": table}},
        strategy={"devices_per_node": 1, "batch": 1},
        storage={
            "tier": "tier",
            "format": "packed" if asked.packed else "files",
            "workers": asked.readers,
        },
    )
