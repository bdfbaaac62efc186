"""Allreduces in switches that add what passes them: NVLS inside a node, SHARP between nodes.

Each rank sends its n bytes once and receives the sum once, both at the same time, and no rank adds. In the rounds, the
switch does for one of the ranks what that rank would do: others send to it (reduce), and it sends to them (copy), but a
link carries the bytes of messages that the switch merges once. Over plain links, the same rounds are a star.

NVLS between several nodes: the switch of a node is a reduce-scatter, then a multicast of the shards; halving and
doubling between nodes, as NCCL's trees there. SHARP with several ranks in a node: rings in the node, and each rank its
part between nodes. Not modeled: chunks pipelined over both levels, which overlap them, the few reductions that a switch
can hold at once, and that NCCL's NVLS fetches each sum and sends it back, (1 + 1/g) n. So n beta is a bound.

Sources: Graham et al., "Scalable Hierarchical Aggregation Protocol (SHArP): a hardware architecture for efficient data
reduction" (2016); Klenk, Jiang, Thorson & Dennison, "An in-network architecture for accelerating shared-memory
multiprocessor collectives" (2020), for switches inside a node.
"""

from collections.abc import Iterator
from functools import partial

import numpy as np
from numpy.typing import ArrayLike

from lib_dlhpc.arrays import Ints
from lib_dlhpc.schedules.algorithm import Algorithm
from lib_dlhpc.schedules.compose import within
from lib_dlhpc.schedules.doubling import node_grid
from lib_dlhpc.schedules.levels import between, halving_doubling, halving_doubling_cost
from lib_dlhpc.schedules.network import Array, Cost, Network
from lib_dlhpc.schedules.rings import cuts, ring_allgather, ring_reduce_scatter
from lib_dlhpc.schedules.rounds import COMBINE, MULTICAST, STREAM, Round, messages
from lib_dlhpc.spec.machine import IN_SWITCHES


def sharp(ranks: int, elements: int, node_size: int = 1) -> Iterator[Round]:
    """Allreduce: ring reduce-scatter in each node, the switches between nodes, ring allgather.

    2 (g-1) a_in + 2 a_out + n (2 (g-1)/g b_in + b_out) + (g-1)/g n gamma.
    """
    yield from _levels(ranks, elements, node_size, between_nodes=True)


def nvls(ranks: int, elements: int, node_size: int = 1) -> Iterator[Round]:
    """Allreduce: the switch of each node; between several, halving and doubling.

    One node: 2 a_in + n b_in. N: 2 a_in + 2 (g-1)/g n b_in, and halving and doubling of n between nodes.
    """
    yield from _levels(ranks, elements, node_size, in_node=True)


def nvls_sharp(ranks: int, elements: int, node_size: int = 1) -> Iterator[Round]:
    """Allreduce: the switches inside and between nodes: 2 (a_in + a_out) + n (2 (g-1)/g b_in + b_out)."""
    yield from _levels(ranks, elements, node_size, in_node=True, between_nodes=True)


def _levels(
    ranks: int, elements: int, node_size: int, in_node: bool = False, between_nodes: bool = False
) -> Iterator[Round]:
    nodes = node_grid(ranks, node_size)
    if in_node and len(nodes) == 1:
        yield from _streamed(nodes, 0, elements)
        return
    cut = cuts(elements, node_size)
    if in_node:
        yield from _scattered(nodes, cut, gather=False)
    else:
        yield from within(ring_reduce_scatter(node_size, elements), nodes)
    if between_nodes:
        yield from _streamed(nodes.T, cut[:-1], np.diff(cut))
    else:
        yield from between(halving_doubling, nodes, elements)
    if in_node:
        yield from _scattered(nodes, cut, gather=True)
    else:
        yield from within(ring_allgather(node_size, elements), nodes)


def _streamed(groups: Ints, offset: ArrayLike, count: ArrayLike) -> Iterator[Round]:
    """Add what the ranks in each row have, and stream the sum back; its first rank stands for the switch."""
    if groups.shape[1] > 1:
        first, others = groups[:, 0], groups[:, 1:].T
        yield messages(others, first, offset, count, True, STREAM)
        yield messages(first, others, offset, count, False, STREAM)


def _scattered(nodes: Ints, cut: Ints, gather: bool) -> Iterator[Round]:
    """Reduce-scatter in each node, block i to its rank i; or the allgather back."""
    block = np.arange(nodes.shape[1])
    others = np.stack([np.roll(nodes, -k, axis=1) for k in block])[1:]  # those 1, 2 ... further on
    if len(others):
        ends = (nodes, others) if gather else (others, nodes)
        kind = MULTICAST if gather else COMBINE
        yield messages(*ends, cut[block], np.diff(cut), not gather, kind)


def _cost(n: Array, net: Network, in_node: bool = False, between_nodes: bool = False) -> Cost:
    (g, a_in, b_in), (nodes, a_out, b_out) = net.inner, net.outer
    part, several = (g - 1) / g, np.greater(nodes, 1)
    if in_node:
        moved = np.where(several, 2 * part, np.greater(g, 1))
        inside = Cost(2 * np.greater(g, 1) * a_in, moved * n * b_in, 0.0 * n)
    else:
        inside = Cost(2 * (g - 1) * a_in, 2 * part * n * b_in, part * n * net.gamma)
    if between_nodes:
        return inside + Cost(2 * several * a_out, several * n * b_out * net.neighbors(1), 0.0 * n)
    latency, bandwidth, reduction = halving_doubling_cost(
        n, net._replace(inner=net.inner._replace(ranks=1))
    )
    return inside + Cost(latency, bandwidth, reduction / g)


SHARP = Algorithm(
    "sharp",
    "allreduce",
    sharp,
    partial(_cost, between_nodes=True),
    "SHARP (switches between nodes)",
    "2 (g-1) α_in + 2 α_out + n (2 (g-1)/g β_in + β_out) + (g-1)/g n γ; Graham et al. 2016",
    by_node=True,
    needs=IN_SWITCHES["sharp"],
    phases=("hierarchical_reduce_scatter", "hierarchical_allgather"),
)
NVLS = Algorithm(
    "nvls",
    "allreduce",
    nvls,
    partial(_cost, in_node=True),
    "NVLS (the switch of a node)",
    "one node: 2 α_in + n β_in; several: 2 α_in + 2 (g-1)/g n β_in, halving and doubling between them;"
    " Klenk et al. 2020",
    by_node=True,
    needs=IN_SWITCHES["nvls"],
    phases=("halving_reduce_scatter", "doubling_allgather"),
)
NVLS_SHARP = Algorithm(
    "nvls_sharp",
    "allreduce",
    nvls_sharp,
    partial(_cost, in_node=True, between_nodes=True),
    "NVLS and SHARP (switches inside and between nodes)",
    "2 (α_in + α_out) + n (2 (g-1)/g β_in + β_out), one node: 2 α_in + n β_in; Graham et al. 2016,"
    " Klenk et al. 2020",
    by_node=True,
    needs=IN_SWITCHES["nvls_sharp"],
    phases=("hierarchical_reduce_scatter", "hierarchical_allgather"),
)
