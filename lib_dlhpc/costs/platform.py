"""The machine as messages see it: links with a capacity, and the route from each rank to each other.

Every direction of a connection is a link of its own (full duplex). Rank r is device r mod g of node r // g.

    inside a node    a crossbar (an NVLink island): a device has one link out and one link in
    single switch    a node has its NICs, used together, as one link out and one link in
    fat tree         nodes_per_switch nodes hang on a leaf switch, whose links to the upper level carry
                     1 / oversubscription of what its nodes can send; the upper level never blocks
    rails            NIC i of nodes_per_switch nodes hangs on a leaf switch of rail i; uplinks as of a fat tree.
                     A device has the NIC of its rail: a message to another rail crosses the uplinks, or ("rails-pxn")
                     goes to the device of its target's rail first, over the links inside the sender's node
    dragonfly        nodes_per_switch nodes are a group, which never blocks inside; it has a link to each other group,
                     and these together carry 1 / oversubscription of what its nodes can send
    torus            rows x columns of nodes, as square as possible; behind its NICs a node has a link
                     to each of four neighbors; along the row first, then the column, the short way

Otherwise a message passes the links inside a node or those between nodes, never both. Its latency is that of
the kind of connection, whatever the number of hops, as in `lib_dlhpc.costs.network`.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from lib_dlhpc.costs.network import BYTES_MOVED_TO_REDUCE, columns_of, global_link, nics_used
from lib_dlhpc.schedules.network import Rails
from lib_dlhpc.spec.machine import RAILS, Machine

NO_LINK = -1


@dataclass(frozen=True, eq=False)
class Platform:
    """Links by number: device out, device in, NIC out, NIC in, then those of the topology."""

    nodes: int
    devices_per_node: int
    capacity: NDArray[np.float64]  # B/s of each link
    latency_inside: float  # s of a message inside a node
    latency_between: float  # s of a message between nodes
    gamma: float  # s to combine one received byte
    topology: str = "single-switch"
    nodes_per_switch: int = 1
    columns: int = 1  # of the torus
    rails: int = 1  # NICs of a node that are links of their own

    @property
    def ranks(self) -> int:
        """Devices of all nodes."""
        return self.nodes * self.devices_per_node

    @property
    def links(self) -> tuple[str, ...]:
        """The names of the links, in order."""
        rank, node = range(self.ranks), range(self.nodes)
        names = [f"device {r} {way}" for way in ("out", "in") for r in rank]
        nics = [f"NIC {n}" for n in node]
        if self.topology in RAILS:
            nics = [f"NIC {n}.{rail}" for n in node for rail in range(self.rails)]
        names += [f"{nic} {way}" for way in ("out", "in") for nic in nics]
        if self.topology == "fat-tree":
            leaf = range(_leaves(self.nodes, self.nodes_per_switch))
            names += [f"leaf {s} {way}" for way in ("up", "down") for s in leaf]
        if self.topology in RAILS:
            leaf = range(_leaves(self.nodes, self.nodes_per_switch))
            each = [f"leaf {s}.{rail}" for s in leaf for rail in range(self.rails)]
            names += [f"{switch} {way}" for way in ("up", "down") for switch in each]
        if self.topology == "dragonfly":
            group = range(_leaves(self.nodes, self.nodes_per_switch))
            names += [f"group {a} to {b}" for a in group for b in group]
        if self.topology == "torus":
            names += [f"node {n} {way}" for way in ("east", "west", "south", "north") for n in node]
        return tuple(names)

    def route(self, source: int, target: int) -> tuple[tuple[int, ...], float]:
        """Return the links from `source` to `target`, and the latency in s."""
        links, latency = self.routes([source], [target])
        return tuple(int(link) for link in links[0] if link != NO_LINK), float(latency[0])

    def routes(
        self, source: ArrayLike, target: ArrayLike
    ) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """Return links (messages, most hops), filled up with NO_LINK, and latencies (messages,) in s."""
        a, b = np.atleast_1d(np.asarray(source)), np.atleast_1d(np.asarray(target))
        p, g, nodes = self.ranks, self.devices_per_node, self.nodes
        from_node, to_node = a // g, b // g
        inside = from_node == to_node
        if self.topology in RAILS:
            return self._on_rails(a, b)
        first = np.where(inside, a, 2 * p + from_node)
        last = np.where(inside, p + b, 2 * p + nodes + to_node)
        hops = [first, *self._between(from_node, to_node), last]
        latency = np.where(inside, self.latency_inside, self.latency_between)
        return np.stack(hops, axis=1), latency

    def _on_rails(self, a: Any, b: Any) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """The same where each NIC is a link of its own, and so are the uplinks of each rail."""
        p, g, lanes = self.ranks, self.devices_per_node, self.rails
        rails = Rails(g, lanes, self.topology == "rails-pxn")
        far, relayed = rails.far(a, b), rails.relayed(a, b)
        nics, leaves = self.nodes * lanes, _leaves(self.nodes, self.nodes_per_switch) * lanes
        out, into = rails.out(a, b)[:, 0], rails.into(b)[:, 0]
        up, down = (
            nic // lanes // self.nodes_per_switch * lanes + nic % lanes for nic in (out, into)
        )
        above = far & (up != down)
        base, relay = 2 * p + 2 * nics, a // g * g + b % g
        hops = [
            np.where(~far | relayed, a, NO_LINK),
            np.where(far, np.where(relayed, p + relay, NO_LINK), p + b),
            np.where(far, 2 * p + out, NO_LINK),
            np.where(above, base + up, NO_LINK),
            np.where(above, base + leaves + down, NO_LINK),
            np.where(far, 2 * p + nics + into, NO_LINK),
        ]
        latency = np.where(far, self.latency_between, self.latency_inside)
        return np.stack(hops, axis=1), latency + relayed * self.latency_inside

    def _between(self, a: Any, b: Any) -> list[Any]:
        """The links of the topology from nodes a to nodes b."""
        base = 2 * self.ranks + 2 * self.nodes
        if self.topology == "fat-tree":
            leaves = _leaves(self.nodes, self.nodes_per_switch)
            up, down = a // self.nodes_per_switch, b // self.nodes_per_switch
            return [
                np.where(up == down, NO_LINK, base + up),
                np.where(up == down, NO_LINK, base + leaves + down),
            ]
        if self.topology == "dragonfly":
            groups = _leaves(self.nodes, self.nodes_per_switch)
            here, there = a // self.nodes_per_switch, b // self.nodes_per_switch
            return [np.where(here == there, NO_LINK, base + here * groups + there)]
        if self.topology == "torus":
            (row, column), (to_row, to_column) = divmod(a, self.columns), divmod(b, self.columns)
            rows = self.nodes // self.columns
            along_row = [
                np.where(
                    way == NO_LINK, NO_LINK, base + way * self.nodes + row * self.columns + passed
                )
                for passed, way in _walk(column, to_column, self.columns)
            ]
            along_column = [
                np.where(
                    way == NO_LINK,
                    NO_LINK,
                    base + (2 + way) * self.nodes + passed * self.columns + to_column,
                )
                for passed, way in _walk(row, to_row, rows)
            ]
            return along_row + along_column
        return []


def platform(machine: Machine, nodes: int, devices_per_node: int) -> Platform:
    """Return the links and routes of `nodes` nodes of the machine, with that many devices in use each.

    A link carries bandwidth * efficiency, the NICs of a node together `nics` times that.
    """
    inner, outer = machine.intra_node, machine.inter_node
    ranks = nodes * devices_per_node
    nic = outer.bandwidth * outer.efficiency * machine.nics
    capacity = [np.full(2 * ranks, inner.bandwidth * inner.efficiency)]
    columns, rails = 1, 1
    if machine.topology in RAILS:
        rails, nic = int(nics_used(machine, devices_per_node)), nic / machine.nics
        uplinks = nic * machine.nodes_per_switch / machine.oversubscription
        capacity.append(np.full(2 * nodes * rails, nic))
        capacity.append(np.full(2 * _leaves(nodes, machine.nodes_per_switch) * rails, uplinks))
    else:
        capacity.append(np.full(2 * nodes, nic))
    if machine.topology == "fat-tree":
        uplinks = nic * machine.nodes_per_switch / machine.oversubscription
        capacity.append(np.full(2 * _leaves(nodes, machine.nodes_per_switch), uplinks))
    if machine.topology == "dragonfly":
        groups = _leaves(nodes, machine.nodes_per_switch)
        capacity.append(np.full(groups**2, nic * global_link(machine)))
    if machine.topology == "torus":
        columns = int(columns_of(nodes))
        capacity.append(np.full(4 * nodes, nic))
    return Platform(
        nodes=nodes,
        devices_per_node=devices_per_node,
        capacity=np.concatenate(capacity).astype(np.float64),
        latency_inside=inner.latency,
        latency_between=outer.latency,
        gamma=BYTES_MOVED_TO_REDUCE / machine.device.memory_bandwidth,
        topology=machine.topology,
        nodes_per_switch=machine.nodes_per_switch,
        columns=columns,
        rails=rails,
    )


def _leaves(nodes: int, nodes_per_switch: int) -> int:
    return -(-nodes // nodes_per_switch)


def _walk(start: Any, stop: Any, size: int) -> list[tuple[Any, Any]]:
    """Positions passed round a ring of `size` the short way, with way 0 (up), 1 (down) or NO_LINK."""
    ahead = (stop - start) % size
    up = 2 * ahead <= size
    steps = np.where(up, ahead, size - ahead)
    direction = np.where(up, 1, -1)
    return [
        ((start + k * direction) % size, np.where(k < steps, np.where(up, 0, 1), NO_LINK))
        for k in range(int(steps.max(initial=0)))
    ]
