"""Offset assignment: packs arrays with known lifetimes into one arena."""

from bisect import insort
from operator import itemgetter
from typing import NamedTuple

LINE = 64  # bytes of a cache line; every array is aligned to it


class Lifetime(NamedTuple):
    """An array of `size` bytes that is live from `born` until just before `died`."""

    size: int
    born: float
    died: float


def assign_offsets(lifetimes: list[Lifetime]) -> tuple[list[int], int]:
    """Return the offset of each array and the size of the arena, in bytes.

    Largest first; each array goes into the smallest gap between arrays that are live at the same time, or
    behind them. The optimal assignment is NP-hard. Source: Pisarchyk and Lee 2020,
    "Efficient memory management for deep neural net inference", algorithm 3.
    """
    found, length = [0] * len(lifetimes), 0
    done: list[tuple[int, int, Lifetime]] = []  # start and stop, ordered by start
    for number in sorted(range(len(lifetimes)), key=lambda number: -lifetimes[number].size):
        lifetime = lifetimes[number]
        size, stop, tightest, place = -(-lifetime.size // LINE) * LINE, 0, -1, -1
        for start, end, other in done:
            if other.born >= lifetime.died or lifetime.born >= other.died:
                continue
            if start - stop >= size and (place < 0 or start - stop < tightest):
                tightest, place = start - stop, stop
            stop = max(stop, end)
        found[number] = stop if place < 0 else place
        insort(done, (found[number], found[number] + size, lifetime), key=itemgetter(0))
        length = max(length, found[number] + size)
    return found, length
