"""Partners 1, 2, 4 ... ranks away: recursive doubling, and Rabenseifner's halving and doubling.

q = floor(lg p). Ranks beyond 2^q fold into a neighbor first and receive the result last. Source:
Thakur, Rabenseifner & Gropp, "Optimization of collective communication operations in MPICH" (2005),
section 4.5.
"""

from collections.abc import Iterator
from functools import lru_cache

import numpy as np

from lib_dlhpc.arrays import Ints
from lib_dlhpc.errors import SpecError, check_counts
from lib_dlhpc.schedules.algorithm import Algorithm
from lib_dlhpc.schedules.compose import beside, within
from lib_dlhpc.schedules.network import Array, Cost, Network, Rails, over_rounds, whole_rounds
from lib_dlhpc.schedules.rings import cuts
from lib_dlhpc.schedules.rounds import Round, messages


def recursive_doubling(ranks: int, elements: int, node_size: int = 1) -> Iterator[Round]:
    """Allreduce: exchange everything with the partner 1, 2, 4 ... ranks away.

    lg p (alpha + n beta + n gamma); with folding, 2 alpha + 2 n beta + n gamma more. node_size: ranks
    fold and double inside each node first, then between ranks of equal local rank.
    """
    nodes = node_grid(ranks, node_size)
    for group in (nodes, nodes.T):
        core, surplus, host = fold(group.shape[1])
        yield from within(_hand(surplus, host, elements, True), group)
        yield from within(_doubling(len(core), elements), group[:, core])
        yield from within(_hand(host, surplus, elements, False), group)


def rabenseifner(ranks: int, elements: int, node_size: int = 1) -> Iterator[Round]:
    """Allreduce: reduce-scatter by recursive halving, nearest partner first, then allgather in reverse order.

    2 lg p alpha + 2 (p-1)/p n beta + (p-1)/p n gamma; with folding, 2 alpha + 2 n beta + n gamma more.
    node_size: ranks fold and halve inside each node first, then between ranks of equal local rank.
    """
    nodes = node_grid(ranks, node_size)
    core, surplus, host = fold(node_size)
    yield from within(_hand(surplus, host, elements, True), nodes)
    yield from within(_halving(len(core), elements), nodes[:, core])
    if ranks > node_size:
        offset, count = _own_block(len(core), elements)
        like = (
            within(rabenseifner(len(nodes), int(count[c]), len(nodes)), nodes[:, i], int(offset[c]))
            for c, i in enumerate(core)
        )
        yield from beside(*like)
    yield from within(_doubling_back(len(core), elements), nodes[:, core])
    yield from within(_hand(host, surplus, elements, False), nodes)


def node_grid(ranks: int, node_size: int) -> Ints:
    """Return the ranks of each node, one row per node. Raises SpecError unless nodes are complete."""
    check_counts(node_size=node_size)
    if ranks % node_size:
        raise SpecError(f"node_size = {node_size}: expected a divisor of the {ranks} ranks.")
    return np.arange(ranks).reshape(-1, node_size)


def _doubling(ranks: int, elements: int) -> Iterator[Round]:
    rank = np.arange(ranks)
    for distance in _powers(ranks):
        yield messages(rank, rank ^ distance, 0, elements, True)


def _halving(ranks: int, elements: int) -> Iterator[Round]:
    """Reduce-scatter: send half of the active blocks to the partner, retain the other half."""
    rank = np.arange(ranks)
    for distance, _, (offset, count) in _halves(ranks, elements):
        yield messages(rank, rank ^ distance, offset, count, True)


def _doubling_back(ranks: int, elements: int) -> Iterator[Round]:
    """Allgather: the reverse of `_halving`; send the retained half."""
    rank = np.arange(ranks)
    for distance, (offset, count), _ in reversed(_halves(ranks, elements)):
        yield messages(rank, rank ^ distance, offset, count, False)


def _own_block(ranks: int, elements: int) -> tuple[Ints, Ints]:
    """Offset and count of the block of each rank after halving."""
    halves = _halves(ranks, elements)
    return halves[-1][1] if halves else (np.zeros(1, np.int64), np.array([elements]))


def _halves(ranks: int, elements: int) -> list[tuple[int, tuple[Ints, Ints], tuple[Ints, Ints]]]:
    """For each distance, the half that each rank retains and the half it sends: offset and count."""
    cut, rank = cuts(elements, ranks), np.arange(ranks)
    first = np.zeros(ranks, np.int64)  # first active block of the rank
    halves = []
    for distance in _powers(ranks):
        half = ranks // (2 * distance)
        upper = rank & distance != 0  # these ranks retain the upper half
        own, other = first + half * upper, first + half * ~upper
        retain, send = ((cut[b], cut[b + half] - cut[b]) for b in (own, other))
        halves.append((distance, retain, send))
        first = own
    return halves


def _hand(source: Ints, target: Ints, elements: int, reduce: bool) -> Iterator[Round]:
    """Messages from surplus ranks to their hosts, or back; no round if there are none."""
    if len(source):
        yield messages(source, target, 0, elements, reduce)


def _powers(ranks: int) -> list[int]:
    """1, 2, 4 ... below ranks."""
    return [2**k for k in range((ranks - 1).bit_length())]


@lru_cache(maxsize=64)
def fold(ranks: int) -> tuple[Ints, Ints, Ints]:
    """Return the 2^q core ranks, the surplus ranks, and the neighbor that hosts each surplus rank."""
    count = ranks - (1 << ranks.bit_length() - 1)
    surplus = 2 * np.arange(count) + 1
    return np.setdiff1d(np.arange(ranks), surplus), surplus, surplus - 1


def recursive_doubling_cost(n: Array, net: Network) -> Cost:
    """Each rank exchanges the whole buffer with a partner 1, 2, 4 ... ranks away.

    Ranks beyond a power of two fold into a neighbor first and receive the result last. Between
    nodes all devices of a node exchange at once and share its NICs.
    """
    (g, a_in, b_in), (nodes, a_out, b_out) = net.inner, net.outer
    in_rounds, in_fold = whole_rounds(g)
    out_rounds, out_fold = whole_rounds(nodes)
    far = over_rounds(out_rounds, net, lambda k: 1.0) + 2 * out_fold * net.congestion(0)
    latency = (in_rounds + 2 * in_fold) * a_in + (out_rounds + 2 * out_fold) * a_out
    bandwidth = n * ((in_rounds + 2 * in_fold) * b_in + far * g * b_out)
    reduction = n * (in_rounds + in_fold + out_rounds + out_fold) * net.gamma
    return Cost(latency, bandwidth, reduction)


def _core_on_a_nic(ranks: Array, nics: Array, beside: Array) -> Array:
    """Return how many core ranks the busiest NIC has; those that folded send nothing out of their node."""
    if np.all(np.equal(nics, 1)):
        return 2.0 ** whole_rounds(ranks)[0] * beside
    if np.ndim(ranks) == np.ndim(nics) == np.ndim(beside) == 0:
        return _count_on_a_nic(ranks, nics, beside)
    return np.vectorize(_count_on_a_nic, otypes=[np.float64])(ranks, nics, beside)


@lru_cache(maxsize=4096)
def _count_on_a_nic(ranks: int, nics: int, beside: int) -> int:
    nic = Rails(int(ranks), int(nics), beside=int(beside)).into(fold(int(ranks))[0])
    return int(np.bincount(nic.ravel()).max())


def rabenseifner_cost(n: Array, net: Network) -> Cost:
    """Reduce-scatter by recursive halving, nearest partner first, then allgather by doubling.

    The nearest partners exchange the most, so each of the g devices of a node sends 1/g of the
    buffer over the network: one buffer through the NICs of the node.
    """
    (g, a_in, b_in), (nodes, a_out, b_out) = net.inner, net.outer
    in_rounds, in_fold = whole_rounds(g)
    out_rounds, out_fold = whole_rounds(nodes)
    in_share = 1 - 0.5**in_rounds
    out_share = over_rounds(out_rounds, net, lambda k: 0.5 ** (k + 1))
    latency = 2 * (in_rounds + in_fold) * a_in + 2 * (out_rounds + out_fold) * a_out
    b_out = net.nic_beta * _core_on_a_nic(g, net.nics, net.beside) / 2.0**in_rounds
    out_share = out_share + out_fold * net.congestion(0)
    bandwidth = 2 * n * ((in_share + in_fold) * b_in + out_share * b_out)
    reduction = (
        n * (in_share + in_fold + (1 - 0.5**out_rounds + out_fold) / 2.0**in_rounds) * net.gamma
    )
    return Cost(latency, bandwidth, reduction)


RECURSIVE_DOUBLING = Algorithm(
    "recursive_doubling",
    "allreduce",
    recursive_doubling,
    recursive_doubling_cost,
    "recursive doubling",
    "lg p (α + n β + n γ); Thakur, Rabenseifner & Gropp 2005",
    by_node=True,
)
RABENSEIFNER = Algorithm(
    "rabenseifner",
    "allreduce",
    rabenseifner,
    rabenseifner_cost,
    "Rabenseifner (halving-doubling)",
    "2 lg p α + 2 (p-1)/p n β + (p-1)/p n γ; Rabenseifner 2004",
    by_node=True,
    phases=("halving_reduce_scatter", "doubling_allgather"),
)
