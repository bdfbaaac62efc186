"""One clock from collectives, for traces whose files each have a clock of their own.

All ranks leave a collective together, about: the median distance of its ends is that of two clocks.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from lib_dlhpc.arrays import Array
from lib_dlhpc.timeline.table import Timeline


def match_by_name(table: Timeline) -> Timeline:
    """Return the table with one match for the k-th collective of each name on all ranks, if all have as many."""
    match, first = table.match.copy(), 0
    talk = table.where("communication")
    for name in np.unique(table.name[talk]):
        of_each = [
            np.flatnonzero(talk & (table.name == name) & (table.rank == rank))
            for rank in range(table.ranks)
        ]
        if len({len(found) for found in of_each}) > 1:
            continue
        for found in of_each:
            order = found[np.argsort(table.start[found], kind="stable")]
            match[order] = first + np.arange(len(order))
        first += len(of_each[0])
    return replace(table, match=match)


def one_clock(table: Timeline, clocks: Sequence[int]) -> Timeline:
    """Return a matched table with all times on the clock of rank 0, from 0 on.

    clocks: the number of each rank's clock.
    """
    start, stop = table.start.copy(), table.stop.copy()
    of_rank = np.array(clocks)[table.rank]
    first = _ends(table, 0)
    for clock in sorted(set(clocks) - {clocks[0]}):
        ends = _ends(table, clocks.index(clock))
        if len(ends):
            late = float(np.median(ends - first))
            start[of_rank == clock] -= late
            stop[of_rank == clock] -= late
    zero = start.min()
    return replace(table, start=start - zero, stop=stop - zero)


def _ends(table: Timeline, rank: int) -> Array:
    """Return the ends of a rank's collectives in the order of their matches."""
    rows = np.flatnonzero((table.match >= 0) & (table.rank == rank))
    return table.stop[rows[np.argsort(table.match[rows])]]
