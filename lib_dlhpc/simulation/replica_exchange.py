"""Collectives between replicas in rounds: when each rank finishes, from when each one joins."""

from collections.abc import Callable
from functools import lru_cache

import numpy as np

from lib_dlhpc.costs import groups
from lib_dlhpc.costs.network import Network
from lib_dlhpc.layout import sizes
from lib_dlhpc.schedules.choice import chosen, plan
from lib_dlhpc.simulation import rounds
from lib_dlhpc.simulation.split import Floats
from lib_dlhpc.spec.experiment import Experiment


def data_exchange(experiment: Experiment) -> Callable[[float, Floats], Floats]:
    """Return the exchange of one bucket between replicas: bytes and when ranks join, to when they are through."""
    return _exchange(experiment, sizes(experiment).data, groups.group_network(experiment, "data"))


def alike_exchange(experiment: Experiment) -> Callable[[float, Floats], Floats]:
    """Return the same between replicas that have the same experts."""
    shared = int(experiment.strategy.experts)
    ranks = sizes(experiment).data // shared
    exchange = _exchange(experiment, ranks, groups.alike_network(experiment))

    def of_blocks(size: float, joined: Floats) -> Floats:
        return exchange(size, joined.reshape(ranks, shared, *joined.shape[1:])).reshape(
            joined.shape
        )

    return of_blocks


def _exchange(
    experiment: Experiment, ranks: int, net: Network
) -> Callable[[float, Floats], Floats]:
    """Return when each rank is through with `size` bytes, the first axis being the ranks that exchange."""
    name = experiment.strategy.allreduce
    goal = "reduce_scatter" if experiment.strategy.zero else "allreduce"
    record = lru_cache(lambda size: chosen(goal, size, net, name))
    kept: dict[str, rounds.Program] = {}

    def exchange(size: float, joined: Floats) -> Floats:
        if ranks == 1:
            return joined
        found = record(size)
        if found.name not in kept:  # one serves all sizes, its elements being as large as needed
            kept[found.name] = rounds.program(plan(goal, size, net, ranks, name=name))
        program, by_group = kept[found.name], np.moveaxis(joined, 0, -1)
        through = rounds.finish_times(program, net, size / program.elements, by_group)
        return np.moveaxis(through, -1, 0)

    return exchange
