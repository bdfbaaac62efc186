"""Closed forms of every allreduce: alpha (latency), beta (1 / bandwidth) and gamma (reduction) terms.

A machine is seen as two levels: `inner.ranks` devices in a node, `outer.ranks` nodes. With one of the
two equal to 1 every form is the textbook's (Thakur, Rabenseifner & Gropp 2005, section 4, and
Chan et al. 2007), symbol for symbol:

    ring                2 (p-1) alpha + 2 (p-1)/p n beta + (p-1)/p n gamma
    recursive doubling  lg p (alpha + n beta + n gamma)
    Rabenseifner        2 lg p alpha + 2 (p-1)/p n beta + (p-1)/p n gamma
    binomial            2 lg p (alpha + n beta) + lg p n gamma
"""

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np

from lib_dlhpc.costs.network import Cost, Network, slowest

__all__ = ["ALGORITHMS", "Cost", "bus_bandwidth"]

Array = Any  # a float or a numpy array; everything here broadcasts


def ring(n: Array, net: Network) -> Cost:
    """Reduce-scatter and allgather round one ring of all devices; its slowest link sets the pace."""
    p = net.inner.ranks * net.outer.ranks
    alpha, beta = slowest(net)
    share = (p - 1) / p
    return Cost(2 * (p - 1) * alpha, 2 * share * n * beta, share * n * net.gamma)


def recursive_doubling(n: Array, net: Network) -> Cost:
    """Everyone exchanges everything with a partner 1, 2, 4 ... ranks away.

    Ranks beyond a power of two fold into a neighbour first and are told the result last. Between
    nodes all devices of a node exchange at once and share its NICs.
    """
    (g, a_in, b_in), (nodes, a_out, b_out) = net.inner, net.outer
    in_rounds, in_fold = _rounds(g)
    out_rounds, out_fold = _rounds(nodes)
    far = _over_rounds(out_rounds, net, lambda k: 1.0) + 2 * out_fold
    latency = (in_rounds + 2 * in_fold) * a_in + (out_rounds + 2 * out_fold) * a_out
    bandwidth = n * ((in_rounds + 2 * in_fold) * b_in + far * g * b_out)
    reduction = n * (in_rounds + in_fold + out_rounds + out_fold) * net.gamma
    return Cost(latency, bandwidth, reduction)


def rabenseifner(n: Array, net: Network) -> Cost:
    """Reduce-scatter by recursive halving, nearest partner first, then allgather by doubling.

    The nearest partners exchange the most, so what crosses the network is 1/g of the buffer from
    each of the g devices of a node: together one buffer through its NICs.
    """
    (g, a_in, b_in), (nodes, a_out, b_out) = net.inner, net.outer
    in_rounds, in_fold = _rounds(g)
    out_rounds, out_fold = _rounds(nodes)
    in_share = 1 - 0.5**in_rounds
    out_share = _over_rounds(out_rounds, net, lambda k: 0.5 ** (k + 1))
    latency = 2 * (in_rounds + in_fold) * a_in + 2 * (out_rounds + out_fold) * a_out
    bandwidth = 2 * n * ((in_share + in_fold) * b_in + (out_share + out_fold) * b_out)
    reduction = (
        n * (in_share + in_fold + (1 - 0.5**out_rounds + out_fold) / 2.0**in_rounds) * net.gamma
    )
    return Cost(latency, bandwidth, reduction)


def binomial(n: Array, net: Network) -> Cost:
    """Reduce to one root along a binomial tree, then broadcast down the same tree."""
    in_depth, out_depth = _depth(net.inner.ranks), _depth(net.outer.ranks)
    latency = 2 * (in_depth * net.inner.alpha + out_depth * net.outer.alpha)
    bandwidth = 2 * n * (in_depth * net.inner.beta + out_depth * net.outer.beta)
    return Cost(latency, bandwidth, n * (in_depth + out_depth) * net.gamma)


def hierarchical(n: Array, net: Network) -> Cost:
    """Reduce to a leader in each node, ring between the leaders, broadcast in each node (S-Caffe 2017)."""
    inside = _to_leader_and_back(n, net)
    across = ring(n, net._replace(inner=net.inner._replace(ranks=1)))
    return Cost(*(a + b for a, b in zip(inside, across, strict=True)))


def torus_2d(n: Array, net: Network) -> Cost:
    """Reduce-scatter along rows, ring allreduce along columns, allgather along rows (Mikami et al. 2018).

    A row holds whole nodes and is as near to the square root of all devices as the divisors of the
    number of nodes allow; the g devices of a node have a column each and share its NICs.
    """
    g, (nodes, a_out, b_out) = net.inner.ranks, net.outer
    row_nodes = _row_nodes(nodes, g)
    x, y = g * row_nodes, nodes / row_nodes
    a_row, b_row = slowest(net._replace(outer=net.outer._replace(ranks=row_nodes)))
    latency = 2 * (x - 1) * a_row + 2 * (y - 1) * a_out
    bandwidth = 2 * (x - 1) / x * n * b_row + 2 * (y - 1) / y * (n / x) * g * b_out
    reduction = ((x - 1) / x + (y - 1) / y / x) * n * net.gamma
    return Cost(latency, bandwidth, reduction)


def parameter_server(n: Array, net: Network) -> Cost:
    """Push gradients to and pull weights from servers, one shard on every node (Li et al. 2014).

    The devices of a node hand their gradients to the host, which sums them. A node then sends
    n (N-1)/N and, as a server, receives as much; both directions are full at once, in the push and
    again in the pull.
    """
    (g, a_in, b_in), (nodes, a_out, b_out) = net.inner, net.outer
    several, share = g > 1, (nodes - 1) / nodes
    return Cost(
        2 * several * a_in + 2 * (nodes - 1) * a_out,
        2 * n * (several * b_in + share * b_out * net.all_to_all),
        n * (g - 1 + share) * net.gamma,
    )


ALGORITHMS: dict[str, Callable[[Array, Network], Cost]] = {
    "ring": ring,
    "recursive_doubling": recursive_doubling,
    "rabenseifner": rabenseifner,
    "binomial": binomial,
    "hierarchical": hierarchical,
    "torus_2d": torus_2d,
    "parameter_server": parameter_server,
}


def bus_bandwidth(n: Array, time: Array, ranks: Array) -> Array:
    """Return n / time * 2 (p-1)/p in B/s: what each link of a ring carries (the nccl-tests convention)."""
    return n / time * 2 * (ranks - 1) / ranks


def _to_leader_and_back(n: Array, net: Network) -> Cost:
    """Reduce (ring reduce-scatter, binomial gather) to one device of the node; later the mirror image."""
    g, alpha, beta = net.inner
    share = (g - 1) / g
    return Cost(2 * (g - 1 + _depth(g)) * alpha, 4 * share * n * beta, share * n * net.gamma)


def _depth(ranks: Array) -> Array:
    """ceil(lg ranks), exact for whole numbers."""
    mantissa, exponent = np.frexp(ranks)
    return exponent - (mantissa == 0.5)


def _rounds(ranks: Array) -> tuple[Array, Array]:
    """floor(lg ranks), and 1 where ranks is not a power of two, else 0."""
    mantissa, exponent = np.frexp(ranks)
    return exponent - 1, (mantissa != 0.5) * 1


def _over_rounds(rounds: Array, net: Network, share: Callable[[int], float]) -> Array:
    """Sum share(k) * congestion(2^k) over the rounds k = 0 .. rounds - 1 between nodes."""
    total: Array = 0.0
    for k in range(int(np.max(rounds))):
        total = total + np.where(k < rounds, share(k) * net.congestion(2**k), 0.0)
    return total


def _row_nodes(nodes: Array, g: Array) -> Array:
    """Nodes in a row: the divisor m of `nodes` for which g m is nearest to sqrt(g nodes), by ratio."""
    if np.ndim(nodes) == 0 and np.ndim(g) == 0:
        return _divisor(int(nodes), int(g))
    nodes, g = np.broadcast_arrays(nodes, g)
    pairs, inverse = np.unique(np.stack([nodes.ravel(), g.ravel()]), axis=1, return_inverse=True)
    best = np.array([_divisor(int(a), int(b)) for a, b in pairs.T])
    return best[inverse.ravel()].reshape(nodes.shape)


@lru_cache(maxsize=65536)
def _divisor(nodes: int, g: int) -> int:
    divisors = [m for m in range(1, nodes + 1) if nodes % m == 0]
    return min(divisors, key=lambda m: (abs(np.log(m * m * g / nodes)), m))
