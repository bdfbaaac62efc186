"""find_steps: when each step of each rank begins and ends.

In this order: the steps that a framework annotates (from the start of one to the start of the next), the
updates of a run or simulation of ours, each of which ends a step, and else the period after which the
kernels and collectives of a rank repeat.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lib_dlhpc.arrays import Array
from lib_dlhpc.errors import SpecError
from lib_dlhpc.timeline.table import Timeline

ALIKE = 0.9  # of the names, with those one period later: others are before and after, or a logger's
LONGEST = 200_000  # names of a rank in which a period is looked for


@dataclass(frozen=True, eq=False)
class Steps:
    """edges: times, s, shape (ranks of `rank`, steps + 1); a step is from one to the next."""

    rank: list[int]  # those that have events
    edges: Array
    found: str  # "annotations", "updates" or "repetition"


def find_steps(table: Timeline) -> Steps:
    """Return the steps of a table in order: as many of each rank. Raises SpecError where there are none."""
    ranks = np.unique(table.rank).tolist()
    for found, edges_of in (
        ("annotations", _annotated),
        ("updates", _updated),
        ("repetition", _repeated),
    ):
        each = [edges_of(table.select(table.rank == rank)) for rank in ranks]
        steps = min((len(edges) - 1 for edges in each), default=0)
        if steps >= 1:
            return Steps(ranks, np.array([edges[: steps + 1] for edges in each]), found)
    raise SpecError(
        "No step found in the trace: expected steps that the framework annotates (ProfilerStep#,"
        " StepTraceAnnotation), updates, or at least two steps whose kernels repeat."
    )


def _annotated(table: Timeline) -> Array:
    rows = table.where("host", "step")
    return np.append(table.start[rows], table.stop[rows].max(initial=-np.inf))


def _updated(table: Timeline) -> Array:
    stops = np.sort(table.stop[table.where("compute", "update")])
    begin = table.start[table.where("compute") | table.where("communication")]
    return np.append(begin.min(initial=np.inf), stops)


def _repeated(table: Timeline) -> Array:
    """Return the starts of the kernels that are one period apart, and the end of the last one of a whole step."""
    work, talk = table.where("compute", "kernel"), table.where("communication")
    for chosen in (work | talk, work, talk):  # collectives beside kernels may begin in any order
        rows = table.select(chosen)
        period, first, end = _period(rows.name[:LONGEST])
        if period:
            last = first + (end - first) // period * period  # whole steps
            return np.append(rows.start[first:last:period], rows.stop[first:last].max())
    return np.empty(1)


def _period(names: NDArray[np.int32]) -> tuple[int, int, int]:
    """Return the least period of the names, the first of them that repeats, and the end; zeros: there is none."""
    _, number, times = np.unique(names, return_inverse=True, return_counts=True)
    repeated = np.flatnonzero(times > 1)
    if not len(repeated):
        return 0, 0, 0
    rarest = np.flatnonzero(number == repeated[np.argmin(times[repeated])])
    for period in np.unique(rarest[1:] - rarest[0]).tolist():
        same = names[period:] == names[:-period]
        if 2 * period <= len(names) and same.mean() >= ALIKE:
            alike = np.flatnonzero(same)
            return period, int(alike[0]), int(alike[-1]) + period + 1
    return 0, 0, 0
