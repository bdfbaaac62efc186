"""What each rank computes, and when: in the calls of a recorded program nothing, elsewhere something.

Where calls were recorded, a rank computes whenever it is in none and no row records idle time, from
the beginning of the trace to its own last event. Otherwise it computes where rows say so: forward, backward,
update, and regions of a program; in the trace of a framework where its kernels run, whatever calls are beside them.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lib_dlhpc.arrays import Array
from lib_dlhpc.timeline.analysis.calls import COLLECTIVE, RECEIVE, SEND
from lib_dlhpc.timeline.kinds import KINDS, STREAMS
from lib_dlhpc.timeline.measure import WORK
from lib_dlhpc.timeline.spans import Spans, union
from lib_dlhpc.timeline.table import Timeline

STILL = ("wait", "bubble", "input", "checkpoint")
HELD = ("wait", "bubble")  # still for the sake of other ranks


@dataclass(frozen=True, eq=False)
class Busy:
    """When ranks compute. calls: from the calls they are not in; begin, end: of the whole trace, s."""

    spans: Spans  # in calls and still; or at work
    calls: bool
    begin: float
    end: float
    last: Array  # the end of each rank's last event

    @property
    def seconds(self) -> Array:
        """What each rank computes, shape (ranks,)."""
        every = np.arange(len(self.last), dtype=np.int32)
        begin = np.full(len(every), self.begin)
        return self.work(every, begin, np.full(len(every), self.end))

    def work(self, rank: NDArray[np.int32], start: Array, stop: Array) -> Array:
        """Return the seconds in which each rank computes between two times."""
        inside = self.spans.before(rank, stop) - self.spans.before(rank, start)
        if not self.calls:
            return inside
        last = np.maximum(self.last[rank], start)
        inside = self.spans.before(rank, np.minimum(stop, last)) - self.spans.before(rank, start)
        return np.asarray(np.clip(np.minimum(stop, last) - start - inside, 0.0, None))


def busy(table: Timeline) -> Busy:
    """Return when each rank of a table in order computes."""
    compute = table.stream == STREAMS.index("compute")
    rows = np.isin(table.kind, [SEND, RECEIVE, COLLECTIVE])
    kernels = table.where("compute", "kernel")
    calls = bool(rows.any()) and not kernels.any()
    if kernels.any():
        rows = kernels
    elif calls:
        rows |= compute & np.isin(table.kind, [KINDS.index(kind) for kind in STILL])
    else:
        rows = compute & np.isin(table.kind, [KINDS.index(kind) for kind in (*WORK, "region")])
    last = np.full(table.ranks, table.start.min(initial=0.0))
    np.maximum.at(last, table.rank, table.stop)
    begin, end = float(table.start.min()), float(table.stop.max())
    return Busy(union(table, rows), calls, begin, end, last)
