"""The network of a process group: ranks per node, and its share of the NICs.

Groups of one kind communicate concurrently. With d devices in a node, g of them in one group, d / g groups
share the NICs of the node equally.

Groups of different stages of a pipeline may lie differently on nodes or on the switches of the topology. Those of one
stage are as slow as the slowest of them, while all groups communicate.
"""

from collections.abc import Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from lib_dlhpc.arrays import Floats, Ints
from lib_dlhpc.costs import roofline
from lib_dlhpc.costs.buckets import buckets
from lib_dlhpc.costs.group_placement import Where, group_ranges, representative
from lib_dlhpc.costs.network import (
    BYTES_MOVED_TO_REDUCE,
    Cost,
    Level,
    Network,
    all_to_all_steps,
    congestion,
    crossing_congestion,
    joined,
    lanes_of,
    network_of,
    nics_used,
    sent_on,
    shifted,
    slowest,
    tree_congestion,
)
from lib_dlhpc.costs.switch_contention import ALL, NodeRange
from lib_dlhpc.costs.uneven_groups import UnevenGroups, is_placed
from lib_dlhpc.costs.wire_format import on_wire
from lib_dlhpc.keyed import Keyed
from lib_dlhpc.layout import shards, sizes, stride
from lib_dlhpc.schedules.algorithm import Algorithm
from lib_dlhpc.schedules.choice import cheapest, chosen
from lib_dlhpc.spec.experiment import Experiment
from lib_dlhpc.spec.machine import IN_NETWORK, RAILS, Machine
from lib_dlhpc.spec.strategy import AUTO

NOTHING = Cost(0.0, 0.0, 0.0)
FEW = 16  # placements that a bound prices
# The collective of a communication layer.
GOALS = {"all_reduce": "allreduce", "all_gather": "allgather", "reduce_scatter": "reduce_scatter"}


class Wire(NamedTuple):
    """A path between two ranks: `latency` in s, and `beta` in s/B.

    between: whether it leaves a node. slower: how many times as long as NICs links between switches take.
    """

    latency: float
    beta: float
    between: bool = False
    slower: float = 1.0

    def cost(self, size: Any, messages: Any = 1) -> Cost:
        """Return the cost of `messages` messages of `size` bytes in all."""
        return Cost(messages * self.latency, size * self.beta, 0.0)


def group_network(experiment: Experiment, kind: str) -> Network:
    """Return the network of the groups of `kind`; the experiment holds no arrays."""
    ranks, rank_stride = getattr(sizes(experiment), kind), stride(experiment, kind)
    return spread(experiment, ranks, rank_stride)


def expert_network(experiment: Experiment) -> Network:
    """Return the network of an expert-parallel group."""
    return spread(experiment, int(experiment.strategy.experts), stride(experiment, "data"))


def expert_networks(experiment: Experiment, nodes: int) -> tuple[Network, Network]:
    """Return the networks of an expert-parallel group over nodes: ranks of equal place in them, and ranks of one."""
    near, rank_stride = int(experiment.strategy.experts) // nodes, stride(experiment, "data")
    return spread(experiment, nodes, near * rank_stride), spread(experiment, near, rank_stride)


def context_network(experiment: Experiment) -> Network:
    """Return the network of a context-parallel group."""
    return spread(experiment, int(experiment.strategy.context), stride(experiment, "data"))


def alike_network(experiment: Experiment) -> Network:
    """Return the network of an expert-data-parallel group: replicas with the same experts."""
    shared = int(experiment.strategy.experts)
    return spread(experiment, sizes(experiment).data // shared, stride(experiment, "data") * shared)


def shard_network(experiment: Experiment) -> Network:
    """Return the network of replicas that shard the state between them; they are neighbors."""
    return spread(experiment, shards(experiment), stride(experiment, "data"))


def copy_network(experiment: Experiment) -> Network:
    """Return the network of replicas that have the same shard."""
    many = shards(experiment)
    return spread(experiment, sizes(experiment).data // many, stride(experiment, "data") * many)


def spread(
    experiment: Experiment,
    ranks: int,
    rank_stride: int,
    place: int | None = None,
    sent: Sequence[float] = (),
) -> Network:
    """Return the network of `ranks` ranks with stride `apart` in rank order.

    place: of the stage whose groups count; default: of all. sent: what each stage sends, if not as much.
    """
    where, stage_size = _where(experiment, ranks, rank_stride), stride(experiment, "pipeline")
    if place is None:
        return _network(where, ALL)
    beside = tuple(min(1.0, other / sent[place]) for other in sent) if sent and sent[place] else ()
    node_range = NodeRange(
        place * stage_size, stage_size, beside if min(beside, default=1.0) < 1 else ()
    )
    return _network(where, representative(where, node_range))


def lie_alike(experiment: Experiment, ranks: int, rank_stride: int) -> bool:
    """Whether all groups of `ranks` ranks with stride `apart` lie alike."""
    return group_ranges(_where(experiment, ranks, rank_stride)) == (ALL,)


def placements(experiment: Experiment, ranks: int, rank_stride: int) -> tuple[Network, ...]:
    """Return the networks of groups that lie differently, each alone; none if there are more than a few."""
    where = _where(experiment, ranks, rank_stride)
    ranges = group_ranges(where)
    return tuple(_network(where, node_range) for node_range in ranges) if len(ranges) <= FEW else ()


def _where(experiment: Experiment, ranks: int, rank_stride: int) -> Where:
    machine, nodes = experiment.calibrated_machine, int(experiment.strategy.nodes)
    return Keyed(machine, id(machine)), int(experiment.devices_per_node), nodes, ranks, rank_stride


def network_on(machine: Machine, devices: int, nodes: int, ranks: int, rank_stride: int) -> Network:
    """Return the same on `nodes` nodes of a machine, each with `devices` ranks."""
    return _network((Keyed(machine, id(machine)), devices, nodes, ranks, rank_stride), ALL)


@lru_cache(maxsize=512)
def _network(where: Where, node_range: NodeRange) -> Network:
    on, devices, nodes, ranks, rank_stride = where
    machine, nodes, devices = joined(on.value, nodes, devices)
    uneven = None
    if not is_placed(machine, devices, nodes, ranks, rank_stride):
        uneven = UnevenGroups(machine, devices, nodes, ranks, rank_stride, node_range)
    close = uneven.node_size if uneven else max(1, min(ranks, devices // rank_stride))
    used = -(-ranks // close)
    inner, outer = machine.intra_node, machine.inter_node
    sharing = devices / close
    step = max(1, rank_stride * close // devices)
    count = node_range._replace(
        first=node_range.first // devices, many=node_range.many // devices
    )  # nodes
    count = ALL if uneven else count
    lanes, nics, beside = _rails(machine, devices, close)
    cached = lru_cache(maxsize=64)
    outer_rate = outer.bandwidth * outer.efficiency * lanes_of(machine, devices)
    return Network(
        Level(close, inner.latency, 1 / (inner.bandwidth * inner.efficiency)),
        Level(used, outer.latency, sharing / outer_rate),
        BYTES_MOVED_TO_REDUCE / machine.device.memory_bandwidth,
        cached(lambda distance: congestion(machine, nodes, distance, used, step, count)),
        all_to_all_steps(machine, nodes, used, step, count),
        cached(
            lambda distance, of=used: shifted(machine, nodes, of * step, distance * step, count)
        ),
        IN_NETWORK[machine.in_network],
        lanes,
        crossing_congestion(machine, nodes),
        machine.topology == "rails-pxn",
        nics,
        beside,
        uneven,
        cached(lambda distance=0: tree_congestion(machine, nodes, used, step, distance, count)),
        None if node_range == ALL else _network(where, ALL),
    )


def _rails(machine: Machine, devices: int, close: int) -> tuple[float, int, int]:
    """Return Network.lanes, nics and beside of groups that have `close` ranks on each node.

    Groups lie beside each other: their ranks of one index leave the node at the same time, and as many of them as
    there are devices on a NIC share it.
    """
    if machine.topology not in RAILS or close == 1:
        return 1.0, 1, 1
    beside, each = devices // close, devices / lanes_of(machine, devices)
    return close * min(beside, each) / each, int(nics_used(machine, devices)), beside


def wire(
    experiment: Experiment,
    first: int,
    second: int,
    leaving: float,
    others: tuple[Ints, Ints, Floats | float] | None = None,
) -> Wire:
    """Return the path between two ranks while `leaving` ranks of a node send out of it, or all, if it has fewer.

    While all ranks send to the rank at a distance, that is the distance: only those next to the edge of the node leave.
    Ranks of as many nodes as they fill send at once and share the links between switches; or others: all that do, to
    whom, and how much compared with these ranks.
    """
    machine, devices = experiment.calibrated_machine, near(experiment)
    whole, nodes, _ = joined(
        machine, int(experiment.strategy.nodes), int(experiment.devices_per_node)
    )
    first, second = first // devices, second // devices
    path = wire_on(whole, first == second, min(leaving, devices), devices)
    if others is None:
        senders = np.arange(-(-int(leaving) // devices))
        crowd = sent_on(whole, nodes, first + senders, second + senders, np.ones(len(senders)))
    else:
        source, target, sent = others
        share = np.broadcast_to(sent / min(leaving, devices), source.shape)
        crowd = sent_on(whole, nodes, source // devices, target // devices, share)
    return path._replace(beta=path.beta * crowd, between=first != second, slower=crowd)


def near(experiment: Experiment) -> int:
    """Return the ranks that links inside a node join: those of a node, or of a domain of nodes."""
    joint = min(int(experiment.machine.domain), int(experiment.strategy.nodes))
    return int(experiment.devices_per_node) * joint


def wire_on(machine: Machine, within_node: bool, leaving: float, devices: int) -> Wire:
    """Return the path within a node, or between two while `leaving` of a node's `devices` ranks share its NICs."""
    if within_node:
        link = machine.intra_node
        return Wire(link.latency, 1 / (link.bandwidth * link.efficiency))
    link = machine.inter_node
    rate = link.bandwidth * link.efficiency
    if machine.topology in RAILS:  # a NIC each, or one for all who are beside each other
        beside = min(leaving, devices / lanes_of(machine, devices))
        return Wire(link.latency, max(1.0, beside) / rate)
    return Wire(link.latency, leaving / (rate * machine.nics))


def collective(goal: str, n: Any, net: Network, times: Any = 1, name: str = AUTO) -> Cost:
    """Return the cost of `times` collectives of n bytes in total, by the named or selected algorithm.

    goal: allreduce, reduce_scatter or allgather. name: see schedules/choice.py.
    """
    return cheapest(goal, n / np.maximum(times, 1), net, name).times(times)


def allreduces(experiment: Experiment) -> dict[float, Algorithm]:
    """Return the allreduce algorithms of a scalar experiment, by the bytes of a bucket on the wire."""
    strategy, net = experiment.strategy, network_of(experiment)
    cut = buckets(experiment.model, float(strategy.bucket), roofline.BYTES[strategy.precision])
    sizes = set(on_wire(strategy, cut.sizes[cut.sizes > 0]).tolist())
    return {size: chosen("allreduce", size, net, strategy.allreduce) for size in sorted(sizes)}


def all_to_all(n: Any, net: Network, times: Any = 1) -> Cost:
    """Return the cost of `times` all-to-alls; each rank sends n bytes in total, evenly."""
    return collective("all_to_all", n * net.inner.ranks * net.outer.ranks, net, times)


def shift_cost(net: Network, size: Any) -> Cost:
    """Return the cost of a message of `size` B from each rank of a ring to the next; one of a node may leave it."""
    if net.uneven is not None:
        cost: Cost = net.uneven.shift(size)
        return cost
    alpha, beta = slowest(net, size)
    return Cost(alpha, size * beta, 0.0)


def halo_cost(net: Network, size: Any) -> Cost:
    """Return the cost of the halo of a layer; size: B that a rank receives or sends, the more of the two.

    At the edge of a node one side uses the network and the other stays inside; with one rank of the group per
    node, both sides use the network. A rank between two others of its node sends both sides inside.
    """
    if net.uneven is not None:
        cost: Cost = net.uneven.halo(size)
        return cost
    (close, a_in, b_in), (nodes, a_out, b_out) = net.inner, net.outer
    inside = size * b_in / (2 if close == 2 and nodes > 1 else 1)
    if nodes == 1:
        return Cost(a_in, inside, 0.0)
    across = size * b_out * net.lanes * net.neighbors(1) / (2 if close > 1 else 1)
    out = np.logical_or(close == 1, a_out + across >= a_in + inside)
    latency: Any = np.where(out, a_out, a_in)
    bandwidth: Any = np.where(out, across, inside)
    return Cost(latency[()], bandwidth[()], 0.0)
