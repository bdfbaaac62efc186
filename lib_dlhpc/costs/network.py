"""The machine as the collectives see it: two levels, and how far exchanges get in each other's way."""

from dataclasses import replace
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from lib_dlhpc.errors import SpecError
from lib_dlhpc.schedules.network import Array, Cost, Level, Network, flat, slowest
from lib_dlhpc.spec.experiment import Experiment
from lib_dlhpc.spec.machine import IN_NETWORK, RAILS, Machine

__all__ = [
    "Array",
    "Cost",
    "Level",
    "Network",
    "all_to_all_congestion",
    "all_to_all_steps",
    "columns_of",
    "congestion",
    "flat",
    "joined",
    "lanes_of",
    "last_axis",
    "network_of",
    "nics_used",
    "node_links",
    "sent_on",
    "shifted",
    "slowest",
]

TREES = ("fat-tree", *RAILS)
BYTES_MOVED_TO_REDUCE = 3  # read two numbers, write one


def last_axis(value: Any) -> Any:
    """Give an array one more, last, axis: room for buckets or layers. Scalars need none."""
    return value[..., None] if isinstance(value, np.ndarray) and value.ndim else value


def network_of(experiment: Experiment) -> Network:
    """Return the levels and the reduction rate of the devices that take part in the exchange.

    The NICs of a node are used together, or belong to its devices (rails).
    """
    machine, nodes, devices = joined(
        experiment.calibrated_machine, experiment.strategy.nodes, experiment.devices_per_node
    )
    inner, outer = machine.intra_node, machine.inter_node
    nodes, devices = last_axis(nodes), last_axis(devices)
    nics = nics_used(machine, devices)
    lanes = lanes_of(machine, devices)
    return Network(
        Level(devices, last_axis(inner.latency), 1 / last_axis(inner.bandwidth * inner.efficiency)),
        Level(
            nodes,
            last_axis(outer.latency),
            1 / (last_axis(outer.bandwidth * outer.efficiency) * lanes),
        ),
        BYTES_MOVED_TO_REDUCE / last_axis(machine.device.memory_bandwidth),
        lambda distance: congestion(machine, nodes, distance),
        all_to_all_steps(machine, nodes, nodes),
        lambda distance: shifted(machine, nodes, nodes, distance),
        IN_NETWORK[machine.in_network],
        lanes if machine.topology in RAILS else 1,
        crossing_congestion(machine, nodes),
        machine.topology == "rails-pxn",
        nics if machine.topology in RAILS else 1,
    )


def joined(machine: Machine, nodes: Any, devices: Any) -> tuple[Machine, Any, Any]:
    """Return the machine as its links see it, and the nodes and devices of each in use: a domain is one node."""
    if isinstance(machine.domain, int) and machine.domain == 1:
        return machine, nodes, devices
    many = np.minimum(machine.domain, nodes)
    if np.ndim(many) == 0:
        many = int(many)
    whole = replace(
        machine,
        nodes=-(-machine.nodes // machine.domain),
        devices_per_node=machine.devices_per_node * machine.domain,
        nics=machine.nics * many,
        nodes_per_switch=np.maximum(machine.nodes_per_switch // machine.domain, 1)[()],
        domain=1,
    )
    return whole, nodes // many, devices * many


def nics_used(machine: Machine, devices: Any) -> Any:
    """Return the NICs of a node that its `devices` in use reach: on rails, one each at most."""
    nics = last_axis(machine.nics)
    return np.minimum(nics, devices) if machine.topology in RAILS else nics


def lanes_of(machine: Machine, devices: Any) -> Any:
    """Return how many NICs' rate the `devices` of a node have together if all send as much.

    On rails all wait for the NIC with the most devices: four devices on three NICs have the rate of two.
    """
    nics = nics_used(machine, devices)
    return devices / np.ceil(devices / nics) if machine.topology in RAILS else nics


def crossing_congestion(machine: Machine, nodes: Any) -> Any:
    """Slow-down where every node sends all that one NIC carries to another rail, over the uplinks of a leaf; else 0."""
    if machine.topology != "rails":
        return 0.0
    leaf = last_axis(machine.nodes_per_switch)
    return np.where(
        nodes > 1, np.minimum(nodes, leaf) / leaf * last_axis(machine.oversubscription), 0.0
    )


def congestion(machine: Machine, nodes: Any, distance: int) -> Any:
    """Slow-down when each node exchanges with the one `distance` further on in rank order.

    fat-tree, rails: what leaves a switch shares its uplinks. dragonfly: what leaves a group shares the links to one
    or two other groups, and takes no others (minimal routing). torus (row-major, dimension order): a link is crossed
    by as many exchanges as the partners are hops apart along it.
    """
    if machine.topology in TREES:
        leaves_switch = np.greater_equal(distance, last_axis(machine.nodes_per_switch))
        return np.where(leaves_switch, last_axis(machine.oversubscription), 1.0)
    if machine.topology == "dragonfly":
        group = last_axis(machine.nodes_per_switch)
        # The share of a group's nodes whose partner is one group further than that of the others.
        beyond = np.mod(distance, group) / group
        most = np.maximum(beyond, 1 - beyond) * group
        return np.where(np.greater_equal(distance, group), _on_global_link(machine, most), 1.0)
    if machine.topology == "torus":
        columns = columns_of(nodes)
        return _hops(nodes // columns, columns, distance)
    return 1.0


def columns_of(nodes: Any) -> Any:
    """Return the columns of a torus: the smallest divisor of `nodes` that is at least its square root."""
    return np.vectorize(_columns, otypes=[np.int64])(nodes)[()]


@lru_cache(maxsize=4096)
def _columns(nodes: int) -> int:
    return next(c for c in range(1, nodes + 1) if nodes % c == 0 and c * c >= nodes)


def _hops(rows: Any, columns: Any, distance: Any) -> Any:
    """Return the exchanges on the busiest link of a torus whose nodes all send `distance` nodes on, at least 1."""
    down, right = np.divmod(np.mod(distance, rows * columns), columns)
    further = (down + (right > 0)) % rows  # of those beyond the end of their row
    most = np.maximum(np.minimum(down, rows - down), np.minimum(further, rows - further))
    return np.maximum(np.maximum(most, np.minimum(right, columns - right)), 1.0)


def shifted(machine: "Machine | _Switches", nodes: Any, block: Any, distance: Any) -> Any:
    """Slow-down when, in each block of `block` of the nodes, all send `distance` nodes on, round its end.

    So a ring sends, and an all-to-all in each of its steps. fat-tree, rails: what leaves a switch shares its uplinks.
    dragonfly: what goes to one other group shares the links to it. torus: see `congestion`.
    """
    group = last_axis(machine.nodes_per_switch)
    if machine.topology in TREES:
        leaving = np.minimum(np.minimum(distance, block - distance), group)
        crowd = np.maximum(leaving / group * last_axis(machine.oversubscription), 1.0)
        return np.where(np.greater(block, group), crowd, 1.0)
    if machine.topology == "dragonfly":
        on, over = np.divmod(distance, group)
        groups = np.ceil(np.divide(block, group))
        near = np.where(np.mod(on, groups) > 0, group - over, 0)
        most = np.maximum(near, np.where(np.mod(on + 1, groups) > 0, over, 0))
        return np.where(np.greater(block, group), _on_global_link(machine, most), 1.0)
    if machine.topology == "torus":
        columns = np.minimum(columns_of(nodes), block)
        return _hops(-(-block // columns), columns, distance)
    return 1.0


def sent_on(machine: Machine, nodes: int, first: int, second: int, senders: int) -> float:
    """Slow-down while `senders` nodes from `first` on send to those from `second` on, and nobody else sends."""
    group, away = machine.nodes_per_switch, abs(second - first)
    if machine.topology == "torus":
        columns = int(columns_of(nodes))
        down, right = divmod(away, columns)
        along = min(right, columns - right, senders)
        return float(max(along, min(down, nodes // columns - down, -(-senders // columns)), 1))
    if machine.topology == "single-switch":
        return 1.0
    source, target = ((each + np.arange(senders)) // group for each in (first, second))
    leaves = source != target
    many = max(np.bincount(each[leaves]).max(initial=0) for each in (source, target))
    if machine.topology == "dragonfly":
        return float(_on_global_link(machine, many))
    return float(max(many / group * machine.oversubscription, 1.0))


def all_to_all_steps(machine: Machine, nodes: Any, many: Any, step: int = 1) -> Any:
    """Slow-down of an all-to-all of `many` nodes at a distance of `step`: the mean of its steps, see `shifted`.

    No link has work from two steps at once.
    """
    if machine.topology == "single-switch":
        return 1.0
    sizes = machine.nodes, machine.nodes_per_switch, machine.oversubscription
    fields = (last_axis(each) for each in sizes)
    found = np.vectorize(_mean_shifted, otypes=[np.float64])
    return found(machine.topology, nodes, many, step, *fields)[()]


@lru_cache(maxsize=4096)
def _mean_shifted(topology: str, nodes: int, many: int, step: int, *sizes: Any) -> float:
    on = _Switches(topology, *sizes)
    steps = step * np.arange(1, many)
    return float(np.mean(shifted(on, nodes, many * step, steps))) if many > 1 else 1.0


class _Switches(NamedTuple):
    """The fields of a machine that `shifted` reads."""

    topology: str
    nodes: Any
    nodes_per_switch: Any
    oversubscription: Any


def all_to_all_congestion(machine: Machine, nodes: Any) -> Any:
    """Slow-down of an exchange of everyone with everyone, all at once.

    fat-tree, rails: most of the traffic crosses the uplinks. dragonfly: a group sends each other one
    its share. torus of side k: the mean path is k/2 hops
    over four links a node, so k/8 (never below 1).
    """
    if machine.topology in TREES:
        return np.where(
            nodes > last_axis(machine.nodes_per_switch), last_axis(machine.oversubscription), 1.0
        )
    if machine.topology == "torus":
        return np.maximum(np.sqrt(nodes) / 8, 1.0)
    if machine.topology == "dragonfly":
        group = last_axis(machine.nodes_per_switch)
        return np.where(nodes > group, _on_global_link(machine, group * group / nodes), 1.0)
    return 1.0


def global_link(machine: "Machine | _Switches") -> Any:
    """Return how many nodes' NICs the links from one group of a dragonfly to another carry at full rate.

    All links of a group together carry what its nodes send over the oversubscription; there are equally many to each
    other group. Source: Kim, Dally, Scott & Abts, "Technology-driven, highly-scalable dragonfly topology" (2008).
    """
    group = machine.nodes_per_switch
    others = np.maximum(np.ceil(np.divide(machine.nodes, group)) - 1, 1)
    return group / machine.oversubscription / others


def _on_global_link(machine: "Machine | _Switches", flows: Any) -> Any:
    return np.maximum(flows / last_axis(global_link(machine)), 1.0)


def node_links(machine: Machine, nodes: Any, others: Any) -> Any:
    """Return how many nodes' NICs the links carry between `nodes` nodes and `others` at full rate.

    The messages are spread evenly. fat-tree: unless one switch has them all, they cross the uplinks, and
    a full switch passes on 1 / oversubscription of what its nodes send. Raises SpecError for a torus,
    a dragonfly and rails, in which it depends on where everyone is.
    """
    if machine.topology in ("torus", "dragonfly", *RAILS):
        raise SpecError(
            f"machine.topology = {machine.topology!r}: asynchronous updates are not predicted there, for some links are"
            " crossed by far more than others; legal: single-switch, fat-tree. A simulation has it."
        )
    if machine.topology == "fat-tree":
        under = np.maximum(nodes, machine.nodes_per_switch)
        uplinks = np.minimum(nodes, under / machine.oversubscription)
        return np.where(nodes + others > machine.nodes_per_switch, uplinks, nodes)[()]
    return nodes
