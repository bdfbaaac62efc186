"""How the ranks of a stage form groups."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from lib_dlhpc.arrays import Floats
from lib_dlhpc.schedules.network import Network


@dataclass(frozen=True, eq=False)
class Group:
    """How the ranks of a stage form groups of one kind: as an array of `shape`, members differ along `axis`."""

    shape: tuple[int, ...]
    axis: int
    network: Network

    @property
    def size(self) -> int:
        """Ranks of a group."""
        return self.shape[self.axis]

    @property
    def stride(self) -> int:
        """The distance in rank order between neighbors in a group."""
        return int(np.prod(self.shape[self.axis + 1 :]))

    @cached_property
    def rows(self) -> NDArray[np.int64]:
        """The ranks of each group within a stage, shape (groups, size)."""
        ranks = np.arange(int(np.prod(self.shape))).reshape(self.shape)
        return np.moveaxis(ranks, self.axis, -1).reshape(-1, self.size)

    @cached_property
    def group_of(self) -> NDArray[np.int64]:
        """The group of each rank of a stage, an index into `rows`."""
        number = np.empty(self.rows.size, np.int64)
        number[self.rows] = np.arange(len(self.rows))[:, None]
        return number

    def latest(self, values: Floats) -> Floats:
        """Return the largest value of each group in the place of all its members, in a shape that broadcasts."""
        if values.ndim == len(self.shape):
            return values.max(axis=self.axis, keepdims=True)
        everywhere = np.empty(self.shape)
        everywhere[...] = values.reshape(self.shape).max(axis=self.axis, keepdims=True)
        return everywhere.reshape(values.shape)
