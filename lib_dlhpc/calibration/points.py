"""A measured point: N readers do the same work concurrently, several times."""

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

COLD, WARM = "cold", "warm"
# Metadata operations of one sample.
OPERATIONS = {"stat": 1, "open": 3, "file": 3, "random": 0, "sequential": 0, "write": 0}
WHAT = {
    "stat": "stat of a file",
    "open": "stat, open and close of a file",
    "file": "stat, open, read and close of a file",
    "random": "a read at a random place of a packed partition",
    "sequential": "a read of the next part of a packed partition",
    "write": "the next part of a new file, flushed at the end",
}


@dataclass(frozen=True)
class Point:
    """The time of `readers` concurrent processes for some samples of `size` bytes, for each repeat."""

    what: str  # a key of WHAT
    state: str  # cold: read from the device; warm: from the page cache
    readers: int
    size: int  # B a sample
    seconds: tuple[float, ...]  # from the common start to the slowest reader's end
    samples: tuple[int, ...]  # of all readers together
    others: tuple[float, ...] = ()  # cores busy with other processes; (): unknown
    dropped: str = ""  # how the page cache was dropped before each repeat

    @property
    def operations(self) -> int:
        """Metadata operations a sample."""
        return OPERATIONS[self.what]

    @property
    def reads(self) -> int:
        """Calls of read() a sample."""
        return int(self.what in ("file", "random", "sequential"))

    @property
    def bytes(self) -> int:
        """B read or written per sample."""
        return 0 if self.what in ("stat", "open") else self.size

    @property
    def packed(self) -> bool:
        """Whether samples are parts of a few large files."""
        return self.what in ("random", "sequential")

    @property
    def each(self) -> np.ndarray:
        """Seconds a sample, by repeat."""
        return np.asarray(self.seconds) / np.asarray(self.samples)

    @property
    def calm(self) -> np.ndarray:
        """Seconds a sample of the calmer half of the repeats: those with the least load by other processes."""
        if not self.others:
            return self.each
        most = np.median(self.others)
        return self.each[np.asarray(self.others) <= most]

    @property
    def others_load(self) -> float:
        """Cores busy with other processes in the calmer half of the repeats; 0 if unknown."""
        calm = [load for load in self.others if load <= np.median(self.others)]
        return float(np.mean(calm)) if calm else 0.0

    def quantile(self, share: float) -> float:
        """Return a quantile of the seconds a sample over the calmer repeats."""
        return float(np.quantile(self.calm, share))


def as_dicts(points: Iterable[Point]) -> list[dict[str, Any]]:
    """Return the points as plain tables, each with its 10%, 50% and 90% quantiles."""
    return [
        {
            **asdict(point),
            "operations": point.operations,
            "bytes": point.bytes,
            "seconds_each": {f"p{round(100 * q)}": point.quantile(q) for q in (0.1, 0.5, 0.9)},
        }
        for point in points
    ]
