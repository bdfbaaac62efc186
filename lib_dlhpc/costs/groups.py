"""The network that a group of ranks sees: how many of them share a node, and with whom they share its NICs.

Groups of one kind exchange at the same time. With d devices in a node, of which g belong to the same
group, d / g groups leave the node together and each has that part of its NICs.

A ring hands n bytes on in p parts: (p-1) (alpha + n/p beta) to gather them from all, as much to add them up
and leave each rank its part, twice as much for both (Chan et al. 2007, "Collective communication").
"""

from typing import Any, NamedTuple

import numpy as np

from lib_dlhpc.costs.network import (
    BYTES_MOVED_TO_REDUCE,
    Cost,
    Level,
    Network,
    all_to_all_congestion,
    congestion,
    slowest,
)
from lib_dlhpc.layout import sizes, stride
from lib_dlhpc.spec.experiment import Experiment

NOTHING = Cost(0.0, 0.0, 0.0)


class Wire(NamedTuple):
    """What a message between two ranks takes: `latency` in s, and `beta` in s/B."""

    latency: float
    beta: float

    def cost(self, size: Any, messages: Any = 1) -> Cost:
        """Return the cost of `messages` messages of `size` bytes in all."""
        return Cost(messages * self.latency, size * self.beta, 0.0)


def group_network(experiment: Experiment, kind: str) -> Network:
    """Return what the groups of `kind` run on; the experiment holds no arrays."""
    ranks, apart = getattr(sizes(experiment), kind), stride(experiment, kind)
    return spread(experiment, ranks, apart)


def expert_network(experiment: Experiment) -> Network:
    """Return what the replicas run on that share out all experts."""
    return spread(experiment, int(experiment.strategy.experts), stride(experiment, "data"))


def alike_network(experiment: Experiment) -> Network:
    """Return what the replicas run on that have the same experts."""
    shared = int(experiment.strategy.experts)
    return spread(experiment, sizes(experiment).data // shared, stride(experiment, "data") * shared)


def spread(experiment: Experiment, ranks: int, apart: int) -> Network:
    """Return what `ranks` ranks run on that stand `apart` from each other in rank order."""
    machine, devices = experiment.machine, int(experiment.devices_per_node)
    near = max(1, min(ranks, devices // apart))
    nodes = -(-ranks // near)
    inner, outer = machine.intra_node, machine.inter_node
    sharing = devices / near
    step = max(1, apart * near // devices)
    all_nodes = int(experiment.strategy.nodes)
    return Network(
        Level(near, inner.latency, 1 / (inner.bandwidth * inner.efficiency)),
        Level(
            nodes,
            outer.latency,
            sharing / (outer.bandwidth * outer.efficiency * machine.nics),
        ),
        BYTES_MOVED_TO_REDUCE / machine.device.memory_bandwidth,
        lambda distance: congestion(machine, all_nodes, distance * step),
        all_to_all_congestion(machine, nodes * step),
    )


def wire(experiment: Experiment, first: int, second: int, apart: int) -> Wire:
    """Return the way between two ranks, where all ranks send at once to those `apart` from them.

    The whole node sends if the next ranks stand outside of it, else those nearest to its edge.
    """
    machine, devices = experiment.machine, int(experiment.devices_per_node)
    if first // devices == second // devices:
        link = machine.intra_node
        return Wire(link.latency, 1 / (link.bandwidth * link.efficiency))
    link = machine.inter_node
    leaving = min(apart, devices)
    return Wire(link.latency, leaving / (link.bandwidth * link.efficiency * machine.nics))


def gather(n: Any, net: Network, times: Any = 1) -> Cost:
    """Return the cost of `times` allgathers of n bytes in all, each by a ring."""
    ranks = net.inner.ranks * net.outer.ranks
    alpha, beta = slowest(net)
    return Cost(times * (ranks - 1) * alpha, (ranks - 1) / ranks * n * beta, 0.0 * n)


def scatter(n: Any, net: Network, times: Any = 1) -> Cost:
    """Return the cost of `times` reduce-scatters of n bytes in all, each by a ring."""
    ranks = net.inner.ranks * net.outer.ranks
    latency, bandwidth, _ = gather(n, net, times)
    return Cost(latency, bandwidth, (ranks - 1) / ranks * n * net.gamma)


def everyone(n: Any, net: Network, times: Any = 1) -> Cost:
    """Return the cost of `times` allreduces of n bytes in all, each by a ring."""
    return gather(n, net, times) + scatter(n, net, times)


def all_to_all(n: Any, net: Network, times: Any = 1) -> Cost:
    """Return the cost of `times` exchanges of everyone with everyone; each rank sends n bytes in all, evenly.

    What stays in a node and what leaves it go at once; a rank has its part of the NICs of its group.
    """
    near, far = net.inner.ranks, net.outer.ranks
    ranks = near * far
    inside = (near - 1) / ranks * n * net.inner.beta
    across = (ranks - near) / ranks * n * near * net.outer.beta * net.all_to_all
    alpha, _ = slowest(net)
    return Cost(times * (ranks - 1) * alpha, np.maximum(inside, across), 0.0)


def exchange_cost(way: str, n: Any, net: Network, times: Any) -> Cost:
    """Return the cost of `times` exchanges of n bytes in all, forward or backward `way` of a layer."""
    prices = {"all_reduce": everyone, "all_gather": gather, "reduce_scatter": scatter}
    return prices[way](n, net, times) if way in prices else NOTHING


def halo_cost(experiment: Experiment, borrowed: Any, lent: Any, layers: Any) -> Cost:
    """Return the cost of the halos of `layers` layers: a rank gets `borrowed` and gives `lent` bytes.

    At the edge of a node one side goes over the network and the other stays inside; where each rank of
    the group has a node to itself both sides go over the network.
    """
    net = group_network(experiment, "spatial")
    most = np.maximum(borrowed, lent)
    level = net.outer if net.outer.ranks > 1 else net.inner
    both = net.inner.ranks > 1 and net.outer.ranks > 1
    return Cost(layers * level.alpha, most * level.beta / (2 if both else 1), 0.0)
