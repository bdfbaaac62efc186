"""How far messages between nodes contend for the links between switches.

All groups of a kind exchange at once: block after block of the nodes, in rank order. What they load most is a link of
the topology (costs/platform.py has them all):

    fat-tree, rails  the uplinks of a leaf switch, those of one rail
    dragonfly        the links from one group to another; minimal routing takes no others
    torus            one link of a node; row-major nodes, along the row first, then the column, the short way

A load is in messages, each of which a node could send at the rate of its NICs. Where blocks begin at the edge of a
switch it follows from a formula; elsewhere messages are counted. Blocks may then differ: those of one stage of a
pipeline are as slow as the links that their own messages cross, with what all blocks send over these.
"""

from collections.abc import Callable
from functools import lru_cache, partial
from math import lcm
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from lib_dlhpc.arrays import Floats, Ints
from lib_dlhpc.schedules.doubling import fold
from lib_dlhpc.spec.machine import RAILS, Machine

TREES = ("fat-tree", *RAILS)
MESSAGES = 2**24  # of an all-to-all that are counted: of a larger one, those of some steps
STEPS = 64  # at least
Loads = Callable[..., NDArray[Any]]  # (topology, nodes of a switch, ...) -> of each round


class NodeRange(NamedTuple):
    """Neighboring nodes, or ranks, whose groups count: the first and how many; 0: all.

    beside: what each as many send meanwhile, as a part of what these send; (): as much.
    """

    first: int
    many: int
    beside: tuple[float, ...] = ()


ALL = NodeRange(0, 0)


class Switches(NamedTuple):
    """The fields of a machine that decide what links between switches carry."""

    topology: str
    nodes: Any
    nodes_per_switch: Any
    oversubscription: Any


def last_axis(value: Any) -> Any:
    """Give an array one more, last, axis: room for buckets or layers. Scalars need none."""
    return value[..., None] if isinstance(value, np.ndarray) and value.ndim else value


def congestion(
    machine: Machine,
    nodes: Any,
    distance: int,
    many: Any = None,
    step: Any = 1,
    node_range: NodeRange = ALL,
) -> Any:
    """Slow-down while nodes exchange in pairs, each with the one `distance` places away in its group.

    Groups have `many` nodes (default: all) that are `step` apart. Those beyond a power of two have folded into a
    neighbor and take no part; distance 0: they fold. own: the blocks that count, here and below.
    """
    return _slowdown(
        machine, _paired, nodes, nodes if many is None else many, step, distance, own=node_range
    )


def shifted(
    machine: Machine, nodes: Any, block: Any, distance: Any, node_range: NodeRange = ALL
) -> Any:
    """Slow-down when, in each block of `block` of the nodes, all send `distance` nodes on, round its end.

    So a ring sends, and an all-to-all in each of its steps.
    """
    return _slowdown(machine, _shifted, nodes, block, distance, own=node_range)


def all_to_all_steps(
    machine: Machine, nodes: Any, many: Any, step: int = 1, node_range: NodeRange = ALL
) -> Any:
    """Slow-down of an all-to-all of `many` nodes at a distance of `step`: the mean of its steps, see `shifted`.

    No link has work from two steps at once.
    """
    return _slowdown(machine, _all_shifted, nodes, many, step, own=node_range)


def tree_congestion(
    machine: Machine,
    nodes: Any,
    many: Any,
    step: Any,
    distance: int = 0,
    node_range: NodeRange = ALL,
) -> Any:
    """Slow-down of double binary trees over groups of `many` nodes, `step` apart: the mean of rounds.

    distance: of the one round of a binomial tree, whose nodes send that far on.
    """
    return _slowdown(machine, _in_trees, nodes, many, step, distance, own=node_range)


def are_alike(machine: Machine, nodes: int, block: int) -> bool:
    """Whether blocks of `block` of the nodes, one after another, cross the links between switches alike; no arrays."""
    if nodes <= block or not shares_links(machine):
        return True
    if machine.topology == "torus":
        columns = _columns(nodes)
        return (block % columns == 0 or columns % block == 0) and nodes % block == 0
    group = int(machine.nodes_per_switch)
    return block % group == 0 or group % block == 0


def shares_links(machine: Machine | Switches) -> bool:
    """Whether messages of different nodes can meet on a link between switches that is too slow for all; no arrays."""
    full = machine.topology in TREES and machine.oversubscription <= 1
    return machine.topology != "single-switch" and not full


def sent_on(machine: Machine, nodes: int, source: Ints, target: Ints, share: Floats) -> float:
    """Slow-down while some nodes send to others; share: of what a node can send, for each message."""
    if not shares_links(machine):
        return 1.0
    on = machine.topology, int(machine.nodes_per_switch), nodes
    most = _busiest(*on, source, target, share, np.ones(len(source), bool))
    return float(np.maximum(_relative(machine, most), 1.0))


def global_link(machine: Machine | Switches) -> Any:
    """Return how many nodes' NICs the links from one group of a dragonfly to another carry at full rate.

    All links of a group together carry what its nodes send over the oversubscription; there are equally many to each
    other group. Source: Kim, Dally, Scott & Abts, "Technology-driven, highly-scalable dragonfly topology" (2008).
    """
    group = machine.nodes_per_switch
    others = np.maximum(np.ceil(np.divide(machine.nodes, group)) - 1, 1)
    return group / machine.oversubscription / others


def columns_of(nodes: Any) -> Any:
    """Return the columns of a torus: the smallest divisor of `nodes` that is at least its square root."""
    return np.vectorize(_columns, otypes=[np.int64])(nodes)[()]


@lru_cache(maxsize=4096)
def _columns(nodes: int) -> int:
    return next(c for c in range(1, nodes + 1) if nodes % c == 0 and c * c >= nodes)


def _slowdown(machine: Machine, loads: Loads, *where: Any, own: NodeRange = ALL) -> Any:
    """Return the mean of the rounds' slow-downs, none below 1; of arrays element by element."""
    sizes = machine.nodes, machine.nodes_per_switch, machine.oversubscription
    if machine.topology == "single-switch" or (
        np.ndim(sizes[2]) == 0 and not shares_links(machine)
    ):
        return 1.0
    fields = (machine.topology, *(last_axis(size) for size in sizes), loads, *where)
    if all(np.ndim(field) == 0 for field in fields):
        return _mean(own, *fields)
    return np.vectorize(partial(_mean, own), otypes=[np.float64])(*fields)[()]


@lru_cache(maxsize=16384)
def _mean(
    node_range: NodeRange,
    topology: str,
    nodes: int,
    group: int,
    over: float,
    loads: Loads,
    *where: int,
) -> float:
    on = Switches(topology, nodes, group, over)
    if not shares_links(on) or (topology in TREES and where[0] <= group):
        return 1.0
    slower = np.maximum(
        _relative(on, loads(topology, int(group), *map(int, where), node_range)), 1.0
    )
    return float(slower.mean()) if slower.size else 1.0


def _relative(on: Machine | Switches, load: Any) -> Any:
    """Return how many times as long as one message between two NICs `load` messages take on one link."""
    if on.topology == "torus":
        return load
    if on.topology == "dragonfly":
        return load / global_link(on)
    return load / on.nodes_per_switch * on.oversubscription


@lru_cache(maxsize=4096)
def _shifted(
    topology: str, group: int, nodes: int, block: int, distance: int, node_range: NodeRange
) -> NDArray[Any]:
    return _shifts(topology, group, nodes, block, np.array([distance]), node_range)


@lru_cache(maxsize=1024)
def _all_shifted(
    topology: str, group: int, nodes: int, many: int, step: int, node_range: NodeRange
) -> NDArray[Any]:
    return _shifts(topology, group, nodes, many * step, step * np.arange(1, many), node_range)


def _shifts(
    topology: str, group: int, nodes: int, block: int, distance: Ints, node_range: NodeRange
) -> NDArray[Any]:
    """Return the loads of shifts by each distance; of some, where all would be too many to count."""
    if topology == "torus" and block == nodes:
        return _hops(nodes // _columns(nodes), _columns(nodes), distance)
    aligned = block % group == 0 or group % block == 0
    if topology in TREES and (aligned or block >= nodes):
        most = min(group, max(block - group, 0))
        return np.minimum(np.minimum(distance, block - distance), most)
    if topology == "dragonfly" and aligned:
        on, over = np.divmod(distance, group)
        groups = -(-block // group)
        near = np.where(np.mod(on, groups) > 0, group - over, 0)
        return np.maximum(near, np.where(np.mod(on + 1, groups) > 0, over, 0))
    places = np.arange(block)
    placed = topology, group, nodes, block, 1, node_range
    most = max(STEPS, MESSAGES // nodes)
    if len(distance) > most:  # by the golden ratio: steps at equal distances may be alike
        place = np.arange(most) * ((5**0.5 - 1) / 2) % 1
        distance = distance[np.unique((place * len(distance)).astype(np.int64))]
    return np.array([_counted(*placed, places, (places + shift) % block) for shift in distance])


def _hops(rows: int, columns: int, distance: Ints) -> NDArray[Any]:
    """Return the messages on the busiest link of a torus whose nodes all send `distance` nodes on."""
    down, right = np.divmod(np.mod(distance, rows * columns), columns)
    further = (down + (right > 0)) % rows  # of those beyond the end of their row
    most = np.maximum(np.minimum(down, rows - down), np.minimum(further, rows - further))
    return np.maximum(most, np.minimum(right, columns - right))


@lru_cache(maxsize=4096)
def _paired(
    topology: str,
    group: int,
    nodes: int,
    many: int,
    step: int,
    distance: int,
    node_range: NodeRange,
) -> NDArray[Any]:
    source, surplus, host = fold(many)
    if distance == 0:
        source, target = surplus, host
    else:
        places = np.arange(len(source))
        partner = np.where(places // distance % 2, places - distance, places + distance)
        inside = partner < len(source)
        source, target = source[inside], source[partner[inside]]
    return np.array(
        [_counted(topology, group, nodes, many * step, step, node_range, source, target)]
    )


@lru_cache(maxsize=1024)
def _in_trees(
    topology: str,
    group: int,
    nodes: int,
    many: int,
    step: int,
    distance: int,
    node_range: NodeRange,
) -> NDArray[Any]:
    placed = topology, group, nodes, many * step, step, node_range
    if distance:
        child = np.arange(distance, many, 2 * distance)
        rounds = [(child, child - distance)]
    else:
        from lib_dlhpc.schedules.double_tree import rounds_up  # nothing else needs it

        rounds = rounds_up(many)
    if topology == "torus":  # elsewhere what goes down loads as many links
        rounds = rounds + [(parent, child) for child, parent in rounds]
    return np.array([_counted(*placed, *pairs) for pairs in rounds])


def _counted(
    topology: str,
    group: int,
    nodes: int,
    block: int,
    step: int,
    node_range: NodeRange,
    source: Ints,
    target: Ints,
) -> float:
    """Return the load while places of a group send to others: all groups of all blocks, until placement repeats."""
    blocks = max(1, nodes // block)
    if topology != "torus" and not node_range.beside:
        blocks = min(blocks, lcm(block, group) // block)
    first = (np.arange(blocks)[:, np.newaxis] * block + np.arange(step)).reshape(-1, 1)
    sent, counts = parts_of(node_range, block, blocks)
    source, target = ((first + step * per_block).ravel() for per_block in (source, target))
    per_block = len(source) // blocks
    parts = np.repeat(sent, per_block), np.repeat(counts, per_block)
    return _busiest(topology, group, nodes, source, target, *parts)


def parts_of(node_range: NodeRange, block: int, blocks: int) -> tuple[Floats, NDArray[np.bool_]]:
    """Return of each block what it sends, as a part of what those send that count, and whether it counts."""
    first, many, beside = node_range
    counts = np.full(blocks, not many)
    counts[np.arange(first // block, (first + many) // block) % blocks] = True
    sent = np.repeat(beside, many // block) if beside else np.ones(blocks)
    return sent, counts


def _busiest(
    topology: str,
    group: int,
    nodes: int,
    source: Ints,
    target: Ints,
    share: Floats,
    counts: NDArray[np.bool_],
) -> float:
    """Return the messages, each counted by its share, on the link between switches that has the most.

    counts: whether the links of each message are looked at.
    """
    if topology == "torus":
        return _busiest_of_torus(nodes, source, target, share, counts)
    here, there = source // group, target // group
    leaves = here != there
    here, there, share, counts = here[leaves], there[leaves], share[leaves], counts[leaves]
    if topology == "dragonfly":
        return _most(here * (1 + there.max(initial=0)) + there, share, counts)
    return max(_most(here, share, counts), _most(there, share, counts))


def _busiest_of_torus(
    nodes: int, source: Ints, target: Ints, share: Floats, counts: NDArray[np.bool_]
) -> float:
    columns, most = _columns(nodes), 0.0
    (row, column), (to_row, to_column) = np.divmod(source, columns), np.divmod(target, columns)
    along = row, column, to_column, columns
    for way in (along, (to_column, row, to_row, nodes // columns)):
        load = _on_rings(*way, share)
        if not counts.all():
            load = load[_on_rings(*way, counts.astype(float)) > 0]
        most = max(most, float(load.max(initial=0.0)))
    return most


def _on_rings(ring: Ints, start: Ints, stop: Ints, size: int, share: Floats) -> Floats:
    """Return the load of all links of rings of `size` nodes: a message adds its share at its first link and takes it
    off behind."""
    ahead = (stop - start) % size
    up = 2 * ahead <= size
    hops = np.where(up, ahead, size - ahead)
    first = np.where(up, start, (start - hops + 1) % size)
    port = 2 * size * (2 * ring + up) + first  # twice each ring, as messages may pass its end
    room = 4 * size * (int(ring.max(initial=0)) + 1)
    ends = np.bincount(np.append(port, port + hops), np.append(share, -share), room)
    twice = np.cumsum(ends.reshape(-1, 2 * size), axis=1)
    return np.asarray(twice[:, :size] + twice[:, size:])


def _most(link: Ints, share: Floats, counts: NDArray[np.bool_]) -> float:
    return float(np.bincount(link, share)[link[counts]].max(initial=0.0))
