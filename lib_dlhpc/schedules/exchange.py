"""Parameter server, all-to-all, Bruck's allgather, and halo exchange on a grid."""

from collections.abc import Iterator, Sequence
from math import prod

import numpy as np

from lib_dlhpc.arrays import Ints
from lib_dlhpc.errors import SpecError
from lib_dlhpc.schedules.algorithm import Algorithm
from lib_dlhpc.schedules.compose import beside
from lib_dlhpc.schedules.network import Array, Cost, Network
from lib_dlhpc.schedules.rings import cuts
from lib_dlhpc.schedules.rounds import Round, messages


def parameter_server(ranks: int, elements: int) -> Iterator[Round]:
    """Allreduce: rank r is the server of block r; push every block to its server, pull the sums back.

    At step k each rank sends to the server k ranks on, so no server receives from two ranks at once:
    2 (p-1) alpha + 2 (p-1)/p n beta + (p-1)/p n gamma. Source: Li et al., "Scaling distributed machine
    learning with the parameter server" (2014), with a shard on every node.
    """
    cut, rank = cuts(elements, ranks), np.arange(ranks)
    size = np.diff(cut)
    for step in range(1, ranks):
        server = (rank + step) % ranks
        yield messages(rank, server, cut[server], size[server], True)
    for step in range(1, ranks):
        yield messages(rank, (rank + step) % ranks, cut[rank], size[rank], False)


def pairwise_all_to_all(ranks: int, elements: int) -> Iterator[Round]:
    """All-to-all: at step k send to the rank at distance k.

    The buffer is a matrix of p x p blocks: block (s, t), number s p + t, goes from rank s to rank t.
    Rank r begins with row r and ends with column r as well. (p-1) alpha + (p-1)/p (n/p) beta. Source:
    Thakur, Rabenseifner & Gropp (2005), section 4.4.
    """
    cut, rank = cuts(elements, ranks**2), np.arange(ranks)
    for step in range(1, ranks):
        target = (rank + step) % ranks
        block = rank * ranks + target
        yield messages(rank, target, cut[block], cut[block + 1] - cut[block], False)


def bruck_allgather(ranks: int, elements: int) -> Iterator[Round]:
    """Allgather: rank r sends its blocks r, r+1 ... to rank r - 1, r - 2, r - 4 ...

    ceil(lg p) alpha + (p-1)/p n beta. Blocks stay in place here, so a range that wraps around the
    buffer is a message of two pieces. Source: Bruck, Ho,
    Kipnis, Upfal & Weathersby, "Efficient algorithms for all-to-all communications" (1997), section 4.
    """
    cut, rank = cuts(elements, ranks), np.arange(ranks)
    for distance in [2**k for k in range((ranks - 1).bit_length())]:
        end = rank + min(distance, ranks - distance)  # excludes the target's own blocks
        target = (rank - distance) % ranks
        stop = cut[np.minimum(end, ranks)]
        past = end > ranks
        yield from beside(
            [messages(rank, target, cut[rank], stop - cut[rank], False)],
            [messages(rank[past], target[past], 0, cut[end[past] - ranks], False)],
        )


def halo_exchange(
    ranks: int, elements: int, dimensions: int = 2, grid: Sequence[int] = (), periodic: bool = False
) -> Iterator[Round]:
    """Halo exchange on a grid of ranks: each rank exchanges a face with each neighbor, in one round.

    The buffer is 2 d faces of equal size. Face 2 a + 1 goes to the next rank along axis a and face 2 a
    to the previous one, and received faces replace them; a face at the boundary is unchanged.
    2 d alpha + n beta inside the grid. grid: ranks along each axis, the last varies fastest; by
    default as close to a cube as the divisors of p allow.
    """
    shape = grid_shape(ranks, dimensions, grid)
    cut = cuts(elements, 2 * len(shape))
    faces = [
        [messages(rank, target, cut[face], cut[face + 1] - cut[face], False)]
        for face in range(2 * len(shape))
        for rank, target in [neighbors(shape, face, periodic)]
    ]
    yield from beside(*faces)


def neighbors(shape: Sequence[int], face: int, periodic: bool) -> tuple[Ints, Ints]:
    """Return the ranks that send `face`, and their targets; no rank sends to itself."""
    rank = np.arange(prod(shape)).reshape(tuple(shape))
    axis, step = face // 2, (face % 2) * 2 - 1
    target = np.roll(rank, -step, axis)
    if not periodic:
        inner = slice(None, -1) if step > 0 else slice(1, None)
        here = (slice(None),) * axis + (inner,)
        rank, target = rank[here], target[here]
    other = rank != target
    return rank[other], target[other]


def grid_shape(ranks: int, dimensions: int = 2, grid: Sequence[int] = ()) -> tuple[int, ...]:
    """Return `grid`, or the factors of `ranks` closest to each other, largest first.

    Raises SpecError if they are not 1 to 3, or their product is not `ranks`.
    """
    if grid:
        if len(grid) > 3 or prod(grid) != ranks or min(grid) < 1:
            raise SpecError(
                f"grid = {tuple(grid)}: expected 1 to 3 numbers whose product is {ranks}."
            )
        return tuple(grid)
    if dimensions not in (1, 2, 3):
        raise SpecError(f"dimensions = {dimensions!r}: expected 1, 2 or 3.")
    if dimensions == 1:
        return (ranks,)
    root = round(ranks ** (1 / dimensions))
    least = max(k for k in range(1, root + 2) if ranks % k == 0 and k**dimensions <= ranks)
    return (*grid_shape(ranks // least, dimensions - 1), least)


def parameter_server_cost(n: Array, net: Network) -> Cost:
    """Push gradients to and pull weights from servers, one shard on every node (Li et al. 2014).

    The devices of a node send their gradients to the host, which reduces them. A node then sends
    n (N-1)/N and, as a server, receives as much; both directions are saturated, in the push and
    in the pull.
    """
    (g, a_in, b_in), (nodes, a_out, b_out) = net.inner, net.outer
    several, fraction = g > 1, (nodes - 1) / nodes
    return Cost(
        2 * several * a_in + 2 * (nodes - 1) * a_out,
        2 * n * (several * b_in + fraction * b_out * net.all_to_all),
        n * (g - 1 + fraction) * net.gamma,
    )


PARAMETER_SERVER = Algorithm(
    "parameter_server",
    "allreduce",
    parameter_server,
    parameter_server_cost,
    "parameter server",
    "push n and pull n, one shard on each node: 2 (N-1) α + 2 (N-1)/N n β; Li et al. 2014",
    library=False,  # no collective library reduces on the host of a node
)
BRUCK_ALLGATHER = Algorithm("bruck_allgather", "allgather", bruck_allgather, label="Bruck")
HALO_EXCHANGE = Algorithm(
    "halo_exchange",
    "halo",
    halo_exchange,
    label="all neighbors at once",
    options=("dimensions", "grid", "periodic"),
)
