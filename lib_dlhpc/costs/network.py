"""The machine as the collectives see it: two levels, and how far exchanges contend for links."""

from dataclasses import replace
from typing import Any

import numpy as np

from lib_dlhpc.costs.switch_contention import (
    TREES,
    all_to_all_steps,
    columns_of,
    congestion,
    global_link,
    last_axis,
    sent_on,
    shifted,
    tree_congestion,
)
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
    "global_link",
    "joined",
    "lanes_of",
    "last_axis",
    "network_of",
    "nics_used",
    "node_links",
    "sent_on",
    "shifted",
    "slowest",
    "tree_congestion",
]

BYTES_MOVED_TO_REDUCE = 3  # read two numbers, write one


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
        lambda distance, of=None: shifted(machine, nodes, nodes if of is None else of, distance),
        IN_NETWORK[machine.in_network],
        lanes if machine.topology in RAILS else 1,
        crossing_congestion(machine, nodes),
        machine.topology == "rails-pxn",
        nics if machine.topology in RAILS else 1,
        trees=lambda distance=0: tree_congestion(machine, nodes, nodes, 1, distance),
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


def all_to_all_congestion(machine: Machine, nodes: Any) -> Any:
    """Slowdown of an all-to-all exchange of all nodes at once.

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


def _on_global_link(machine: Machine, flows: Any) -> Any:
    return np.maximum(flows / last_axis(global_link(machine)), 1.0)


def node_links(machine: Machine, nodes: Any, others: Any) -> Any:
    """Return how many nodes' NICs the links carry between `nodes` nodes and `others` at full rate.

    The messages are spread evenly. fat-tree: unless one switch has them all, they cross the uplinks, and
    a full switch passes on 1 / oversubscription of what its nodes send. Raises SpecError for a torus,
    a dragonfly and rails, in which it depends on the placement of all ranks.
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
