"""When each rank of many pipelines of one shape finishes its passes; the times of each pipeline are a lane.

Passes are walked by their depth (depths.py). Where a stretch of them repeats, its end follows from what was walked as
soon as all times are a constant later than some repetitions before: see walk.py, which does the same for one pipeline.
"""

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from lib_dlhpc.arrays import Floats
from lib_dlhpc.program.calls import FORWARD, PASSES, Numbers, pipeline
from lib_dlhpc.program.depths import Depth, Stretch, stretches
from lib_dlhpc.program.gradient_contention import GradientExchanges, LinkShares
from lib_dlhpc.program.lanes import JOINS, LAST, POSTED, SENDS, SHARED
from lib_dlhpc.program.ports import SharedLinks
from lib_dlhpc.program.rounds import sections
from lib_dlhpc.program.shared_walk import SharedWalk
from lib_dlhpc.program.walk import ROUNDING

OFTEN = 8  # times are compared after 1, 2 and 4 repetitions, and then after every eighth
MEMORY = 64  # repetitions that are compared


def walk(
    schedule: str, ranks: int, many: int, chunks: int, table: Floats
) -> tuple[Floats, Floats, Floats]:
    """Return when each rank finishes its passes, when its stream is free, and its idle time, (ranks, lanes) each.

    table: (COLUMNS, ranks, chunks, lanes).
    """
    clocks = _Walk(table, _shares(table))
    for stretch in stretches(schedule, ranks, many, chunks):
        clocks.run(stretch)
    return clocks.clock, clocks.freed(), clocks.idle


def shared(
    schedule: str, ranks: int, many: int, chunks: int, table: Floats, meets: SharedLinks
) -> tuple[list[float], list[float]]:
    """Return when each rank of one pipeline finishes its passes, and its stream is free, if messages share links.

    table: (COLUMNS, ranks, chunks).
    """
    seconds = [*np.moveaxis(table[: len(PASSES)], 0, 2).ravel().tolist(), 0.0]
    last = table[LAST].reshape(4, -1).T.tolist()
    busy, takes = table[SENDS].reshape(2, -1).tolist()
    posted, joins = table[[POSTED, JOINS]].reshape(2, -1).tolist()
    free, common = [0.0] * ranks, _shares(table)
    exchanges = GradientExchanges(common, free, True) if common else None

    def only(number: int, start: float) -> float:
        at, kind = divmod(number, len(PASSES))
        if kind == PASSES.index(FORWARD):
            return start + seconds[number]
        (end, behind, freed, queued), place = last[at], at // chunks
        before = free[place]
        if exchanges is not None and posted[at]:
            before = max(before, exchanges.free[place])
            before = exchanges.join(place, before) if joins[at] else before
        free[place] = max(start + freed, before + queued)
        if exchanges is not None and posted[at]:
            exchanges.joined(place, start, before, posted[at], free[place])
        return float(max(start + end, before + behind))

    walk = SharedWalk(seconds, only, busy, takes, [0.0] * ranks, exchanges, meets=meets)
    ends = walk.run(sections(pipeline(schedule, ranks, many, chunks)))
    return ends, free if exchanges is None else [*map(max, free, exchanges.free)]


def _shares(table: Floats) -> LinkShares | None:
    """Return what messages share with gradients; table: (COLUMNS, ranks, chunks, ...)."""
    shared = table[SHARED]
    if not shared.any():
        return None
    pairs = shared.reshape(2, -1, *shared.shape[3:])
    behind, ahead = pairs.tolist() if pairs.ndim == 2 else map(list, pairs)
    return LinkShares(behind, ahead, shared.shape[2])


def _together(depth: Depth, exchanges: GradientExchanges) -> Iterator[slice]:
    """Yield passes of a depth that follow one another, none of which depends on what those before it send."""
    targets = np.where(depth.boundary >= 0, exchanges.target(depth.place, depth.boundary), -1)
    first, reached = 0, set[int]()
    for index, (place, target) in enumerate(
        zip(depth.place.tolist(), targets.tolist(), strict=True)
    ):
        if place in reached or target in reached:
            yield slice(first, index)
            first, reached = index, set()
        if target >= 0:
            reached.add(target)
    yield slice(first, len(depth.place))


class _Walk:
    """The clocks of ranks through passes, (ranks, lanes), and when messages arrive, (rows, lanes)."""

    def __init__(self, table: Floats, common: LinkShares | None) -> None:
        ranks, lanes = table.shape[1], table.shape[-1]
        # As passes are numbered in rounds.py.
        none = np.zeros((1, lanes))  # what sends, or computes, nothing
        passes = np.moveaxis(table[:3], 0, 2).reshape(-1, lanes)
        self.seconds = np.concatenate([passes, none])
        self.last = table[LAST].reshape(4, -1, lanes)
        self.busy, self.takes = (
            np.concatenate([each.reshape(-1, lanes), none]) for each in table[SENDS]
        )
        self.clock, self.port, self.free, self.worked = (np.zeros((ranks, lanes)) for _ in range(4))
        self.arrives, self.row = np.full((1, lanes), -np.inf), 1
        self.exchanges = GradientExchanges(common, [*self.clock], False) if common else None
        self.posted, self.joins = table[[POSTED, JOINS]].reshape(2, -1, lanes)
        # The boundary that the last message of each rank crossed.
        self.crossed = np.full(ranks, -1)
        self.counts = np.zeros(len(self.seconds), np.int64)  # how often each pass is executed

    @property
    def idle(self) -> Floats:
        """For how long each rank has waited."""
        seconds = self.counts[:-1, None] * self.seconds[:-1]
        return (
            self.clock
            - self.worked
            - seconds.reshape(len(self.clock), -1, seconds.shape[1]).sum(axis=1)
        )

    def run(self, stretch: Stretch) -> None:
        """Walk a stretch."""
        for depth in stretch.depths:
            if not depth.last:
                np.add.at(self.counts, depth.made, stretch.times)
        arrivals = self.arrives[max(0, self.row - max(stretch.reach, 1)) : self.row]
        self.row = len(arrivals)
        more = np.empty((stretch.rows * stretch.times, arrivals.shape[1]))
        self.arrives = np.concatenate([arrivals, more])
        if stretch.times == 1:
            self._once(stretch.depths)
        else:
            self._repeat(stretch)

    def _once(self, depths: Sequence[Depth]) -> None:
        clock, port, free, arrives = self.clock, self.port, self.free, self.arrives
        seconds, (end, behind, freed, queued) = self.seconds, self.last
        busy, takes, row, meets = self.busy, self.takes, self.row, self.exchanges is not None
        for depth in depths:
            place, made, back, boundary, last = depth
            if self.exchanges is not None and (last or self.exchanges.meeting):
                self._beside_gradients(depth, row)
                row += depth.rows
                continue
            now = np.maximum(clock.take(place, 0), arrives.take(row - back, 0))
            if last:
                start, at = now, free[place]
                free[place] = np.maximum(now + freed[made], at + queued[made])
                now = np.maximum(now + end[made], at + behind[made])
                self.worked[place] += now - start
            else:
                now += seconds.take(made, 0)
            clock[place] = now
            left = np.maximum(port.take(place, 0), now)
            port[place] = left + busy.take(boundary, 0)
            behind_all = row + len(place)
            np.add(left, takes.take(boundary, 0), out=arrives[row:behind_all])
            arrives[behind_all] = -np.inf
            row = behind_all + 1
            if meets:
                sends = boundary >= 0
                self.crossed[place[sends]] = boundary[sends]
        self.row = row

    def _beside_gradients(self, depth: Depth, row: int) -> None:
        """Walk the passes of a depth while gradients are exchanged, see gradient_contention.py."""
        exchanges = self.exchanges
        assert exchanges is not None
        if not exchanges.meeting:
            senders = np.flatnonzero(self.crossed >= 0)
            boundary, left = self.crossed[senders], self.port[senders]
            busy = self.busy[boundary]
            exchanges.meet(senders, boundary, left - busy, busy)  # their last messages
        for rows in _together(depth, exchanges):
            place, made, back, boundary = (column[rows] for column in depth[:4])
            now = np.maximum(self.clock.take(place, 0), self.arrives.take(row - back, 0))
            now = self._last(place, made, now) if depth.last else now + self.seconds.take(made, 0)
            self.clock[place] = now
            left, busy = np.maximum(self.port.take(place, 0), now), self.busy.take(boundary, 0)
            late, sends = np.zeros_like(left), boundary >= 0
            if sends.any():
                how = (column[sends] for column in (place, boundary, left, busy))
                late[sends] = exchanges.meet(*how)
            self.port[place] = left + busy + late
            self.arrives[row + rows.start : row + rows.stop] = left + self.takes[boundary] + late
        self.arrives[row + depth.rows - 1] = -np.inf

    def _last(self, place: Numbers, made: Numbers, start: Floats) -> Floats:
        """Return when passes end that complete gradients, each of another place."""
        exchanges, (end, behind, freed, queued) = self.exchanges, self.last[:, made]
        assert exchanges is not None
        before = np.maximum(self.free[place], exchanges.free[place])
        before = np.where(self.joins[made] > 0, exchanges.join(place, before), before)
        free = np.maximum(start + freed, before + queued)
        exchanges.joined(place, start, before, self.posted[made], free)
        self.free[place] = free
        ends: Floats = np.maximum(start + end, before + behind)
        self.worked[place] += ends - start
        return ends

    def freed(self) -> Floats:
        """Return when the streams of gradients are free."""
        if self.exchanges is None:
            return self.free
        return np.maximum(self.free, np.array(self.exchanges.free))

    def _repeat(self, stretch: Stretch) -> None:
        """Walk a stretch until the times of all lanes repeat; add what the repetitions that are left take."""
        first, base = self.row, self.clock.min(axis=0)
        self._shift(-base)  # small numbers are more exact
        seen, rates = list[Floats](), self._one_way(stretch)
        through, ends = np.zeros(len(base), bool), np.zeros(0)
        for walked in range(1, stretch.times + 1):
            self._once(stretch.depths)
            if self.row - stretch.reach < first:
                continue
            seen = [*seen[1 - MEMORY :], self._times(stretch.reach)]
            period, left = len(seen) - 1, stretch.times - walked
            if not period or not left or (period & (period - 1) and period % OFTEN):
                continue
            repeat, later = self._repetition(seen, rates, left, base)
            new = repeat & ~through
            ends = np.where(new, later, ends) if len(ends) else later
            through |= new
            if through.all():
                break
        if through.any():
            self._set(stretch.reach, ends, through)
        self._shift(base)

    def _times(self, reach: int) -> Floats:
        recent = self.arrives[self.row - reach : self.row]
        return np.concatenate([self.clock, self.port, recent[recent[:, 0] > -np.inf]])

    def _set(self, reach: int, ends: Floats, lanes: NDArray[np.bool_]) -> None:
        """Set the times of some lanes."""
        ranks, recent = len(self.clock), self.arrives[self.row - reach : self.row]
        rows = np.flatnonzero(recent[:, 0] > -np.inf)
        for clocks, values in ((self.clock, ends[:ranks]), (self.port, ends[ranks : 2 * ranks])):
            clocks[:, lanes] = values[:, lanes]
        recent[np.ix_(rows, lanes)] = ends[2 * ranks :][:, lanes]

    def _shift(self, by: Floats) -> None:
        for clocks in (self.clock, self.port, self.free, self.arrives[: self.row]):
            clocks += by

    def _repetition(
        self, seen: Sequence[Floats], rates: Floats | None, left: int, base: Floats
    ) -> tuple[NDArray[np.bool_], Floats]:
        """Return which lanes repeat, and the times of all after the repetitions that are left."""
        now = seen[-1]
        found, ends = np.zeros(len(base), bool), now
        for rounds in range(1, len(seen)):
            if left % rounds:
                continue
            periods = left // rounds
            later = now - seen[-1 - rounds]
            most = later.max(axis=0)
            off = most - later.min(axis=0)
            if rates is not None:
                off = np.minimum(off, np.abs(later - rates * rounds).max(axis=0))
            total = base + now.max(axis=0) + periods * most
            new = (periods * off <= ROUNDING * total) & ~found
            ends = np.where(new, now + periods * later, ends)
            found |= new
            if found.all():
                break
        return found, ends

    def _one_way(self, stretch: Stretch) -> Floats | None:
        """Return by how much the times of a repetition are later than those of the one before, if messages go one way.

        Then a rank takes as long as the slowest pass, or message, up to it.
        """
        depth, ranks = stretch.depths[0], len(self.clock)
        if len(stretch.depths) > 1 or len(depth.place) < ranks:
            return None
        source, many = (-depth.back) % depth.rows, depth.rows - 1
        found, sends = dict[int, Floats](), dict[int, Floats]()
        waiting = list(range(many))
        for _ in range(many):
            for at in list(waiting):
                before = int(source[at])
                if before < many and before not in sends:
                    continue
                rate = self.seconds[depth.made[at]]
                found[at] = np.maximum(rate, sends[before]) if before < many else rate
                sends[at] = np.maximum(found[at], self.busy[depth.boundary[at]])
                waiting.remove(at)
        if waiting:
            return None
        clock = np.empty((ranks, self.clock.shape[1]))
        port = clock.copy()
        for at, place in enumerate(depth.place.tolist()):
            clock[place], port[place] = found[at], sends[at]
        rows = np.arange(-stretch.reach, 0) % depth.rows
        return np.concatenate(
            [clock, port, *(sends[at][None] for at in rows.tolist() if at < many)]
        )
