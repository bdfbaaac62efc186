"""find_steps: when each step of each rank begins and ends.

In this order: the steps that a framework annotates (from the start of one to the start of the next), the
updates of a run or simulation of ours, each of which ends a step, and else the period after which the
kernels and collectives of a rank repeat.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lib_dlhpc.errors import SpecError
from lib_dlhpc.timeline.spans import Floats
from lib_dlhpc.timeline.table import Timeline

ALIKE = (
    0.95  # of the names, with those one period later: the rest may be a logger's or a scheduler's
)
LONGEST = 200_000  # names of a rank in which a period is looked for


@dataclass(frozen=True, eq=False)
class Steps:
    """edges: times, s, shape (ranks of `rank`, steps + 1); a step is from one to the next."""

    rank: list[int]  # those that have events
    edges: Floats
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


def _annotated(table: Timeline) -> Floats:
    rows = table.where("host", "step")
    return np.append(table.start[rows], table.stop[rows].max(initial=-np.inf))


def _updated(table: Timeline) -> Floats:
    stops = np.sort(table.stop[table.where("compute", "update")])
    begin = table.start[table.where("compute") | table.where("communication")]
    return np.append(begin.min(initial=np.inf), stops)


def _repeated(table: Timeline) -> Floats:
    """Return the starts of the kernels that are one period apart, and the end of the last one of a whole step."""
    rows = table.select(table.where("compute", "kernel"))
    if not len(rows):
        rows = table.select(table.where("communication"))
    period, first = _period(rows.name[:LONGEST])
    if not period:
        return np.empty(1)
    edges = rows.start[first::period]
    whole = (len(rows) - first) % period == 0
    return np.append(edges, rows.stop.max()) if whole else edges


def _period(names: NDArray[np.int32]) -> tuple[int, int]:
    """Return the least period of the names and the first of them that repeats; (0, 0): there is none."""
    _, number, times = np.unique(names, return_inverse=True, return_counts=True)
    repeated = np.flatnonzero(times > 1)
    if not len(repeated):
        return 0, 0
    rarest = np.flatnonzero(number == repeated[np.argmin(times[repeated])])
    for period in np.unique(rarest[1:] - rarest[0]).tolist():
        same = names[period:] == names[:-period]
        if 2 * period <= len(names) and same.mean() >= ALIKE:
            return period, int(np.argmax(same))
    return 0, 0
