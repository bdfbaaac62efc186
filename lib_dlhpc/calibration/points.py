"""A measured point: N readers did the same thing together, several times."""

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

COLD, WARM = "cold", "warm"
# What a reader does for one sample: metadata operations, whether it reads, in how many of its kinds.
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
    """What `readers` processes together needed for some samples of `size` bytes, once for each repeat."""

    what: str  # a key of WHAT
    state: str  # cold: read from the device; warm: from the page cache
    readers: int
    size: int  # B a sample
    seconds: tuple[float, ...]  # from the common start to the end of the slowest reader
    samples: tuple[int, ...]  # of all readers together
    others: tuple[float, ...] = ()  # cores that other processes kept busy meanwhile; (): not known
    dropped: str = ""  # how the page cache was emptied before each repeat

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
        """B a sample that are read or written."""
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
        """Seconds a sample of the calmer half of the repeats: those in which others had the least of the cores."""
        if not self.others:
            return self.each
        most = np.median(self.others)
        return self.each[np.asarray(self.others) <= most]

    @property
    def others_load(self) -> float:
        """Cores that other processes kept busy in the calmer half of the repeats; 0 where it is not known."""
        calm = [load for load in self.others if load <= np.median(self.others)]
        return float(np.mean(calm)) if calm else 0.0

    def quantile(self, share: float) -> float:
        """Return the seconds a sample that `share` of the calmer repeats stay below; 0.5 is their median."""
        return float(np.quantile(self.calm, share))


def as_dicts(points: Iterable[Point]) -> list[dict[str, Any]]:
    """Return the points as plain tables, each with its median and what 10 % and 90 % stay below."""
    return [
        {
            **asdict(point),
            "operations": point.operations,
            "bytes": point.bytes,
            "seconds_each": {f"p{round(100 * q)}": point.quantile(q) for q in (0.1, 0.5, 0.9)},
        }
        for point in points
    ]
