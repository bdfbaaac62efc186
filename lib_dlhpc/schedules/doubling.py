"""Partners 1, 2, 4 ... ranks away: recursive doubling, and Rabenseifner's halving and doubling.

q = floor(lg p). Ranks beyond 2^q fold into a neighbour before and are told the result after. Source:
Thakur, Rabenseifner & Gropp, "Optimization of collective communication operations in MPICH" (2005),
section 4.5.
"""

from collections.abc import Iterator

import numpy as np

from lib_dlhpc.schedules.algorithm import Algorithm
from lib_dlhpc.schedules.compose import beside, within
from lib_dlhpc.schedules.network import Array, Cost, Network, over_rounds, whole_rounds
from lib_dlhpc.schedules.rings import cuts
from lib_dlhpc.schedules.rounds import Ints, Round, messages
from lib_dlhpc.spec.errors import SpecError


def recursive_doubling(ranks: int, elements: int, node_size: int = 1) -> Iterator[Round]:
    """Allreduce: exchange everything with the partner 1, 2, 4 ... ranks away.

    lg p (alpha + n beta + n gamma); with folding, 2 alpha + 2 n beta + n gamma more. node_size: ranks
    fold and double inside each node first, then each with its like in the other nodes.
    """
    nodes = node_grid(ranks, node_size)
    for group in (nodes, nodes.T):
        core, surplus, host = _fold(group.shape[1])
        yield from within(_hand(surplus, host, elements, True), group)
        yield from within(_doubling(len(core), elements), group[:, core])
        yield from within(_hand(host, surplus, elements, False), group)


def rabenseifner(ranks: int, elements: int, node_size: int = 1) -> Iterator[Round]:
    """Allreduce: reduce-scatter by recursive halving, nearest partner first, then the way back.

    2 lg p alpha + 2 (p-1)/p n beta + (p-1)/p n gamma; with folding, 2 alpha + 2 n beta + n gamma more.
    node_size: ranks fold and halve inside each node first, then each with its like in the other nodes.
    """
    nodes = node_grid(ranks, node_size)
    core, surplus, host = _fold(node_size)
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
    """Return the ranks of each node, a row a node. Raises SpecError if they do not fill whole nodes."""
    if isinstance(node_size, bool) or not isinstance(node_size, int | np.integer) or node_size < 1:
        raise SpecError(f"node_size = {node_size!r}: expected a whole number, at least 1.")
    if ranks % node_size:
        raise SpecError(f"node_size = {node_size}: expected a divisor of the {ranks} ranks.")
    return np.arange(ranks).reshape(-1, node_size)


def _doubling(ranks: int, elements: int) -> Iterator[Round]:
    rank = np.arange(ranks)
    for distance in _powers(ranks):
        yield messages(rank, rank ^ distance, 0, elements, True)


def _halving(ranks: int, elements: int) -> Iterator[Round]:
    """Reduce-scatter: give half of what you work on to the partner, keep the other half."""
    rank = np.arange(ranks)
    for distance, _, (offset, count) in _halves(ranks, elements):
        yield messages(rank, rank ^ distance, offset, count, True)


def _doubling_back(ranks: int, elements: int) -> Iterator[Round]:
    """Allgather: the way back, give what you kept."""
    rank = np.arange(ranks)
    for distance, (offset, count), _ in reversed(_halves(ranks, elements)):
        yield messages(rank, rank ^ distance, offset, count, False)


def _own_block(ranks: int, elements: int) -> tuple[Ints, Ints]:
    """Offset and count of what each rank has after halving."""
    halves = _halves(ranks, elements)
    return halves[-1][1] if halves else (np.zeros(1, np.int64), np.array([elements]))


def _halves(ranks: int, elements: int) -> list[tuple[int, tuple[Ints, Ints], tuple[Ints, Ints]]]:
    """For each distance what each rank keeps and what it gives away: offset and count."""
    cut, rank = cuts(elements, ranks), np.arange(ranks)
    first = np.zeros(ranks, np.int64)  # of the blocks that the rank still works on
    halves = []
    for distance in _powers(ranks):
        half = ranks // (2 * distance)
        upper = rank & distance != 0  # these ranks keep the upper half
        kept, given = first + half * upper, first + half * ~upper
        keep, give = ((cut[b], cut[b + half] - cut[b]) for b in (kept, given))
        halves.append((distance, keep, give))
        first = kept
    return halves


def _hand(source: Ints, target: Ints, elements: int, reduce: bool) -> Iterator[Round]:
    """Surplus ranks to their hosts, or back; no round if there are none."""
    if len(source):
        yield messages(source, target, 0, elements, reduce)


def _powers(ranks: int) -> list[int]:
    """1, 2, 4 ... below ranks."""
    return [2**k for k in range((ranks - 1).bit_length())]


def _fold(ranks: int) -> tuple[Ints, Ints, Ints]:
    """Return 2^q ranks that stay, the surplus ranks, and the neighbour that stands in for each of those."""
    many = ranks - (1 << ranks.bit_length() - 1)
    surplus = 2 * np.arange(many) + 1
    return np.setdiff1d(np.arange(ranks), surplus), surplus, surplus - 1


def recursive_doubling_cost(n: Array, net: Network) -> Cost:
    """Everyone exchanges everything with a partner 1, 2, 4 ... ranks away.

    Ranks beyond a power of two fold into a neighbour first and are told the result last. Between
    nodes all devices of a node exchange at once and share its NICs.
    """
    (g, a_in, b_in), (nodes, a_out, b_out) = net.inner, net.outer
    in_rounds, in_fold = whole_rounds(g)
    out_rounds, out_fold = whole_rounds(nodes)
    far = over_rounds(out_rounds, net, lambda k: 1.0) + 2 * out_fold
    latency = (in_rounds + 2 * in_fold) * a_in + (out_rounds + 2 * out_fold) * a_out
    bandwidth = n * ((in_rounds + 2 * in_fold) * b_in + far * g * b_out)
    reduction = n * (in_rounds + in_fold + out_rounds + out_fold) * net.gamma
    return Cost(latency, bandwidth, reduction)


def rabenseifner_cost(n: Array, net: Network) -> Cost:
    """Reduce-scatter by recursive halving, nearest partner first, then allgather by doubling.

    The nearest partners exchange the most, so what crosses the network is 1/g of the buffer from
    each of the g devices of a node: together one buffer through its NICs.
    """
    (g, a_in, b_in), (nodes, a_out, b_out) = net.inner, net.outer
    in_rounds, in_fold = whole_rounds(g)
    out_rounds, out_fold = whole_rounds(nodes)
    in_share = 1 - 0.5**in_rounds
    out_share = over_rounds(out_rounds, net, lambda k: 0.5 ** (k + 1))
    latency = 2 * (in_rounds + in_fold) * a_in + 2 * (out_rounds + out_fold) * a_out
    bandwidth = 2 * n * ((in_share + in_fold) * b_in + (out_share + out_fold) * b_out)
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
    halves=("halving_reduce_scatter", "doubling_allgather"),
)
