"""Layouts with the same passes, grouped: they differ in their microbatches and in the schedule of the same passes.

What is known of a group is remembered: the next question about the same run may ask for more of its layouts.
"""

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import replace
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from lib_dlhpc.costs.wire_format import adds_wide
from lib_dlhpc.errors import SpecError
from lib_dlhpc.keyed import Keyed
from lib_dlhpc.layout import stage_cuts
from lib_dlhpc.parallel.groups import lie_apart
from lib_dlhpc.parallel.overlapped_passes import overlaps_passes
from lib_dlhpc.parallel.ramps import met
from lib_dlhpc.planner.search_space import Columns, alike, changes_of, keyed
from lib_dlhpc.spec.experiment import Experiment
from lib_dlhpc.spec.strategy import SPLIT_BACKWARD, Strategy

Rows = NDArray[np.intp]
# What passes do not depend on, but where backward is in two parts, stages are held twice, gradients are added in 32
# bits, messages between stages meet passes, exchanges those of other stages, and for where stages are cut.
PIPELINE = ("microbatches", "schedule")


class SamePasses(NamedTuple):
    """Layouts with the same passes: one with them, which rows they are, and of each its microbatches and schedule."""

    one: Experiment
    rows: Rows
    many: NDArray[np.int64]
    schedules: NDArray[Any]

    @property
    def has_lanes(self) -> bool:
        """Whether the layouts are walked many at once: none of their passes overlaps another."""
        return not overlaps_passes(self.one)

    def only(self, some: NDArray[np.bool_]) -> "SamePasses":
        """Return some of them."""
        return self._replace(
            rows=self.rows[some], many=self.many[some], schedules=self.schedules[some]
        )


class LayoutGroup:
    """Layouts that differ in PIPELINE alone: `first` is one of them."""

    def __init__(self, first: Experiment) -> None:
        self.first, self._cuts = first, stage_cuts(first)
        # Unlike where there is one microbatch: casts, and what a pass exchanges beside a message.
        self._unlike_one = first.strategy.pipeline > 1 or adds_wide(
            replace(first.strategy, microbatches=2)
        )
        self._lie_apart = lie_apart(first)
        self._known: dict[tuple[object, ...], Experiment] = {}

    @property
    def has_lanes(self) -> bool:
        """Whether layouts are walked many at once, but for a group that is not; others are predicted one by one."""
        s = self.first.strategy
        return s.is_split and s.spatial == 1 and s.offload == "none" and s.gather == "usual"

    def like(self, many: int, schedule: str) -> Experiment:
        """Return a layout with the same passes: stages are cut alike, backward is as often in two, casts are the same.

        The same object for all that are alike. Raises SpecError for a network that cannot be cut so.
        """
        backward = schedule in SPLIT_BACKWARD, schedule == "dualpipe"
        meets = met(self._strategy(many, schedule)) if self._lie_apart else ()
        how = self._cuts.of(many, schedule), *backward, self._unlike_one and many > 1, meets
        if how not in self._known:
            self._known[how] = replace(self.first, strategy=self._strategy(many, schedule))
        return self._known[how]

    def _strategy(self, many: int, schedule: str) -> Strategy:
        return replace(self.first.strategy, microbatches=many, schedule=schedule)

    def by_passes(self, rows: Rows, columns: Columns) -> Iterator[SamePasses]:
        """Yield some rows of columns by their passes. Raises SpecError for a network that cannot be cut so."""
        many, schedules = (columns[name][rows] for name in PIPELINE)
        found = defaultdict[int, list[int]](list)
        each = [self.like(*one) for one in zip(many.tolist(), schedules.tolist(), strict=True)]
        for index, one in enumerate(each):
            found[id(one)].append(index)
        for some in found.values():
            yield SamePasses(each[some[0]], rows[some], many[some], schedules[some])


def layout_groups(
    experiment: Experiment, columns: Columns
) -> Iterator[tuple[Rows, LayoutGroup | SpecError]]:
    """Yield the rows of each group; and why, where the layouts are not legal."""
    every = keyed(experiment)
    shared = [name for name in columns if name not in PIPELINE]
    for rows in alike([columns[name] for name in shared]):
        values = tuple(columns[name][rows[0]].item() for name in shared)
        try:
            first = Keyed(changes_of(columns, rows[0]), *shared, *values)
            yield rows, _layout_group(every, first)
        except SpecError as error:
            yield rows, error


@lru_cache(maxsize=4096)
def _layout_group(every: Keyed[Experiment], first: Keyed[dict[str, Any]]) -> LayoutGroup:
    return LayoutGroup(every.value.set(first.value))
