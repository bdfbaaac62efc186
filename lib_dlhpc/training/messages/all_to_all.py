"""AllToAll: positions travel to the ranks that hold their experts, and home again.

The ranks of an expert group hold an equal number of consecutive experts each. How many rows travel between two of them
is the router's choice: they exchange the counts first, then the rows (Lepikhin et al. 2020, "GShard", section 3.2;
without capacity, Gale et al. 2023, "MegaBlocks").
"""

from typing import Any

import numpy as np

from lib_dlhpc.layers.base.saved import Array, Saved
from lib_dlhpc.spec.model import Layer

GROUP = "experts"  # of communicators


class AllToAll:
    """The travel of layers/experts.py over ranks; rows are in the order of all experts, or of this rank's."""

    def __init__(self, layer: Layer) -> None:
        self.name = layer.name

    def begin(self, saved: Saved, counts: Array) -> Array:
        """Exchange how many rows travel; return how many arrive for each expert of this rank."""
        comm = _group(saved)
        leave = counts.reshape(comm.size, -1).astype(np.int64)
        arrive = np.empty_like(leave)
        with saved.context.communicates(f"counts {self.name}", leave.nbytes):
            comm.Alltoall(leave, arrive)
        ranks, local = leave.shape
        # Rows arrive rank by rank, and within a rank expert by expert; experts compute all of theirs at once.
        expert = np.repeat(np.tile(np.arange(local), ranks), arrive.ravel())
        saved.values["arrival"] = np.argsort(expert, kind="stable")
        saved.values["leave"], saved.values["arrive"] = leave.sum(axis=1), arrive.sum(axis=1)
        return arrive.sum(axis=0)

    def dispatch(self, saved: Saved, rows: Array) -> Array:
        """Return the rows of this rank's experts."""
        values = saved.values
        arrived = self._travel(saved, rows, values["leave"], values["arrive"])
        return arrived[values["arrival"]]

    def combine(self, saved: Saved, rows: Array) -> Array:
        """Return each row to the rank that it came from."""
        values = saved.values
        as_arrived = np.empty(rows.shape, rows.dtype)
        as_arrived[values["arrival"]] = rows
        return self._travel(saved, as_arrived, values["arrive"], values["leave"])

    def _travel(self, saved: Saved, rows: Array, leave: Array, arrive: Array) -> Array:
        width = rows.shape[1]
        received = np.empty((int(arrive.sum()), width), rows.dtype)
        with saved.context.communicates(f"all_to_all {self.name}", rows.nbytes):
            _group(saved).Alltoallv([rows, leave * width], [received, arrive * width])
        return received


def _group(saved: Saved) -> Any:
    return saved.context.groups[GROUP]
