"""A machine whose nodes fail and are repaired, simulated: a run that waits for spares, or runs on fewer replicas.

Event by event: a node fails, as likely at any moment and only while it trains; it leaves for repair, for a
random or a fixed time; a spare takes its place, or, without one, all nodes wait or the other replicas continue.
"""

from dataclasses import replace
from heapq import heappop, heappush

import numpy as np

from lib_dlhpc.costs.checkpoints import CheckpointCost
from lib_dlhpc.costs.spares import NodePool
from lib_dlhpc.errors import SpecError

REPAIRS = ("exponential", "fixed")


class _Nodes:
    """Which nodes are in repair, and when each is back."""

    def __init__(self, pool: NodePool, failures: int, seed: int, repair: str) -> None:
        if failures < 1:
            raise SpecError(f"failures = {failures!r}: expected at least 1.")
        if np.isinf(pool.node_mtbf):
            raise SpecError(f"node_mtbf = {pool.node_mtbf!r}: expected s in which nodes do fail.")
        if repair not in REPAIRS:
            raise SpecError(f"repair = {repair!r}: expected one of {', '.join(REPAIRS)}.")
        self.pool, self.fixed, self.random = pool, repair == "fixed", np.random.default_rng(seed)
        self.back: list[float] = []  # s, a heap

    @property
    def training(self) -> int:
        return int(self.pool.training(len(self.back)))

    def fails_after(self) -> float:
        """Return the s until the next of those that train fails."""
        return float(self.random.exponential(self.pool.node_mtbf / self.training))

    def fail(self, now: float) -> None:
        """Take a node to repair at `now`."""
        mean = self.pool.repair
        heappush(self.back, now + (mean if self.fixed else float(self.random.exponential(mean))))


def simulate_waiting(
    pool: NodePool,
    interval: float,
    saving: CheckpointCost,
    failures: int,
    seed: int = 0,
    repair: str = "exponential",
) -> float:
    """Return the share of nodes and time that became training until `failures` nodes had failed.

    All nodes train or none. A failure costs the work since the last checkpoint (synchronous, after each
    `interval` s) and a restart; without a spare the restart waits for a repaired node. Raises SpecError.
    """
    nodes, now, trained = _Nodes(replace(pool, replica=0), failures, seed, repair), 0.0, 0.0
    while failures:
        lasts = nodes.fails_after()
        up = max(lasts - saving.restart, 0.0)
        trained += up // (interval + saving.blocked) * interval
        now += lasts
        nodes.fail(now)
        failures -= 1
        while nodes.back and (nodes.back[0] <= now or not nodes.training):
            now = max(now, heappop(nodes.back))
    return trained / now * pool.nodes / (pool.nodes + pool.spares)


def simulate_elastic(
    pool: NodePool,
    stall: float,
    rejoin: float,
    failures: int,
    seed: int = 0,
    repair: str = "exponential",
) -> float:
    """Return the share of nodes and time that became training until `failures` nodes had failed.

    The other replicas continue after `stall` s; one that lost a node trains again `rejoin` s later. Raises SpecError.
    """
    nodes, now, trained = _Nodes(pool, failures, seed, repair), 0.0, 0.0
    quiet, absent = 0.0, list[float]()  # when the stall ends; when replicas that restart are ready
    strike = now + nodes.fails_after()
    while failures:
        time = min([strike, *nodes.back[:1], *absent[:1]])
        counted = max(nodes.training - pool.replica * len(absent), 0)
        trained += counted * max(time - max(now, quiet), 0.0)
        now = time
        if absent and absent[0] <= now:
            heappop(absent)
            continue
        if nodes.back and nodes.back[0] <= now:
            heappop(nodes.back)
        else:
            nodes.fail(now)
            heappush(absent, now + stall + rejoin)
            quiet, failures = now + stall, failures - 1
        strike = now + nodes.fails_after() if nodes.training else np.inf
    return trained / now / (pool.nodes + pool.spares)
