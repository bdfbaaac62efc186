"""Columns that grow by one event at a time: for readers of files, a tenth of the memory of tuples.

File contents are checked here, once: a Timeline needs no further checks.
"""

from array import array
from typing import Any

import numpy as np

from lib_dlhpc.errors import SpecError
from lib_dlhpc.timeline.kinds import KINDS, STREAMS
from lib_dlhpc.timeline.store import MOST_RANKS
from lib_dlhpc.timeline.table import COLUMNS, DEFAULTS, Timeline, check

# from 0 either way, so that their differences are int64 as well; in ns, 146 years
MOST_TICKS = 2**62
LATEST = MOST_TICKS / 1e9  # s
CODES = {np.int8: "b", np.int32: "i", np.int64: "q", np.float64: "d"}


class Rows:
    """A table under construction. With `ticks` its times are whole numbers until the end, and exact."""

    def __init__(self, ticks: bool = False) -> None:
        codes = {name: CODES[kind] for name, kind in COLUMNS.items()}
        if ticks:
            codes |= {"start": "q", "stop": "q"}
        self.columns: dict[str, array[Any]] = {name: array(code) for name, code in codes.items()}
        self.names: dict[str, int] = {}

    def __len__(self) -> int:
        return len(self.columns["rank"])

    def add(
        self,
        rank: int,
        stream: str,
        kind: str,
        name: str,
        start: float,
        stop: float,
        bytes: int = DEFAULTS["bytes"],
        peer: int = DEFAULTS["peer"],
        comm: int = DEFAULTS["comm"],
        match: int = DEFAULTS["match"],
    ) -> None:
        """Add one event. Raises KeyError or ValueError for no such stream or kind, OverflowError and TypeError
        for a number that its column cannot hold.
        """
        number = self.names.setdefault(name, len(self.names))
        place, what = _STREAM[stream], _KIND[kind]
        row = (rank, place, what, number, start, stop, bytes, peer, comm, match)
        for (label, column), value in zip(self.columns.items(), row, strict=True):
            try:
                column.append(value)
            except OverflowError:
                bits = 8 * column.itemsize
                raise OverflowError(
                    f"{label} = {value}: expected a number of {bits} bits"
                ) from None

    def timeline(
        self, ranks: int, source: str, zero: int = 0, ticks_a_second: float = 1.0
    ) -> Timeline:
        """Return the table; times count from `zero`.

        Raises SpecError for times further from 0 than LATEST, for ranks, peers and other numbers that no
        timeline has, and for what `check` finds.
        """
        check_ranks(ranks)
        table = {name: np.array(self.columns[name], dtype=COLUMNS[name]) for name in COLUMNS}
        for name in ("start", "stop"):
            if self.columns[name].typecode == "q":
                column = self.columns[name]
                for tick in (min(column, default=zero), max(column, default=zero)):
                    if abs(tick - zero) > MOST_TICKS:
                        raise SpecError(
                            f"{name} = {tick}, {tick - zero:.3g} from the first: legal: to {MOST_TICKS:.3g}."
                        )
                table[name] = (np.array(column, dtype=np.int64) - zero) / ticks_a_second
        timeline = Timeline(**table, names=tuple(self.names), ranks=ranks, source=source)
        return _in_limits(check(timeline))


def check_ranks(ranks: int) -> None:
    """Raise SpecError for a number of ranks that no timeline has."""
    if not 1 <= ranks <= MOST_RANKS:
        raise SpecError(f"ranks = {ranks}: legal: from 1 to {MOST_RANKS:,}.")


def _in_limits(timeline: Timeline) -> Timeline:
    """Return the timeline; raises SpecError at the first number that none has."""
    limits = {
        "start": (-LATEST, LATEST),
        "stop": (-LATEST, LATEST),
        "bytes": (0, 2**63 - 1),
        "peer": (-1, timeline.ranks - 1),
        "comm": (0, 2**31 - 1),
        "match": (-1, 2**63 - 1),
    }
    for name, (low, high) in limits.items():
        column = getattr(timeline, name)
        wrong = ~((column >= low) & (column <= high))  # also true of NaN
        if wrong.any():
            row = int(np.argmax(wrong))
            unit = " s" if name in ("start", "stop") else ""
            raise SpecError(
                f"Event {row} ({timeline.names[timeline.name[row]]}, rank {timeline.rank[row]} of"
                f" {timeline.ranks}): {name} = {column[row]}{unit}; legal: {low:.3g} to {high:.3g}{unit}."
            )
    return timeline


_STREAM = {name: number for number, name in enumerate(STREAMS)}
_KIND = {name: number for number, name in enumerate(KINDS)}
