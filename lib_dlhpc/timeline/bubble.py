"""The bubble of a pipeline: the idle time of its ranks even if messages took no time.

The rest of their idle time is exposed communication. One wait does not tell
the two apart, since a late message delays every later pass; so an engine simulates the pipeline a second time with
free messages, and returns the idle time of each rank.
"""

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lib_dlhpc.timeline.kinds import KINDS
from lib_dlhpc.timeline.table import Timeline, join

WAIT, BUBBLE = KINDS.index("wait"), KINDS.index("bubble")


def mark_bubble(timeline: Timeline, seconds: NDArray[Any], rows: NDArray[np.bool_]) -> Timeline:
    """Return the timeline with `seconds` (ranks,) of the waits in `rows` as bubble, spread evenly over them.

    The first part of each wait becomes bubble, and the rest stays a wait. A rank that waits less than
    its bubble (the clocks of a real run show such) has nothing but bubble.
    """
    length = np.where(rows, timeline.stop - timeline.start, 0.0)
    total = np.bincount(timeline.rank, weights=length, minlength=timeline.ranks)
    share = np.divide(seconds, total, out=np.zeros(timeline.ranks), where=total > 0)
    share = np.clip(share, 0.0, 1.0)[timeline.rank]
    # To the end exactly where all of it is bubble: nothing of the length of a rounding is left over.
    edge = np.where(share < 1, timeline.start + share * length, timeline.stop)
    first = replace(timeline.select(rows), stop=edge[rows])
    first = replace(first, kind=np.full(len(first), BUBBLE, timeline.kind.dtype))
    rest = replace(timeline, start=np.where(rows, edge, timeline.start))
    parts = [first.select(first.stop > first.start), rest.select(~rows | (rest.stop > rest.start))]
    return join(parts).sorted()
