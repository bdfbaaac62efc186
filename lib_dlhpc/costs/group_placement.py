"""Which groups of one kind lie alike on nodes and on the switches of the topology.

Groups come in blocks of neighboring ranks, one block after another. A block inside a node, or on one leaf switch, loads
no link that others use. Others differ by where they begin, until that repeats: at the edge of a node, or of a switch.
"""

from functools import lru_cache
from math import lcm

from lib_dlhpc.costs.network import joined
from lib_dlhpc.costs.switch_contention import ALL, NodeRange, are_alike, shares_links
from lib_dlhpc.costs.uneven_groups import is_placed
from lib_dlhpc.keyed import Keyed
from lib_dlhpc.spec.machine import RAILS, Machine

Where = tuple[Keyed[Machine], int, int, int, int]  # devices of a node, nodes, ranks, apart


@lru_cache(maxsize=4096)
def representative(where: Where, node_range: NodeRange) -> NodeRange:
    """Return the first ranks, as many as given, whose groups lie as theirs do; ALL where all groups lie so.

    node_range: ranks of one stage. With what others send beside them, they stay themselves if these matter, or stages
    as near the first ones as lie alike, if only those on the same nodes do.
    """
    kinds, block = _kinds(where), where[3] * where[4]
    if not any(kinds) or node_range.many % block:  # groups that span stages are refused later
        return ALL
    many = node_range.many // block
    if many % len(kinds) == 0:  # they begin and end at an edge
        return ALL

    def those(first: int) -> set[int]:
        return {kinds[index % len(kinds)] for index in range(first, first + many)}

    same = those(node_range.first // block)
    if node_range.beside and same != {0}:
        if not shares_links(where[0].value):
            node_range = _on_its_nodes(where, node_range)
        if node_range.beside:
            return node_range
    if same == {*kinds}:
        return ALL
    first = next(
        index for index in range(0, node_range.first // block + 1, many) if those(index) == same
    )
    return NodeRange(first * block, node_range.many)


def _on_its_nodes(where: Where, own: NodeRange) -> NodeRange:
    """Return the first ranks that lie on nodes as these do, with what stages on the same nodes send; (): as much."""
    _, _, devices = joined(where[0].value, where[2], where[1])
    first, last = own.first // devices, (own.first + own.many - 1) // devices
    low, high = first * devices // own.many, ((last + 1) * devices - 1) // own.many
    near = own.beside[low : high + 1]
    if min(near) == 1:
        return own._replace(beside=())
    again = lcm(own.many, devices)  # ranks until stages lie as the first one
    skipped = own.first // again * again
    before = (0.0,) * (low - skipped // own.many)
    return NodeRange(own.first - skipped, own.many, before + near)


@lru_cache(maxsize=512)
def group_ranges(where: Where) -> tuple[NodeRange, ...]:
    """Return the ranks of one block of each kind, while no other sends; ALL where all groups lie alike."""
    kinds, block = _kinds(where), where[3] * where[4]
    if len({*kinds}) == 1:
        return (ALL,)
    many = where[1] * where[2] // block
    first = [kinds.index(kind) for kind in sorted({*kinds})]
    return tuple(
        NodeRange(at * block, block, tuple(float(other == at) for other in range(many)))
        for at in first
    )


@lru_cache(maxsize=512)
def _kinds(where: Where) -> tuple[int, ...]:
    """Return how each block lies, until that repeats: 0 inside a node or a switch."""
    on, devices, nodes, ranks, rank_stride = where
    machine, nodes, devices = joined(on.value, nodes, devices)
    torus, leaf = machine.topology == "torus", int(machine.nodes_per_switch)
    switch, block = nodes if torus else leaf, ranks * rank_stride
    if is_placed(machine, devices, nodes, ranks, rank_stride):
        of_nodes = max(1, block // devices)
        if are_alike(machine, nodes, of_nodes):
            return (0,)
        return _numbered(of_nodes, nodes, switch, 1 if torus else leaf)
    # What goes from rail to rail may pass links inside a node.
    inside = 0 if machine.topology in RAILS else devices
    period = devices * switch if shares_links(machine) else devices
    return _numbered(block, nodes * devices, period, inside)


def _numbered(block: int, total: int, period: int, inside: int) -> tuple[int, ...]:
    """Number the blocks of `total` until they repeat; 0: between two edges that are `inside` apart."""
    many = max(1, min(total, lcm(block, period)) // block)
    first = range(0, many * block, block)
    return tuple(
        0 if inside and at // inside == (at + block - 1) // inside else number
        for number, at in enumerate(first, 1)
    )
