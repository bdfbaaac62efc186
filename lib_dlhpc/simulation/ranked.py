"""Collectives that ranks leave one by one, in rounds: when each rank finishes, from when each one joins.

Rounds of one group know nothing of links between switches, which other groups load as well. Where these slow the
collective down, every rank leaves later by what the price exceeds the rounds of ranks that join together.
"""

from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from lib_dlhpc.arrays import Floats
from lib_dlhpc.program import Collective, Program, RankedExchange
from lib_dlhpc.schedules import Schedule
from lib_dlhpc.schedules.choice import chosen, plan
from lib_dlhpc.simulation import rounds

SWITCHES = 2  # of the kinds of links that a collective keeps busy


class Schedules:
    """The schedules of a program's collectives: one serves all sizes, its elements being as large as needed."""

    def __init__(self, step: Program) -> None:
        self.groups, self.bytes_of = step.groups, step.stages[0][0].last.prices[0].bytes
        self._known: dict[tuple[str, str], Schedule] = {}
        self._sized: dict[tuple[Any, ...], tuple[Schedule, float]] = {}

    def of(self, what: Collective) -> tuple[Schedule, float]:
        """Return the schedule of a collective of one group, and the bytes of an element."""
        key = (what.group, what.goal, what.elements, what.content, what.algorithm)
        if key not in self._sized:
            self._sized[key] = self._planned(what)
        return self._sized[key]

    def _planned(self, what: Collective) -> tuple[Schedule, float]:
        group, size = self.groups[what.group], self.bytes_of(what)
        size *= group.size if what.goal == "all_to_all" else 1
        name = chosen(what.goal, size, group.network, what.algorithm).name
        if (what.group, name) not in self._known:
            found = plan(what.goal, size, group.network, group.size, name=what.algorithm)
            self._known[what.group, name] = found
        schedule = self._known[what.group, name]
        return schedule, size / schedule.elements


def ranked_exchange(step: Program, speed: ArrayLike = 1.0) -> RankedExchange:
    """Return when each rank of a stage leaves a collective, from when each joins; any shape.

    speed: of each rank, for what it combines; 1 is normal.
    """
    plans, programs = Schedules(step), dict[int, rounds.Program]()
    later = dict[tuple[Any, ...], float]()
    stages, variants = step.schedule.ranks, int(np.prod(step.shape))
    even = bool(np.all(np.equal(speed, 1.0)))
    combines = np.broadcast_to(np.asarray(speed, np.float64), stages * variants).reshape(
        stages, variants
    )

    def exchange(place: int, what: Collective, joined: Floats) -> Floats:
        prices = step.ends.prices[place]
        group = prices.groups[what.group]
        if group.size == 1:
            return joined
        if group.network.uneven is not None:  # all leave together: see costs/uneven_groups.py
            seconds = prices.priced(what).seconds
            return np.asarray(np.broadcast_to(group.latest(joined), joined.shape) + seconds)
        schedule, element = plans.of(what)
        if id(schedule) not in programs:
            programs[id(schedule)] = rounds.program(schedule)
        known = programs[id(schedule)], group.network, element
        key = id(schedule), id(group), element
        if key not in later:
            later[key] = 0.0
            if prices.busy(what, 0)[SWITCHES]:
                alone = float(rounds.finish_times(*known).max())
                later[key] = max(0.0, prices.priced(what).seconds - alone)
        if group.size == joined.size:  # one group: no need to sort ranks by group
            combine = 1.0 if even else combines[place]
            ends = rounds.finish_times(*known, joined.ravel(), speed=combine) + later[key]
            return ends.reshape(joined.shape)
        combine = 1.0 if even else combines[place][group.rows]
        through = np.empty(joined.size)
        by_group = joined.ravel()[group.rows]
        through[group.rows] = rounds.finish_times(*known, by_group, speed=combine) + later[key]
        return through.reshape(joined.shape)

    return exchange
