"""Double binary tree: each tree carries half the buffer; inner nodes of one are leaves of the other.

Source: Sanders, Speck & Träff, "Two-tree algorithms for full bandwidth broadcast, reduction and scan"
(2009), sections 2 and 3.
"""

from collections import defaultdict
from collections.abc import Iterator
from functools import lru_cache, partial
from typing import NamedTuple

import numpy as np

from lib_dlhpc.arrays import Ints
from lib_dlhpc.schedules.algorithm import Algorithm
from lib_dlhpc.schedules.compose import within
from lib_dlhpc.schedules.doubling import node_grid
from lib_dlhpc.schedules.levels import between
from lib_dlhpc.schedules.network import Array, Cost, Network, whole_rounds
from lib_dlhpc.schedules.rings import cuts, ring_allgather, ring_reduce_scatter
from lib_dlhpc.schedules.rounds import Round, messages

SEGMENTS = 8  # of the half of a buffer that a tree carries


class Edge(NamedTuple):
    """An edge from child to parent in tree 0 or 1; `height` is the child's."""

    tree: int
    child: int
    parent: int
    height: int


def double_binary_tree(
    ranks: int, elements: int, segments: int = SEGMENTS, node_size: int = 1
) -> Iterator[Round]:
    """Allreduce: reduce up both trees in s segments, then broadcast down both.

    About 4 (lg p + s) alpha + 2 (1 + lg p / s) n beta + (1 + lg p / s) n gamma: with many segments
    the bandwidth of a ring, at a latency that grows with lg p only. At most n/2 segments. node_size: rings in each
    node, trees between ranks of equal local rank.
    """
    nodes = node_grid(ranks, node_size)
    yield from within(ring_reduce_scatter(node_size, elements), nodes)
    yield from between(partial(_both_trees, segments=segments), nodes, elements)
    yield from within(ring_allgather(node_size, elements), nodes)


def steps(ranks: Array, segments: Array) -> Array:
    """Return the rounds of the reduction: those up to the root, and two for each further segment.

    An edge at height h has rounds 2 h and 2 h + 1, and the root of 2^q <= p ranks hears of height q - 1. Where only one
    child is that high (p < 1.5 2^q), the first of its two rounds is enough; if p = 1 modulo 4, but not 2^q + 1, that
    depends on how the trees meet, and both are counted: at most one round too many.
    """
    q, _ = whole_rounds(ranks)
    saved = (2 * ranks < 3 * 2.0**q) & ((ranks % 4 != 1) | (ranks == 2.0**q + 1))
    many = 2 * segments + 2 * (q - 1) - saved
    return np.where(ranks > 2, many, (ranks > 1) * segments)[()]


def double_binary_tree_cost(n: Array, net: Network, segments: int = SEGMENTS) -> Cost:
    """Rings in each node, both trees between nodes."""
    (g, a_in, b_in), (nodes, a_out, b_out) = net.inner, net.outer
    part, up = (g - 1) / g, steps(nodes, segments)
    piece = n / (2 * segments)
    latency = 2 * (g - 1) * a_in + 2 * up * a_out
    bandwidth = 2 * part * n * b_in + 2 * up * piece * b_out * net.trees()
    return Cost(latency, bandwidth, (part * n + up * piece / g) * net.gamma)


@lru_cache(maxsize=16)
def rounds_up(ranks: int) -> list[tuple[Ints, Ints]]:
    """Return children and parents of each round of the reduction."""
    up = _steps_up(ranks, SEGMENTS)
    return [_columns(up[step])[:2] for step in sorted(up)]


def _both_trees(ranks: int, elements: int, segments: int) -> Iterator[Round]:
    per_tree = max(1, min(segments, elements // 2))
    cut = cuts(elements, 2 * per_tree)
    up = _steps_up(ranks, per_tree)
    for step in sorted(up):
        child, parent, segment = _columns(up[step])
        yield messages(child, parent, cut[segment], cut[1:][segment] - cut[segment], True)
    for step in sorted(up, reverse=True):
        child, parent, segment = _columns(up[step])
        yield messages(parent, child, cut[segment], cut[1:][segment] - cut[segment], False)


def _steps_up(ranks: int, per_tree: int) -> dict[int, list[tuple[Edge, int]]]:
    """Return by step which edges carry which segment to a parent."""
    # A child at height h sends segment k up at step 2 (h + k) + side: a parent receives from its
    # children alternately, and has both segments before it sends its own.
    up: dict[int, list[tuple[Edge, int]]] = defaultdict(list)
    for edge, side in _two_colored(_edges(ranks)).items():
        for k in range(per_tree):
            up[2 * (edge.height + k) + side].append((edge, edge.tree * per_tree + k))
    return up


def _columns(sends: list[tuple[Edge, int]]) -> tuple[Ints, Ints, Ints]:
    rows = np.array([(edge.child, edge.parent, segment) for edge, segment in sends])
    return rows[:, 0], rows[:, 1], rows[:, 2]


def _edges(ranks: int) -> list[Edge]:
    """Both trees: positions 1 .. p in order, odd ones are leaves; the second is the first shifted by one rank."""
    edges = []
    for position in range(1, ranks + 1):
        height = (position & -position).bit_length() - 1
        parent = _parent(position, ranks)
        if parent:
            for tree in (0, 1):
                child, above = (position - 1 - tree) % ranks, (parent - 1 - tree) % ranks
                edges.append(Edge(tree, child, above, height))
    return edges


def _parent(position: int, ranks: int) -> int:
    """The parent in the in-order tree of 1 .. ranks; 0 for the root, the largest power of two."""
    if position == 1 << (ranks.bit_length() - 1):
        return 0
    while True:
        bit = position & -position
        position = (position & ~bit) | (bit << 1)
        if position <= ranks:  # else that rank does not exist: use its parent
            return position


def _two_colored(edges: list[Edge]) -> dict[Edge, int]:
    """Assign step parity 0 or 1 to each edge: a parent's two children differ, and so do a child's two parents.

    Each rule pairs edges, so the pairs form paths and even cycles, which are two-colorable.
    """
    sibling: dict[tuple[int, int], list[Edge]] = defaultdict(list)
    edges_of: dict[int, list[Edge]] = defaultdict(list)
    for edge in edges:
        sibling[edge.tree, edge.parent].append(edge)
        edges_of[edge.child].append(edge)
    color: dict[Edge, int] = {}
    # The highest edges come first, and get the first of the two steps if possible.
    for start in sorted(edges, key=lambda edge: -edge.height):
        open_ = [(start, 0)]
        while open_:
            edge, side = open_.pop()
            if edge not in color:
                color[edge] = side
                near = sibling[edge.tree, edge.parent] + edges_of[edge.child]
                open_ += [(other, 1 - side) for other in near if other != edge]
    return color


DOUBLE_BINARY_TREE = Algorithm(
    "double_binary_tree",
    "allreduce",
    double_binary_tree,
    double_binary_tree_cost,
    "double binary tree",
    "2 R α + R/s n β + R/2s n γ, R = 2 (s + ⌊lg p⌋ - 1) or one less; Sanders, Speck & Träff 2009",
    by_node=True,
    options=("segments",),
)
