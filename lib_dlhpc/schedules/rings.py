"""Rings: each rank sends a block to the next rank at every step, so all links are always busy.

p ranks, n elements, block b = elements b n / p .. (b + 1) n / p. A step sends one block of n / p elements, which costs
alpha (s a message) + n/p beta (s an element sent); a reduce-scatter also adds them, n/p gamma (s an element added). In
p - 1 steps a block has visited all ranks, hence (p-1) alpha + (p-1)/p n beta. An allreduce is one of each: every rank
sends 2 (p-1)/p n elements, and no allreduce sends fewer.

Sources: Patarasuk & Yuan, "Bandwidth optimal all-reduce algorithms for clusters of workstations" (2009), section 3;
Thakur, Rabenseifner & Gropp, "Optimization of collective communication operations in MPICH" (2005), sections 4.1 and
4.5.
"""

from collections.abc import Iterator

import numpy as np

from lib_dlhpc.arrays import Ints
from lib_dlhpc.schedules.algorithm import Algorithm
from lib_dlhpc.schedules.compose import then
from lib_dlhpc.schedules.network import Array, Cost, Network, slowest
from lib_dlhpc.schedules.rounds import Round


def cuts(elements: int, parts: int) -> Ints:
    """Return where `parts` blocks of nearly equal size begin, and the end: parts + 1 positions.

    No block is larger than ceil(elements / parts).
    """
    return np.arange(parts + 1, dtype=np.int64) * elements // parts


def ring(ranks: int, elements: int) -> Iterator[Round]:
    """Allreduce: reduce-scatter on the first pass of the ring, allgather on the second.

    2 (p-1) alpha + 2 (p-1)/p n beta + (p-1)/p n gamma.
    """
    yield from then(ring_reduce_scatter(ranks, elements), ring_allgather(ranks, elements))


def ring_reduce_scatter(ranks: int, elements: int) -> Iterator[Round]:
    """Reduce-scatter: block b starts at rank b + 1 and ends at rank b with every contribution.

    (p-1) alpha + (p-1)/p n beta + (p-1)/p n gamma.
    """
    rank, right, offset, count = _rotations(ranks, elements)
    reduce = np.ones(ranks, dtype=np.bool_)
    for step in range(ranks - 1):
        yield Round(rank, right, offset[-step - 1], count[-step - 1], reduce)


def ring_allgather(ranks: int, elements: int) -> Iterator[Round]:
    """Allgather: block b starts at rank b and is forwarded until all ranks have it.

    (p-1) alpha + (p-1)/p n beta.
    """
    rank, right, offset, count = _rotations(ranks, elements)
    copy = np.zeros(ranks, dtype=np.bool_)
    for step in range(ranks - 1):
        yield Round(rank, right, offset[-step], count[-step], copy)


def _rotations(ranks: int, elements: int) -> tuple[Ints, Ints, list[Ints], list[Ints]]:
    """Ranks, their right neighbors, and for each k the offset and count of blocks (rank + k) mod p.

    All are views of two arrays; blocks of equal size share one count for all k.
    """
    cut, rank = cuts(elements, ranks), np.arange(ranks)
    offset, count = np.tile(cut[:-1], 2), np.tile(np.diff(cut), 2)
    turns = [slice(k, k + ranks) for k in range(ranks)]
    counts = [count[k] for k in turns] if elements % ranks else [count[:ranks]] * ranks
    return rank, (rank + 1) % ranks, [offset[k] for k in turns], counts


def ring_cost(n: Array, net: Network) -> Cost:
    """Reduce-scatter and allgather on one ring of all devices; its slowest link is the bottleneck."""
    p = net.inner.ranks * net.outer.ranks
    alpha, beta = slowest(net, n / p)
    fraction = (p - 1) / p
    return Cost(2 * (p - 1) * alpha, 2 * fraction * n * beta, fraction * n * net.gamma)


def ring_reduce_scatter_cost(n: Array, net: Network) -> Cost:
    """One ring of all devices; its slowest link is the bottleneck."""
    latency, bandwidth, _ = ring_allgather_cost(n, net)
    p = net.inner.ranks * net.outer.ranks
    return Cost(latency, bandwidth, (p - 1) / p * n * net.gamma)


def ring_allgather_cost(n: Array, net: Network) -> Cost:
    """The same without reduction."""
    p = net.inner.ranks * net.outer.ranks
    alpha, beta = slowest(net, n / p)
    return Cost((p - 1) * alpha, (p - 1) / p * n * beta, 0.0 * n)


RING = Algorithm(
    "ring",
    "allreduce",
    ring,
    ring_cost,
    "ring",
    "2 (p-1) α + 2 (p-1)/p n β + (p-1)/p n γ; Thakur, Rabenseifner & Gropp 2005",
    phases=("ring_reduce_scatter", "ring_allgather"),
)
RING_REDUCE_SCATTER = Algorithm(
    "ring_reduce_scatter",
    "reduce_scatter",
    ring_reduce_scatter,
    ring_reduce_scatter_cost,
    "ring",
    "(p-1) α + (p-1)/p n β + (p-1)/p n γ; Patarasuk & Yuan 2009",
)
RING_ALLGATHER = Algorithm(
    "ring_allgather",
    "allgather",
    ring_allgather,
    ring_allgather_cost,
    "ring",
    "(p-1) α + (p-1)/p n β; Patarasuk & Yuan 2009",
)
