"""Nodes that train, spares beside them, and nodes in repair: which continue when some have failed."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from lib_dlhpc.errors import SpecError


@dataclass(frozen=True)
class NodePool:
    """The nodes of a machine: `nodes` for the run and `spares` beside them.

    replica: nodes of a model replica, without which the others train on; 0: all nodes train, or none.
    A failed node is back after `repair` s on the mean. Raises SpecError for nodes that are no pool.
    """

    nodes: int
    spares: int
    node_mtbf: float  # s of training between failures of one node
    repair: float  # s
    replica: int = 0

    def __post_init__(self) -> None:
        if self.nodes < 1 or self.spares < 0:
            counts = f"nodes = {self.nodes}, spares = {self.spares}"
            raise SpecError(f"{counts}: expected at least 1 node and 0 spares.")
        if self.replica < 0 or (self.replica and self.nodes % self.replica):
            divisors = f"a divisor of the {self.nodes} nodes"
            raise SpecError(f"replica = {self.replica}: expected 0 or {divisors}.")
        if not (self.node_mtbf > 0 and 0 < self.repair < np.inf):
            times = f"node_mtbf = {self.node_mtbf!r}, repair = {self.repair!r}"
            raise SpecError(f"{times}: expected s above 0, and a repair that ends.")

    def training(self, failed: Any) -> Any:
        """Return how many nodes train while `failed` are in repair: spares go first, then whole replicas."""
        unit = self.replica or self.nodes
        there = np.maximum(self.nodes + self.spares - failed, 0)
        return np.minimum(self.nodes, there // unit * unit)
