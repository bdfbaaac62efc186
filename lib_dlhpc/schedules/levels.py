"""Reduce-scatter and allgather level by level: inside each node, then between ranks of equal local rank.

A message then has the alpha of its level, and data leaves a node only once. Rank i of node j owns block i N + j of
g N blocks (N nodes of g ranks), so the data of a level is contiguous. A level runs either a ring or partners at
doubling distance: recursive halving and doubling for 2^q partners, Bruck's circulant graph for others. Both move
(p-1)/p n; rings use only neighbors, the others take ceil(lg p) steps.

Sources: Thakur, Rabenseifner & Gropp (2005), sections 4.1 and 4.4; Bruck, Ho, Kipnis, Upfal & Weathersby (1997),
section 4; Träff, "Optimal, non-pipelined reduce-scatter and allreduce algorithms" (2024) for sums on that graph;
Cho et al., "BlueConnect" (2019), for one ring a level.
"""

from collections.abc import Callable, Iterator

import numpy as np

from lib_dlhpc.arrays import Ints
from lib_dlhpc.schedules.algorithm import Algorithm
from lib_dlhpc.schedules.compose import beside, then, within
from lib_dlhpc.schedules.doubling import node_grid
from lib_dlhpc.schedules.exchange import bruck_allgather
from lib_dlhpc.schedules.network import Array, Cost, Network, depth, over_rounds, whole_rounds
from lib_dlhpc.schedules.rings import cuts, ring_allgather, ring_reduce_scatter
from lib_dlhpc.schedules.rounds import Round, Rounds, messages

Flat = Callable[[int, int], Rounds]  # (ranks, elements) -> rounds


def hierarchical_ring(ranks: int, elements: int, node_size: int = 1) -> Iterator[Round]:
    """Allreduce: ring reduce-scatter in each node, then between nodes; allgather in reverse order."""
    yield from then(
        hierarchical_reduce_scatter(ranks, elements, node_size),
        hierarchical_allgather(ranks, elements, node_size),
    )


def halving_doubling(ranks: int, elements: int, node_size: int = 1) -> Iterator[Round]:
    """Allreduce: a reduce-scatter by halving and an allgather by doubling, for any number of ranks."""
    yield from then(
        halving_reduce_scatter(ranks, elements, node_size),
        doubling_allgather(ranks, elements, node_size),
    )


def hierarchical_reduce_scatter(ranks: int, elements: int, node_size: int = 1) -> Iterator[Round]:
    """Reduce-scatter: a ring in each node, then rings between nodes.

    (g-1) a_in + (N-1) a_out + n ((g-1)/g b_in + (N-1)/N b_out), b_out of all NICs of a node.
    """
    nodes = node_grid(ranks, node_size)
    yield from within(ring_reduce_scatter(node_size, elements), nodes)
    yield from between(ring_reduce_scatter, nodes, elements)


def hierarchical_allgather(ranks: int, elements: int, node_size: int = 1) -> Iterator[Round]:
    """Allgather: rings between nodes, then a ring in each node; the same cost without reduction."""
    nodes = node_grid(ranks, node_size)
    yield from between(ring_allgather, nodes, elements)
    yield from within(ring_allgather(node_size, elements), nodes)


def halving_reduce_scatter(ranks: int, elements: int, node_size: int = 1) -> Iterator[Round]:
    """Reduce-scatter by recursive halving, in each node and then between nodes.

    L(g) a_in + L(N) a_out + n ((g-1)/g b_in + (N-1)/N b_out); L(p) = ceil(lg p).
    """
    nodes = node_grid(ranks, node_size)
    yield from within(_halving(node_size, elements), nodes)
    yield from between(_halving, nodes, elements)


def doubling_allgather(ranks: int, elements: int, node_size: int = 1) -> Iterator[Round]:
    """Allgather by recursive doubling, between nodes and then in each node."""
    nodes = node_grid(ranks, node_size)
    yield from between(_doubling, nodes, elements)
    yield from within(_doubling(node_size, elements), nodes)


def shards(ranks: int, elements: int, node_size: int = 1) -> tuple[Ints, Ints]:
    """Return the offsets of the blocks, (ranks + 1,), and their owners, (ranks,)."""
    nodes, cut = node_grid(ranks, node_size), cuts(elements, node_size)
    first = [cut[i] + cuts(int(cut[i + 1] - cut[i]), len(nodes))[:-1] for i in range(node_size)]
    return np.concatenate([*first, [elements]]), nodes.T.ravel()


def between(flat: Flat, nodes: Ints, elements: int) -> Iterator[Round]:
    """Run `flat` between ranks of equal local rank, each group on its part of the buffer."""
    cut = cuts(elements, nodes.shape[1])
    yield from beside(
        *(
            within(flat(len(nodes), int(cut[i + 1] - cut[i])), nodes[:, i], int(cut[i]))
            for i in range(nodes.shape[1])
        )
    )


def _doubling(ranks: int, elements: int) -> Iterator[Round]:
    """Allgather on one level, the nearest partner first."""
    if ranks & (ranks - 1):
        yield from bruck_allgather(ranks, elements)
        return
    cut, rank = cuts(elements, ranks), np.arange(ranks)
    for distance in [2**k for k in range(ranks.bit_length() - 1)]:
        first = rank & -distance
        yield messages(rank, rank ^ distance, cut[first], cut[first + distance] - cut[first], False)


def _halving(ranks: int, elements: int) -> Iterator[Round]:
    """Reduce-scatter on one level: the reversed allgather, as each block's broadcast tree reduces it too."""
    for part in reversed(list(_doubling(ranks, elements))):
        yield messages(part.target, part.source, part.offset, part.count, True)


def hierarchical_allgather_cost(n: Array, net: Network) -> Cost:
    """A ring on each level."""
    (g, a_in, b_in), (nodes, a_out, b_out) = net.inner, net.outer
    latency = (g - 1) * a_in + (nodes - 1) * a_out
    b_out = b_out * net.neighbors(1)
    return Cost(latency, n * ((g - 1) / g * b_in + (nodes - 1) / nodes * b_out), 0.0 * n)


def doubling_allgather_cost(n: Array, net: Network) -> Cost:
    """Partners at distances 1, 2, 4 ... on each level; messages grow with the distance."""
    (g, a_in, b_in), (nodes, a_out, b_out) = net.inner, net.outer
    rounds = depth(nodes)
    paired = rounds == whole_rounds(nodes)[0]

    def met(distance: int) -> Array:
        """Return the slowdown by others: of pairs, or on the graph of other numbers of nodes."""
        if np.ndim(paired):
            return np.where(paired, net.congestion(distance), net.neighbors(distance))
        return net.congestion(distance) if paired else net.neighbors(distance)

    def share(k: int) -> Array:
        return np.minimum(2.0**k, np.maximum(nodes - 2.0**k, 0)) / nodes

    far = over_rounds(rounds, net._replace(congestion=met), share)
    latency = depth(g) * a_in + rounds * a_out
    return Cost(latency, n * ((g - 1) / g * b_in + far * b_out), 0.0 * n)


def _summed(cost: Cost, n: Array, net: Network) -> Cost:
    """Return the cost of the reduce-scatter that reverses an allgather."""
    g, nodes = net.inner.ranks, net.outer.ranks
    return cost._replace(reduction=((g - 1) / g + (nodes - 1) / nodes / g) * n * net.gamma)


def hierarchical_reduce_scatter_cost(n: Array, net: Network) -> Cost:
    """A ring on each level, with reduction."""
    return _summed(hierarchical_allgather_cost(n, net), n, net)


def halving_reduce_scatter_cost(n: Array, net: Network) -> Cost:
    """Partners at halving distances on each level, with reduction."""
    return _summed(doubling_allgather_cost(n, net), n, net)


def hierarchical_ring_cost(n: Array, net: Network) -> Cost:
    """Reduce-scatter plus allgather."""
    return hierarchical_reduce_scatter_cost(n, net) + hierarchical_allgather_cost(n, net)


def halving_doubling_cost(n: Array, net: Network) -> Cost:
    """Reduce-scatter plus allgather."""
    return halving_reduce_scatter_cost(n, net) + doubling_allgather_cost(n, net)


RINGS = "hierarchical rings (one per level)"
HALVING = "halving and doubling on each level"
RINGS_COST = (
    "(g-1) α_in + (N-1) α_out + n ((g-1)/g β_in + (N-1)/N β_out); Cho et al. 2019 (BlueConnect)"
)
HALVING_COST = (
    "L(g) α_in + L(N) α_out + n ((g-1)/g β_in + (N-1)/N β_out), L(p) = ceil(lg p);"
    " Thakur, Rabenseifner & Gropp 2005, Bruck et al. 1997"
)
HIERARCHICAL_RING = Algorithm(
    "hierarchical_ring",
    "allreduce",
    hierarchical_ring,
    hierarchical_ring_cost,
    RINGS,
    "twice " + RINGS_COST,
    by_node=True,
    phases=("hierarchical_reduce_scatter", "hierarchical_allgather"),
)
HALVING_DOUBLING = Algorithm(
    "halving_doubling",
    "allreduce",
    halving_doubling,
    halving_doubling_cost,
    HALVING,
    "twice " + HALVING_COST,
    by_node=True,
    phases=("halving_reduce_scatter", "doubling_allgather"),
)
HIERARCHICAL_REDUCE_SCATTER = Algorithm(
    "hierarchical_reduce_scatter",
    "reduce_scatter",
    hierarchical_reduce_scatter,
    hierarchical_reduce_scatter_cost,
    RINGS,
    RINGS_COST,
    by_node=True,
)
HALVING_REDUCE_SCATTER = Algorithm(
    "halving_reduce_scatter",
    "reduce_scatter",
    halving_reduce_scatter,
    halving_reduce_scatter_cost,
    HALVING,
    HALVING_COST,
    by_node=True,
)
HIERARCHICAL_ALLGATHER = Algorithm(
    "hierarchical_allgather",
    "allgather",
    hierarchical_allgather,
    hierarchical_allgather_cost,
    RINGS,
    RINGS_COST,
    by_node=True,
)
DOUBLING_ALLGATHER = Algorithm(
    "doubling_allgather",
    "allgather",
    doubling_allgather,
    doubling_allgather_cost,
    HALVING,
    HALVING_COST,
    by_node=True,
)
