"""Algorithm selection: the cheapest known algorithm for a collective's size and network.

Libraries select by size and number of ranks, from tables or models (Thakur, Rabenseifner & Gropp 2005, section 4;
NCCL's tuning model); here the closed forms decide. Not modeled: protocols within a message (NCCL's LL, LL128 and
Simple, which costs/nccl.py has; MPI's eager and rendezvous), chunks pipelined over both levels, and NCCL before 2.23,
which has only rings for reduce-scatter and allgather between nodes.
"""

from functools import lru_cache

import numpy as np

from lib_dlhpc.keyed import Keyed
from lib_dlhpc.schedules.algorithm import Algorithm
from lib_dlhpc.schedules.algorithms import ALGORITHMS, COLLECTIVES, schedule
from lib_dlhpc.schedules.network import Array, Cost, Network
from lib_dlhpc.schedules.rounds import Schedule
from lib_dlhpc.spec.strategy import AUTO


def candidates(
    goal: str, name: str = AUTO, combines: frozenset[str] = frozenset()
) -> list[Algorithm]:
    """Return the algorithms among which "auto" selects, or the named one.

    goal: allreduce, reduce_scatter, allgather or all_to_all. name: an allreduce; for a reduce-scatter or allgather,
    its phase is returned, if it is composed of them. combines: what the switches of the network can do.
    """
    if name != AUTO:
        named = ALGORITHMS[name]
        if goal == "allreduce":
            return [named]
        if named.phases is not None and goal in ("reduce_scatter", "allgather"):
            return [ALGORITHMS[named.phases[goal == "allgather"]]]
    return [
        algorithm
        for algorithm in COLLECTIVES[goal].values()
        if algorithm.library and algorithm.cost is not None and algorithm.needs <= combines
    ]


def chosen(goal: str, n: float, net: Network, name: str = AUTO) -> Algorithm:
    """Return the algorithm of one collective of n bytes; the first of equally cheap ones."""
    every = net.every or net
    return _chosen(goal, float(n), Keyed(every, id(every)), name)


@lru_cache(maxsize=4096)
def _chosen(goal: str, n: float, net: Keyed[Network], name: str) -> Algorithm:
    algorithms = candidates(goal, name, net.value.combines)
    if len(algorithms) == 1:
        return algorithms[0]
    return min(algorithms, key=lambda algorithm: float(algorithm.priced(n, net.value).total))


def plan(
    goal: str, n: float, net: Network, ranks: int, elements: int | None = None, name: str = AUTO
) -> Schedule:
    """Return the schedule of one collective of n bytes among `ranks` ranks.

    elements: default, the fewest that divide evenly into all blocks, so that one schedule serves all sizes with the
    same algorithm.
    """
    record = chosen(goal, n, net, name)
    options = record.on_nodes(ranks, int(net.inner.ranks))
    count = even_elements(goal, ranks) if elements is None else elements
    return schedule(record.name, ranks, count, **options)


def even_elements(goal: str, ranks: int) -> int:
    """Return the fewest elements that divide evenly into the blocks of all algorithms, and into segments of trees."""
    from lib_dlhpc.schedules.double_tree import SEGMENTS

    if goal == "all_to_all":
        return ranks**2
    return 2 * SEGMENTS * ranks << (ranks.bit_length() - 1)


def cheapest(goal: str, n: Array, net: Network, name: str = AUTO) -> Cost:
    """Return the cost of a collective of n bytes; an array selects an algorithm for each entry."""
    algorithms = candidates(goal, name, net.combines)
    costs = [algorithm.priced(n, net) for algorithm in algorithms]
    if len(costs) == 1:
        return costs[0]
    terms = np.empty(
        (len(costs), 3, *np.broadcast_shapes(*(np.shape(cost.total) for cost in costs)))
    )
    for row, cost in zip(terms, costs, strict=True):
        row[0], row[1], row[2] = cost
    totals = terms[:, 0] + terms[:, 1] + terms[:, 2]
    if net.every is not None:
        totals = np.stack(
            np.broadcast_arrays(*(algorithm.priced(n, net.every).total for algorithm in algorithms))
        )
    best = np.argmin(totals, axis=0)[None, None]
    return Cost(*(term[()] for term in np.take_along_axis(terms, best, axis=0)[0]))
