"""Allreduces for two-level machines, composed of flat ones.

Sources: Awan et al., "S-Caffe" (2017), section 5 (hierarchical); Mikami et al., "Massively distributed
SGD: ImageNet/ResNet-50 training in a flash" (2018), section 3.3 (2-D torus).
"""

from collections.abc import Iterator
from functools import lru_cache

import numpy as np

from lib_dlhpc.errors import SpecError, check_counts
from lib_dlhpc.schedules.algorithm import Algorithm
from lib_dlhpc.schedules.compose import beside, then, within
from lib_dlhpc.schedules.doubling import node_grid
from lib_dlhpc.schedules.network import Array, Cost, Network, depth, slowest
from lib_dlhpc.schedules.rings import cuts, ring, ring_allgather, ring_cost, ring_reduce_scatter
from lib_dlhpc.schedules.rounds import Round
from lib_dlhpc.schedules.trees import binomial_gather, binomial_scatter


def hierarchical(ranks: int, elements: int, node_size: int = 1) -> Iterator[Round]:
    """Allreduce: reduce to a leader in each node, ring between the leaders, broadcast in each node.

    Inside a node, g ranks reduce-scatter on a ring and gather to the leader; then the reverse:
    2 (g-1 + ceil(lg g)) alpha + 4 (g-1)/g n beta + (g-1)/g n gamma, plus the ring of p/g leaders.
    The last node may have fewer ranks.
    """
    check_counts(node_size=node_size)
    leaders, rank = range(0, ranks, node_size), np.arange(ranks)
    full = ranks - ranks % node_size
    alike = rank[:full].reshape(-1, node_size), rank[full:].reshape(1, -1)  # nodes of one size
    nodes = [node for node in alike if node.size]
    yield from beside(*(within(_to_leader(node.shape[1], elements), node) for node in nodes))
    yield from within(ring(len(leaders), elements), leaders)
    yield from beside(*(within(_from_leader(node.shape[1], elements), node) for node in nodes))


def torus_2d(ranks: int, elements: int, node_size: int = 1, columns: int = 0) -> Iterator[Round]:
    """Allreduce: reduce-scatter along the rows of a grid, allreduce along its columns, allgather along the rows.

    x columns, y = p/x rows: 2 (x-1 + y-1) alpha + 2 (p-1)/p n beta + (p-1)/p n gamma. columns: x; by
    default a row holds whole nodes and is as close as possible to sqrt(p).
    """
    x = columns or row_length(ranks, node_size)
    if x < 1 or ranks % x:
        raise SpecError(f"columns = {columns}: expected a divisor of the {ranks} ranks.")
    grid = np.arange(ranks).reshape(-1, x)
    cut = cuts(elements, x)
    down = (
        within(ring(len(grid), int(cut[i + 1] - cut[i])), grid[:, i], int(cut[i])) for i in range(x)
    )
    yield from within(ring_reduce_scatter(x, elements), grid)
    yield from beside(*down)
    yield from within(ring_allgather(x, elements), grid)


def row_length(ranks: int, node_size: int = 1) -> int:
    """Return g m, m the divisor of the number of nodes for which g m is closest to sqrt(ranks), by ratio.

    Of two as close the larger, as rows of a torus of nodes are. Raises SpecError if `ranks` are not whole nodes.
    """
    nodes = len(node_grid(ranks, node_size))
    return node_size * _divisor(nodes, node_size)


def _to_leader(ranks: int, elements: int) -> Iterator[Round]:
    yield from then(ring_reduce_scatter(ranks, elements), binomial_gather(ranks, elements))


def _from_leader(ranks: int, elements: int) -> Iterator[Round]:
    yield from then(binomial_scatter(ranks, elements), ring_allgather(ranks, elements))


def hierarchical_cost(n: Array, net: Network) -> Cost:
    """Reduce to a leader in each node, ring between the leaders, broadcast in each node (S-Caffe 2017)."""
    inside = _to_leader_and_back(n, net)
    across = ring_cost(n, net._replace(inner=net.inner._replace(ranks=1)))
    return Cost(*(a + b for a, b in zip(inside, across, strict=True)))


def torus_2d_cost(n: Array, net: Network) -> Cost:
    """Reduce-scatter along rows, ring allreduce along columns, allgather along rows (Mikami et al. 2018).

    A row holds whole nodes and is as close to sqrt(p) as the divisors of the number of nodes
    allow; the g devices of a node belong to different columns and share its NICs.
    """
    g, (nodes, a_out, b_out) = net.inner.ranks, net.outer
    row_nodes = _row_nodes(nodes, g)
    x, y = g * row_nodes, nodes / row_nodes
    rows = net._replace(
        outer=net.outer._replace(ranks=row_nodes),
        neighbors=lambda distance: net.neighbors(distance, row_nodes),
    )
    a_row, b_row = slowest(rows, n / x)
    latency = 2 * (x - 1) * a_row + 2 * (y - 1) * a_out
    b_out = b_out * net.neighbors(row_nodes)
    bandwidth = 2 * (x - 1) / x * n * b_row + 2 * (y - 1) / y * (n / x) * g * b_out
    reduction = ((x - 1) / x + (y - 1) / y / x) * n * net.gamma
    return Cost(latency, bandwidth, reduction)


def _to_leader_and_back(n: Array, net: Network) -> Cost:
    """Reduce (ring reduce-scatter, binomial gather) to one device of the node; then the reverse."""
    g, alpha, beta = net.inner
    fraction = (g - 1) / g
    return Cost(2 * (g - 1 + depth(g)) * alpha, 4 * fraction * n * beta, fraction * n * net.gamma)


def _row_nodes(nodes: Array, g: Array) -> Array:
    """Nodes in a row: the divisor m of `nodes` for which g m is closest to sqrt(g nodes), by ratio."""
    if np.ndim(nodes) == 0 and np.ndim(g) == 0:
        return _divisor(int(nodes), int(g))
    nodes, g = np.broadcast_arrays(nodes, g)
    pairs, inverse = np.unique(np.stack([nodes.ravel(), g.ravel()]), axis=1, return_inverse=True)
    best = np.array([_divisor(int(a), int(b)) for a, b in pairs.T])
    return best[inverse.ravel()].reshape(nodes.shape)


@lru_cache(maxsize=65536)
def _divisor(nodes: int, g: int) -> int:
    divisors = [m for m in range(1, nodes + 1) if nodes % m == 0]
    return min(divisors, key=lambda m: (round(abs(np.log(m * m * g / nodes)), 9), -m))


HIERARCHICAL = Algorithm(
    "hierarchical",
    "allreduce",
    hierarchical,
    hierarchical_cost,
    "hierarchical (node, then network)",
    "reduce in the node, ring between nodes, broadcast in the node; Awan et al. 2017 (S-Caffe)",
    by_node=True,
    phases=("hierarchical_reduce_scatter", "hierarchical_allgather"),
)
TORUS_2D = Algorithm(
    "torus_2d",
    "allreduce",
    torus_2d,
    torus_2d_cost,
    "2-D torus",
    "reduce-scatter along rows, ring along columns, allgather along rows; Mikami et al. 2018",
    by_node=True,
    options=("columns",),
    phases=("hierarchical_reduce_scatter", "hierarchical_allgather"),
)
