"""Collectives that ranks leave one by one, in rounds: when each rank finishes, from when each one joins."""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from lib_dlhpc.program import Collective, Program
from lib_dlhpc.schedules.choice import chosen, plan
from lib_dlhpc.simulation import rounds

Floats = NDArray[np.float64]


def ranked_exchange(step: Program) -> Callable[[Collective, Floats], Floats]:
    """Return when each rank of a stage is through with a collective, from when each joins; any shape."""
    kept: dict[tuple[str, str], rounds.Program] = {}
    bytes_of = step.stages[0][0].last.prices[0].bytes

    def exchange(what: Collective, joined: Floats) -> Floats:
        group, size = step.groups[what.group], bytes_of(what)
        if group.size == 1:
            return joined
        found = chosen(what.goal, size, group.network, what.algorithm)
        key = (what.group, found.name)
        if key not in kept:  # one serves all sizes, its elements being as large as needed
            planned = plan(what.goal, size, group.network, group.size, name=what.algorithm)
            kept[key] = rounds.program(planned)
        schedule = kept[key]
        by_group = joined.ravel()[group.rows]
        element = size / schedule.elements
        through = np.empty(joined.size)
        through[group.rows] = rounds.finish_times(schedule, group.network, element, by_group)
        return through.reshape(joined.shape)

    return exchange
