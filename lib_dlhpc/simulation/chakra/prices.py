"""What the nodes of an execution trace cost on a machine: recorded or by roofline, and the closed forms of messages.

Ranks are placed on nodes in their order, `devices` on each. BROADCAST and REDUCE: a binomial tree over the nodes, and
one within each (lg p (alpha + n beta), Thakur, Rabenseifner & Gropp 2005). GATHER and SCATTER: the root's link carries
the parts of all others, one after another. BARRIER takes no time of its own: it only makes ranks wait.
"""

from collections.abc import Sequence
from functools import cached_property
from math import isnan

from lib_dlhpc.costs import groups, roofline
from lib_dlhpc.costs.network import Cost
from lib_dlhpc.errors import SpecError
from lib_dlhpc.schedules import COLLECTIVES
from lib_dlhpc.schedules.network import depth
from lib_dlhpc.spec.machine import Machine
from lib_dlhpc.spec.strategy import AUTO
from lib_dlhpc.timeline.chakra import Node

PRECISION = "bf16"  # of the roofline: a trace does not name its own
GOALS = {
    "ALL_REDUCE": "allreduce",
    "ALL_GATHER": "allgather",
    "REDUCE_SCATTER": "reduce_scatter",
    "REDUCE_SCATTER_BLOCK": "reduce_scatter",
}


class Prices:
    """The cost of nodes for `ranks` ranks, `devices` on each node of a machine."""

    def __init__(self, machine: Machine, ranks: int, devices: int) -> None:
        self.machine, self.devices = machine, devices
        self.nodes = -(-ranks // devices)
        self._known: dict[tuple[object, ...], float] = {}

    def compute(self, node: Node) -> float:
        """Return the seconds of a computation: as recorded, else by roofline, 0 without FLOP and bytes."""
        if node.seconds or not (node.flop or node.bytes):
            return node.seconds
        device = self.machine.device
        return max(node.flop / self._rate, node.bytes / float(device.memory_bandwidth))

    def moved(self, node: Node) -> float:
        """Return the seconds of a load or store: as recorded, else over the link to the host."""
        if node.seconds:
            return node.seconds
        link = self.machine.host_link
        return float(link.latency + node.bytes / (link.bandwidth * link.efficiency))

    def message(self, source: int, target: int, size: float, leaving: int) -> Cost:
        """Return the cost of a message; leaving: how many ranks of the source's node share its NICs."""
        joined = self.devices * min(int(self.machine.domain), self.nodes)
        within = source // joined == target // joined
        return groups.wire_on(self.machine, within, leaving, self.devices).cost(size)

    def collective(self, node: Node, ranks: Sequence[int]) -> float:
        """Return the seconds of a collective whose ranks, in ascending order, start together."""
        count = len(ranks)
        spacing = max(1, (ranks[-1] - ranks[0]) // max(1, count - 1))
        near = min(int(self.machine.domain), self.nodes)
        first, last = (rank // (self.devices * near) for rank in (ranks[0], ranks[-1]))
        nodes = near if first == last else self.nodes  # a group inside a node meets no edge of it
        key = (node.collective, node.bytes, node.algorithm, count, spacing, nodes)
        if key not in self._known:
            self._known[key] = self._collective(node, count, spacing, nodes)
        return self._known[key]

    def _collective(self, node: Node, count: int, spacing: int, nodes: int) -> float:
        if count == 1 or node.collective == "BARRIER":
            return 0.0
        net = groups.network_on(self.machine, self.devices, nodes, count, spacing)
        if node.collective == "ALL_TO_ALL":
            return float(groups.all_to_all(node.bytes, net).total)
        if node.collective in ("BROADCAST", "REDUCE"):
            reduction = node.bytes * net.gamma * (node.collective == "REDUCE")
            levels = (net.inner, net.outer)
            steps = (
                (depth(level.ranks), level.alpha + node.bytes * level.beta + reduction)
                for level in levels
            )
            return float(sum(many * seconds for many, seconds in steps))
        if node.collective in ("GATHER", "SCATTER"):
            level = net.outer if net.outer.ranks > 1 else net.inner
            size = node.bytes * (count - 1) / (count if node.collective == "SCATTER" else 1)
            return float(level.alpha + size * level.beta)
        goal, size = GOALS[node.collective], node.bytes
        if goal == "allgather":
            size *= count
        if node.algorithm not in ("", *COLLECTIVES["allreduce"]):
            raise SpecError(f"algorithm {node.algorithm!r} is not known")
        return float(groups.collective(goal, size, net, 1, node.algorithm or AUTO).total)

    @cached_property
    def _rate(self) -> float:
        device = self.machine.device
        rate = float(roofline.peak_rate(device, PRECISION) * device.efficiency)
        return rate if not isnan(rate) else float(max(device.peak.values()))
