"""When each rank of a pipeline finishes its calls, where a repeated pass always takes the same time.

The times of a round follow from those of the round before by maxima and sums with constants. Such a map keeps order
and commutes with a shift of all times, so it never moves two sets of times further apart (Baccelli et al. 1992,
"Synchronization and Linearity", section 3): where all times are those of c rounds before and a constant later, within
e, they are so within n e another n c rounds on, which need not be walked.

Where all messages of a round go one way, ranks need not be equally fast: the rounds of a rank take as long as the
longest pass, or message, up to it. Once two rounds in turn are that far apart, so are all that follow: a rank that
takes longest itself never waits again, and any other has waited, and will.
"""

from collections.abc import Callable, Sequence

import numpy as np

from lib_dlhpc.arrays import Floats
from lib_dlhpc.program.gradient_contention import GradientExchanges
from lib_dlhpc.program.rounds import ONLY, Rows, Section

# of the time of all rounds, by which the end of those that are not walked may be off
ROUNDING = 3e-13


class Walk:
    """The clocks of ranks through calls; `_send`: when a message arrives, where those of several ranks share links.

    seconds: of each pass. only: when a first forward pass, or one that completes gradients, ends, by its number and
    when it begins. busy, takes: s for which a message occupies each boundary, and until it arrives. clock: s at which
    each rank begins. exchanges: of gradients that messages may meet.
    """

    _send: Callable[[int, int, float], float] | None = None

    def __init__(
        self,
        seconds: Sequence[float],
        only: Callable[[int, float], float],
        busy: Sequence[float],
        takes: Sequence[float],
        clock: Sequence[float],
        exchanges: GradientExchanges | None = None,
    ) -> None:
        self.seconds, self.only, self.busy, self.takes = seconds, only, busy, takes
        self.exchanges = exchanges
        self.clock, self.port, self.arrives = list(clock), list(clock), list[float]()
        self._base = 0.0  # of all times; small numbers are more exact

    def run(self, sections: Sequence[Section]) -> list[float]:
        """Execute all calls; return when each rank finishes."""
        for rows, times in sections:
            if times == 1:
                self._round(rows)
            else:
                self._repeat(rows, times)
        return [time + self._base for time in self.clock]

    def _round(self, rows: Rows) -> None:
        clock, port, arrives, seconds = self.clock, self.port, self.arrives, self.seconds
        busy, takes, send, base, late = self.busy, self.takes, self._send, self._base, 0.0
        meet = self.exchanges.meet if self.exchanges is not None else None
        for place, made, back, boundary in rows:
            now = clock[place]
            if back and arrives[-back] > now:
                now = arrives[-back]
            if made >= 0:
                now += seconds[made]
            else:
                now = self.only(ONLY - made, now + base) - base
            clock[place] = now
            if boundary >= 0:
                if send is not None:
                    now = send(place, boundary, now)
                else:
                    if port[place] > now:
                        now = port[place]
                    if meet is not None:  # it is late by what gradients delay it
                        late = meet(place, boundary, now + base, busy[boundary])
                    port[place] = now + busy[boundary] + late
                    now += takes[boundary] + late
            arrives.append(now)

    def _repeat(self, rows: Rows, times: int) -> None:
        self._shift(-min(self.clock), len(rows))
        seen, rates = [self._times(rows)], _one_way(rows, self.seconds, self.busy)
        while times:
            self._round(rows)
            times -= 1
            if not seen or times < 2:
                continue
            seen.append(self._times(rows))
            walked = len(seen) - 1
            if walked & (walked - 1):  # looked at after 1, 2, 4, 8, ... rounds
                continue
            skipped, later = _repetition(seen, rates, times)
            if skipped:
                self._skip(rows, later)
                times, seen = times - skipped, []

    def _times(self, rows: Rows) -> Floats:
        return np.array(self.arrives[-len(rows) :] + self.clock)

    def _shift(self, by: float, count: int) -> None:
        """Add a constant to all times that are still read."""
        self._base -= by
        self.clock, self.port = [at + by for at in self.clock], [at + by for at in self.port]
        self.arrives = [arrive + by for arrive in self.arrives[-count:]]

    def _skip(self, rows: Rows, later: Floats) -> None:
        """Let the times of a round be so much later."""
        added = later.tolist()
        self.arrives = [
            arrive + more for arrive, more in zip(self.arrives[-len(rows) :], added, strict=False)
        ]
        self.clock = [at + more for at, more in zip(self.clock, added[len(rows) :], strict=True)]
        ports = {row[0]: more for row, more in zip(rows, added, strict=False) if row[3] >= 0}
        for place, more in ports.items():
            self.port[place] += more
            if self.exchanges is not None:
                self.exchanges.sent[place] += more


def _one_way(rows: Rows, seconds: Sequence[float], busy: Sequence[float]) -> Floats | None:
    """Return by how much the times of a round are later than those of the one before, if messages go one way."""
    if len({row[0] for row in rows}) < len(rows) or any(
        row[2] > index for index, row in enumerate(rows)
    ):
        return None
    arrive, ends = list[float](), [0.0] * len(rows)
    for place, made, back, boundary in rows:
        ends[place] = rate = max(seconds[made], arrive[-back] if back else 0.0)
        arrive.append(max(rate, busy[boundary]) if boundary >= 0 else rate)
    return np.array(arrive + ends)


def _repetition(seen: Sequence[Floats], rates: Floats | None, left: int) -> tuple[int, Floats]:
    """Return how many of the rounds that are left repeat those seen, and by how much later all times are after them."""
    if rates is not None:
        later, rounds = rates[None], np.array([1])
        off = np.abs(seen[-1] - seen[-2] - rates).max(keepdims=True)
    else:
        later = (seen[-1] - np.array(seen[:-1]))[::-1]
        off = later.max(axis=1) - later.min(axis=1)
        rounds = np.arange(1, len(seen))
    periods = left // rounds
    total = seen[-1].max() + periods * later.max(axis=1)
    fits = np.flatnonzero((periods > 0) & (periods * off <= ROUNDING * total))
    if not len(fits):
        return 0, later[0]
    first = fits[0]
    return int(rounds[first] * periods[first]), periods[first] * later[first]
