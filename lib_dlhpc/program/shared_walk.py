"""A walk through the calls of a pipeline whose messages share links, see ports.py and walk.py."""

from typing import Any

import numpy as np

from lib_dlhpc.arrays import Floats
from lib_dlhpc.program.ports import Ports, SharedLinks, line_of
from lib_dlhpc.program.rounds import Rows
from lib_dlhpc.program.walk import ROUNDING, Walk


class SharedWalk(Walk):
    """The clocks of ranks through calls; arguments as of Walk, and what lines meet.

    What a message adds to those after it makes the times of a round no map that keeps order. So rounds are skipped once
    all times, and all that is added, are those of some rounds before (Brent 1980, "An improved Monte Carlo
    factorization algorithm"); some pipelines never repeat.
    """

    def __init__(self, *how: Any, meets: SharedLinks) -> None:
        super().__init__(*how)
        self.ports, chunks = Ports(meets), len(self.busy) // len(self.clock)
        self._before = [boundary // chunks for boundary in range(len(self.busy))]

    def _send(self, place: int, boundary: int, ready: float) -> float:
        line, busy = line_of(place, self._before[boundary]), self.busy[boundary]
        free, more = self.ports.sent[line][0].end, 0.0
        begin = ready if ready > free else free
        if self.exchanges is not None:
            more = self.exchanges.meet(place, boundary, begin + self._base, busy)
        late: float = self.ports.send(line, begin, busy + more)
        return begin + self.takes[boundary] + more + late

    def _repeat(self, rows: Rows, times: int) -> None:
        self._shift(-min(self.clock), len(rows))
        clock, seen, walked, power = self.clock[:], self._times(rows), 0, 1
        while times:
            self._round(rows)
            times, walked = times - 1, walked + 1
            periods, rounding = times // walked, ROUNDING * max(self.clock)
            growth = [now - then for now, then in zip(self.clock, clock, strict=True)]
            if periods and max(growth) - min(growth) <= rounding:
                later = self._times(rows) - seen
                if np.ptp(later) * periods <= rounding + ROUNDING * periods * later.max():
                    self._skip(rows, periods * later)
                    times, power = times - periods * walked, walked
            if walked == power:  # from here on, rounds are compared with this one
                del self.arrives[: -len(rows)]
                clock, seen, walked, power = self.clock[:], self._times(rows), 0, 2 * power

    def _times(self, rows: Rows) -> Floats:
        return np.append(super()._times(rows), [*self.ports.state(self.clock)])

    def _shift(self, by: float, count: int) -> None:
        super()._shift(by, count)
        self.ports.shift(by)

    def _skip(self, rows: Rows, later: Floats) -> None:
        """Let the times of a round be so much later."""
        arrives, ranks = self.arrives[-len(rows) :], len(self.clock)
        self.arrives = (np.array(arrives) + later[: len(rows)]).tolist()
        self.clock = (np.array(self.clock) + later[len(rows) :][:ranks]).tolist()
        self.ports.shift(float(later[len(rows)]))
        if self.exchanges is not None:
            sent, more = self.exchanges.sent, later[len(rows) :][:ranks].tolist()
            self.exchanges.sent = [at + by for at, by in zip(sent, more, strict=True)]
