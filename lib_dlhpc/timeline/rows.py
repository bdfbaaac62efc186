"""Columns that grow by one event at a time: for readers of files, a tenth of the memory of tuples."""

from array import array
from typing import Any

import numpy as np

from lib_dlhpc.timeline.table import COLUMNS, DEFAULTS, KINDS, STREAMS, Timeline, check

CODES = {np.int8: "b", np.int32: "i", np.int64: "q", np.float64: "d"}


class Rows:
    """A table in the making. With `ticks` its times are whole numbers until the end, and exact."""

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
        for column, value in zip(self.columns.values(), row, strict=True):
            column.append(value)

    def timeline(
        self, ranks: int, source: str, zero: int = 0, ticks_a_second: float = 1.0
    ) -> Timeline:
        """Return the table; times count from `zero`. Raises SpecError: see `check`."""
        table = {name: np.array(self.columns[name], dtype=COLUMNS[name]) for name in COLUMNS}
        for name in ("start", "stop"):
            if self.columns[name].typecode == "q":
                ticks = np.array(self.columns[name], dtype=np.int64) - zero
                table[name] = ticks / ticks_a_second
        return check(Timeline(**table, names=tuple(self.names), ranks=ranks, source=source))


_STREAM = {name: number for number, name in enumerate(STREAMS)}
_KIND = {name: number for number, name in enumerate(KINDS)}
