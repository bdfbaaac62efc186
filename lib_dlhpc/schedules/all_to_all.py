"""All-to-all level by level: inside a node to the target's local rank, then between ranks of equal local rank.

Inside a node, the N blocks for one local rank form one message; between nodes, the g blocks for one node do. So a
rank has g-1 + N-1 partners in place of g N - 1. A level runs either pairwise exchanges, or blocks hop 1, 2, 4 ...
ranks (Bruck et al. 1997): ceil(lg p) steps, in each of which half of the blocks move.
The buffer is the p x p matrix of blocks of `pairwise_all_to_all`. Source of the levels: Rajbhandari et al.,
"DeepSpeed-MoE" (2022), section 5.3 (hierarchical all-to-all).
"""

from collections.abc import Iterator
from typing import Any

import numpy as np

from lib_dlhpc.arrays import Ints
from lib_dlhpc.schedules.algorithm import Algorithm
from lib_dlhpc.schedules.doubling import node_grid
from lib_dlhpc.schedules.exchange import pairwise_all_to_all
from lib_dlhpc.schedules.network import Array, Cost, Network, depth
from lib_dlhpc.schedules.rings import cuts
from lib_dlhpc.schedules.rounds import Round, messages


def hierarchical_all_to_all(ranks: int, elements: int, node_size: int = 1) -> Iterator[Round]:
    """All-to-all: pairwise in each node, then pairwise between ranks of equal local rank.

    (g-1) a_in + (N-1) a_out + n/p ((g-1)/g b_in + (N-1)/N g b_out).
    """
    yield from _levels(ranks, elements, node_size, False)


def bruck_all_to_all(ranks: int, elements: int, node_size: int = 1) -> Iterator[Round]:
    """All-to-all: blocks hop 1, 2, 4 ... ranks in each node, then nodes; for small blocks.

    ceil(lg g) a_in + ceil(lg N) a_out + n/p (about lg(g)/2 b_in + lg(N)/2 g b_out).
    """
    yield from _levels(ranks, elements, node_size, True)


def _levels(ranks: int, elements: int, node_size: int, hops: bool) -> Iterator[Round]:
    nodes, cut = node_grid(ranks, node_size), cuts(elements, ranks**2)
    source, target = np.divmod(np.arange(ranks**2), ranks)
    node, place = np.divmod(source, node_size)
    to_node, to_place = np.divmod(target, node_size)
    for moved in _steps((to_place - place) % node_size, node_size, hops):
        after = (place + moved) % node_size
        yield from _moved(node * node_size + place, node * node_size + after, cut)
        place = after
    for moved in _steps((to_node - node) % len(nodes), len(nodes), hops):
        after = (node + moved) % len(nodes)
        yield from _moved(node * node_size + place, after * node_size + place, cut)
        node = after


def _steps(distance: Ints, ranks: int, hops: bool) -> Iterator[Ints]:
    """Yield the number of ranks by which each block moves in each step on a level."""
    if hops:
        yield from (distance & 2**k for k in range((ranks - 1).bit_length()))
    else:
        yield from (step * (distance == step) for step in range(1, ranks))


def _moved(source: Ints, target: Ints, cut: Ints) -> Iterator[Round]:
    moves = np.flatnonzero(source != target)
    yield messages(source[moves], target[moves], cut[moves], cut[moves + 1] - cut[moves], False)


def pairwise_all_to_all_cost(n: Array, net: Network) -> Cost:
    """p-1 steps. In the k-th from the first or the last, min(k, g) ranks of a node of g leave it, and share its NICs;
    the others wait for them, or they for these. What changes rails loads the links inside a node (relay) or the
    uplinks."""
    near, far = net.inner.ranks, net.outer.ranks
    ranks = near * far
    size = n / ranks / ranks
    turning = _turning(net)
    turned = np.maximum(net.all_to_all, net.crossing)  # in a step all change rails, or none does
    crowded = turning * turned + (1 - turning) * net.all_to_all
    inside = net.inner.alpha, size * net.inner.beta
    relayed = turning * net.relay
    alpha, seconds = net.outer.alpha + relayed * net.inner.alpha, size * net.nic_beta * crowded

    def across(leaving: Array) -> Array:
        carried = np.minimum(leaving * net.beside, net.on_a_nic)
        return np.maximum(seconds * carried, relayed * inside[1])

    steps = np.where(far > 1, ranks - 2 * near + 1, 0)
    latency, bandwidth = steps * alpha, steps * across(near)
    for k in range(1, int(np.max(near))):
        most = across(k)
        out = (far > 1) & (alpha + most >= sum(inside))
        times = (k < near) * np.where(far > 1, 2, 1)
        latency = latency + times * np.where(out, alpha, inside[0])
        bandwidth = bandwidth + times * np.where(out, most, inside[1])
    return Cost(latency, bandwidth, 0.0 * n)


def _turning(net: Network) -> Array:
    """Return the part of what leaves a node that changes rails; its ranks are spread over the NICs."""
    lanes = np.minimum(net.nics, net.inner.ranks)
    few, more = np.divmod(net.inner.ranks, lanes)  # `more` NICs have one rank more than the others
    stays = (lanes - more) * few**2 + more * (few + 1) ** 2
    return 1 - stays / np.square(net.inner.ranks)


def hierarchical_all_to_all_cost(n: Array, net: Network) -> Cost:
    """One level after the other; the ranks of a node share its NICs."""
    (g, a_in, b_in), (nodes, a_out, b_out) = net.inner, net.outer
    far = (nodes - 1) / nodes * g * b_out * net.all_to_all
    latency = (g - 1) * a_in + (nodes - 1) * a_out
    return Cost(latency, n / (g * nodes) * ((g - 1) / g * b_in + far), 0.0 * n)


def bruck_all_to_all_cost(n: Array, net: Network) -> Cost:
    """One level after the other, with hops of 1, 2, 4 ... ranks."""
    (g, a_in, b_in), (nodes, a_out, b_out) = net.inner, net.outer
    near = _hopped(g, lambda distance: 1.0)
    far = _hopped(nodes, net.neighbors) * g
    latency = depth(g) * a_in + depth(nodes) * a_out
    return Cost(latency, n / (g * nodes) * (near * b_in + far * b_out), 0.0 * n)


def _hopped(ranks: Array, congestion: Any) -> Array:
    """Return the blocks that a rank sends on a level in all steps, over the ranks of the level."""
    total: Array = 0.0 * ranks
    for k in range(int(np.max(depth(ranks)))):
        # Of the distances 0 to p-1, count those with bit k.
        whole, rest = np.divmod(ranks, 2.0 ** (k + 1))
        moved = whole * 2.0**k + np.maximum(rest - 2.0**k, 0.0)
        total = total + moved / ranks * congestion(2**k)
    return total


PAIRWISE_ALL_TO_ALL = Algorithm(
    "pairwise_all_to_all",
    "all_to_all",
    pairwise_all_to_all,
    pairwise_all_to_all_cost,
    "pairwise",
    "(p-1) α + (p-1)/p n/p β; Thakur, Rabenseifner & Gropp 2005",
)
HIERARCHICAL_ALL_TO_ALL = Algorithm(
    "hierarchical_all_to_all",
    "all_to_all",
    hierarchical_all_to_all,
    hierarchical_all_to_all_cost,
    "hierarchical (node, then network)",
    "(g-1) α_in + (N-1) α_out + n/p ((g-1)/g β_in + (N-1)/N g β_out); Rajbhandari et al. 2022",
    by_node=True,
)
BRUCK_ALL_TO_ALL = Algorithm(
    "bruck_all_to_all",
    "all_to_all",
    bruck_all_to_all,
    bruck_all_to_all_cost,
    "Bruck on each level",
    "⌈lg g⌉ α_in + ⌈lg N⌉ α_out, and about half of the blocks in each step; Bruck et al. 1997",
    by_node=True,
)
