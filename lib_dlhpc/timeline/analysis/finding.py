"""What is wrong with a run, in sentences, with the place in the timeline where to look.

significance.py defines what exceeds scatter. A finding names the rank to look at: the sender that is
late, the receiver that is late, the rank that joins a collective last, the one that computes longest, one
end of the slow link, the rank whose input comes slowly. Its seconds are

    late sender, late receiver   what others wait for it, its own doing only (see waits.py), summed over them
    wait at collective           what a rank that waits for it waits on average (root: what the root waits), its
                                 own doing only
    load imbalance               what it computes more than the others (their median)
    slow link                    what its messages take longer than those of other pairs would
    slow disk                    what its reads or writes take longer than those of the others (their median)
"""

from dataclasses import dataclass
from typing import NamedTuple

from lib_dlhpc.spec.units import format_quantity
from lib_dlhpc.timeline.table import Timeline


class Place(NamedTuple):
    """Where in the timeline to look: one row."""

    rank: int
    start: float  # s
    stop: float  # s
    name: str


@dataclass(frozen=True)
class Finding:
    """One thing that costs time. peer: the other end, or the rank that waits most; -1: all ranks."""

    kind: str
    rank: int
    seconds: float
    where: Place
    sentence: str
    peer: int = -1


def place(table: Timeline, row: int) -> Place:
    """Return where a row of a table is."""
    return Place(
        int(table.rank[row]),
        float(table.start[row]),
        float(table.stop[row]),
        table.names[table.name[row]],
    )


def duration(seconds: float) -> str:
    """Return seconds in words."""
    return format_quantity(float(seconds), "s") if seconds else "0 s"
