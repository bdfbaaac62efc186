"""Binomial trees and chains: reduce, broadcast, gather and scatter with any root.

Ranks are counted from the root: v = (rank - root) mod p. Sources: Chan, Heimlich, Purkayastha & van de
Geijn, "Collective communication: theory, practice, and experience" (2007), section 4 (binomial) and
section 5 (scatter and allgather); Thakur, Rabenseifner & Gropp (2005), section 4.2.
"""

from collections.abc import Iterator

import numpy as np

from lib_dlhpc.arrays import Ints
from lib_dlhpc.schedules.algorithm import Algorithm
from lib_dlhpc.schedules.compose import then, within
from lib_dlhpc.schedules.doubling import node_grid
from lib_dlhpc.schedules.network import Array, Cost, Network, depth, over_rounds
from lib_dlhpc.schedules.rings import cuts, ring_allgather
from lib_dlhpc.schedules.rounds import Round, messages


def binomial(ranks: int, elements: int, root: int = 0, node_size: int = 1) -> Iterator[Round]:
    """Allreduce: reduce to the root along a binomial tree, then broadcast down the same tree.

    2 ceil(lg p) (alpha + n beta) + ceil(lg p) n gamma. node_size: a tree in each node, and one over the
    nodes.
    """
    nodes = node_grid(ranks, node_size)
    (node, place), (count, size) = divmod(root, node_size), nodes.shape
    leaders = nodes[:, place]
    yield from within(binomial_reduce(size, elements, place), nodes)
    yield from within(binomial_reduce(count, elements, node), leaders)
    yield from within(binomial_broadcast(count, elements, node), leaders)
    yield from within(binomial_broadcast(size, elements, place), nodes)


def binomial_reduce(ranks: int, elements: int, root: int = 0) -> Iterator[Round]:
    """Reduce: at distance 1, 2, 4 ... every second active rank sends its partial sum and becomes inactive.

    ceil(lg p) (alpha + n beta + n gamma).
    """
    for child, parent in _pairs(ranks):
        yield from within([messages(child, parent, 0, elements, True)], _from(root, ranks))


def binomial_broadcast(ranks: int, elements: int, root: int = 0) -> Iterator[Round]:
    """Broadcast: the tree of the reduce from the root outward, the farthest partner first.

    ceil(lg p) (alpha + n beta).
    """
    for child, parent in reversed(_pairs(ranks)):
        yield from within([messages(parent, child, 0, elements, False)], _from(root, ranks))


def binomial_gather(ranks: int, elements: int) -> Iterator[Round]:
    """Gather block r of each rank r to rank 0; a rank forwards the blocks of its subtree.

    ceil(lg p) alpha + (p-1)/p n beta.
    """
    for child, parent, offset, count in _subtrees(ranks, elements):
        yield messages(child, parent, offset, count, False)


def binomial_scatter(ranks: int, elements: int) -> Iterator[Round]:
    """Scatter: block r of rank 0's buffer to each rank r; the reverse of the gather.

    ceil(lg p) alpha + (p-1)/p n beta.
    """
    for child, parent, offset, count in reversed(list(_subtrees(ranks, elements))):
        yield messages(parent, child, offset, count, False)


def van_de_geijn_broadcast(ranks: int, elements: int, root: int = 0) -> Iterator[Round]:
    """Broadcast of long messages: scatter the blocks, then allgather them on a ring.

    (ceil(lg p) + p - 1) alpha + 2 (p-1)/p n beta.
    """
    both = then(binomial_scatter(ranks, elements), ring_allgather(ranks, elements))
    yield from within(both, _from(root, ranks))


def chain_broadcast(
    ranks: int, elements: int, root: int = 0, segments: int = 16
) -> Iterator[Round]:
    """Broadcast along a chain of ranks in s segments, which keeps all links busy.

    (p + s - 2) (alpha + n/s beta); best s = sqrt((p-2) n beta / alpha). At most n segments.
    """
    pieces = max(1, min(segments, elements))
    cut = cuts(elements, pieces)
    for step in range(ranks + pieces - 2):
        v = np.arange(max(0, step - pieces + 1), min(step, ranks - 2) + 1)
        segment = step - v
        count = cut[segment + 1] - cut[segment]
        yield from within([messages(v, v + 1, cut[segment], count, False)], _from(root, ranks))


def _pairs(ranks: int) -> list[tuple[Ints, Ints]]:
    """Children and parents at distance 1, 2, 4 ..., in the order of a reduce."""
    pairs = []
    for distance in [2**k for k in range((ranks - 1).bit_length())]:
        child = np.arange(distance, ranks, 2 * distance)
        pairs.append((child, child - distance))
    return pairs


def _subtrees(ranks: int, elements: int) -> Iterator[tuple[Ints, Ints, Ints, Ints]]:
    """Children, parents, and the blocks of the children's subtrees (child .. child + distance - 1)."""
    cut = cuts(elements, ranks)
    for child, parent in _pairs(ranks):
        end = np.minimum(2 * child - parent, ranks)
        yield child, parent, cut[child], cut[end] - cut[child]


def _from(root: int, ranks: int) -> Ints:
    """The rank at distance v = 0, 1, 2 ... from the root."""
    return (np.arange(ranks) + root) % ranks


def binomial_cost(n: Array, net: Network) -> Cost:
    """Reduce to one root along a binomial tree, then broadcast down the same tree."""
    in_depth, out_depth = depth(net.inner.ranks), depth(net.outer.ranks)
    latency = 2 * (in_depth * net.inner.alpha + out_depth * net.outer.alpha)
    one_nic = net.outer.beta * net.lanes  # a leader has no others
    far = over_rounds(out_depth, net._replace(congestion=net.trees), lambda k: 1.0)
    bandwidth = 2 * n * (in_depth * net.inner.beta + far * one_nic)
    return Cost(latency, bandwidth, n * (in_depth + out_depth) * net.gamma)


BINOMIAL = Algorithm(
    "binomial",
    "allreduce",
    binomial,
    binomial_cost,
    "binomial reduce + broadcast",
    "2 lg p (α + n β) + lg p n γ; Thakur, Rabenseifner & Gropp 2005",
    by_node=True,
    options=("root",),
)
BINOMIAL_BROADCAST = Algorithm(
    "binomial_broadcast", "broadcast", binomial_broadcast, label="binomial tree", options=("root",)
)
VAN_DE_GEIJN_BROADCAST = Algorithm(
    "van_de_geijn_broadcast",
    "broadcast",
    van_de_geijn_broadcast,
    label="scatter + allgather",
    options=("root",),
)
CHAIN_BROADCAST = Algorithm(
    "chain_broadcast", "broadcast", chain_broadcast, label="chain", options=("root", "segments")
)
BINOMIAL_REDUCE = Algorithm(
    "binomial_reduce", "reduce", binomial_reduce, label="binomial tree", options=("root",)
)
