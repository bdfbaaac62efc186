"""The times of `events` where no two messages are ever on one link at once: all messages of a round as arrays.

A message then has the rate of its narrowest link, so that with t the time at which a rank begins a round,

    start = max(free[s], t[r])                the sender's port is free, and the receiver is ready
    end   = start + alpha + bytes / rate      free[s] <- end
    t[r]  <- max(t[r], free[r], all its ends) + gamma (bytes to combine) / speed

in the order in which a rank sends. A small message (`eager`) does not wait for its receiver. Links are never shared if
each serves one sender, whose messages go one after another, or one receiver that hears from one sender in a
round: who sends in the next round waits until it gets there.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from lib_dlhpc.arrays import Floats, Ints
from lib_dlhpc.costs.platform import Platform
from lib_dlhpc.schedules.rounds import Round, Schedule, as_sent


class _Routes(NamedTuple):
    """What follows from the sources and targets of a round."""

    turns: list[Ints]  # messages that leave at most once from each rank, in the order of sending
    latency: Floats  # s
    rate: Floats  # B/s


def finish_times(
    on: Platform,
    schedules: Sequence[Schedule],
    element_bytes: float,
    arrivals: ArrayLike,
    speed: float | Sequence[float] | Floats,
    sharing: bool,
    eager: float,
) -> Floats | None:
    """Return what events.simulate_schedules does, to the last bit; None where messages may meet on a link."""
    shape = (len(schedules), on.ranks)
    starts, ends = np.broadcast_to(np.asarray(arrivals, np.float64), shape), np.empty(shape)
    links, known = _Links(len(on.capacity)), dict[tuple[bytes, bytes], _Routes]()
    time = np.zeros(on.ranks)
    for schedule, start, end in zip(schedules, starts, ends, strict=True):
        time += np.maximum(start - time, 0.0)
        for part in map(as_sent, schedule.rounds()):
            key = part.source.tobytes(), part.target.tobytes()
            if key not in known:
                sides = np.concatenate([part.source, part.target])
                if part.switch or (sides < 0).any() or (sides >= on.ranks).any():
                    return None
                hops, latency = on.routes(part.source, part.target)
                if sharing and not links.serve(hops, part):
                    return None
                known[key] = _routes(on, part, hops, latency)
            size = np.asarray(part.count * float(element_bytes), np.float64)
            if sharing and eager and (size <= eager).any():
                return None
            _advance(time, part, size, known[key], on.gamma, speed, eager)
        end[...] = time
    return ends


def _advance(
    time: Floats,
    part: Round,
    size: Floats,
    routes: _Routes,
    gamma: Any,
    speed: float | Sequence[float] | Floats,
    eager: float,
) -> None:
    """Advance the clocks of all ranks by a round."""
    free, through = time.copy(), time.copy()
    held = np.where(size > eager, time[part.target], 0.0)
    for turn in routes.turns:
        start = np.maximum(free[part.source[turn]], held[turn])
        end = start + routes.latency[turn] + size[turn] / routes.rate[turn]
        free[part.source[turn]] = end
        np.maximum.at(through, part.target[turn], end)
    np.maximum(free, through, out=time)
    combined = np.zeros(len(time))
    np.add.at(combined, part.target, size * part.reduce)
    time += combined * gamma / np.asarray(speed)


def _routes(on: Platform, part: Round, hops: Ints, latency: Floats) -> _Routes:
    capacity = np.append(on.capacity, np.inf)  # for NO_LINK, -1
    order = np.argsort(part.source, kind="stable")
    firsts = np.searchsorted(part.source[order], part.source[order])
    turn = np.empty(len(part), np.int64)
    turn[order] = np.arange(len(part)) - firsts
    turns = [np.flatnonzero(turn == number) for number in range(int(turn.max(initial=-1)) + 1)]
    return _Routes(turns, latency, capacity[hops].min(axis=1))


class _Links:
    """Who sends and who receives over each link, in all rounds seen."""

    def __init__(self, many: int) -> None:
        self.sender, self.receiver = np.full(many, -1), np.full(many, -1)
        self.senders, self.receivers = np.zeros((2, many), np.bool_)  # more than one
        self.crowded = np.zeros(many, np.bool_)  # by several senders in one round

    def serve(self, hops: Ints, part: Round) -> bool:
        """Add the messages of a round; return whether none can meet another."""
        message, column = np.nonzero(hops >= 0)
        link = hops[message, column]
        for ranks, one, several in (
            (part.source, self.sender, self.senders),
            (part.target, self.receiver, self.receivers),
        ):
            mine = ranks[message]
            several[link[(one[link] >= 0) & (one[link] != mine)]] = True
            one[link] = mine
            several[link[one[link] != mine]] = True  # in this round
        crowd = self.sender[link] != part.source[message]
        self.crowded[link[crowd]] = True
        return not (self.senders & (self.receivers | self.crowded)).any()
