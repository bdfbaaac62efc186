"""Allreduces for machines of two levels, put together from flat ones.

Sources: Awan et al., "S-Caffe" (2017), section 5 (hierarchical); Mikami et al., "Massively distributed
SGD: ImageNet/ResNet-50 training in a flash" (2018), section 3.3 (2-D torus).
"""

from collections.abc import Iterator

import numpy as np

from lib_dlhpc.schedules.compose import beside, then, within
from lib_dlhpc.schedules.doubling import node_grid
from lib_dlhpc.schedules.rings import cuts, ring, ring_allgather, ring_reduce_scatter
from lib_dlhpc.schedules.rounds import Round
from lib_dlhpc.schedules.trees import binomial_gather, binomial_scatter
from lib_dlhpc.spec.errors import SpecError


def hierarchical(ranks: int, elements: int, node_size: int = 1) -> Iterator[Round]:
    """Allreduce: reduce to a leader in each node, ring between the leaders, broadcast in each node.

    Inside, g ranks reduce-scatter round a ring and gather to the leader; later the mirror image:
    2 (g-1 + ceil(lg g)) alpha + 4 (g-1)/g n beta + (g-1)/g n gamma, and the ring of p/g leaders.
    The last node may have fewer ranks.
    """
    if isinstance(node_size, bool) or not isinstance(node_size, int | np.integer) or node_size < 1:
        raise SpecError(f"node_size = {node_size!r}: expected a whole number, at least 1.")
    leaders = range(0, ranks, node_size)
    nodes = [range(leader, min(leader + node_size, ranks)) for leader in leaders]
    yield from beside(*(within(_to_leader(len(node), elements), node) for node in nodes))
    yield from within(ring(len(leaders), elements), leaders)
    yield from beside(*(within(_from_leader(len(node), elements), node) for node in nodes))


def torus_2d(ranks: int, elements: int, node_size: int = 1, columns: int = 0) -> Iterator[Round]:
    """Allreduce: reduce-scatter along the rows of a grid, allreduce along its columns, allgather along the rows.

    x columns, y = p/x rows: 2 (x-1 + y-1) alpha + 2 (p-1)/p n beta + (p-1)/p n gamma. columns: x; by
    default a row holds whole nodes and is as near to sqrt(p) as their number allows.
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
    """Return g m for the divisor m of the number of nodes that brings it nearest to sqrt(ranks), by ratio.

    Raises SpecError if `ranks` are not whole nodes.
    """
    nodes = len(node_grid(ranks, node_size))
    divisors = [m for m in range(1, nodes + 1) if nodes % m == 0]
    return node_size * min(divisors, key=lambda m: (abs(np.log(m * m * node_size / nodes)), m))


def _to_leader(ranks: int, elements: int) -> Iterator[Round]:
    yield from then(ring_reduce_scatter(ranks, elements), binomial_gather(ranks, elements))


def _from_leader(ranks: int, elements: int) -> Iterator[Round]:
    yield from then(binomial_scatter(ranks, elements), ring_allgather(ranks, elements))
