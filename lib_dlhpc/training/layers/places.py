"""Places: where arrays whose lives are known lie in one stretch of memory."""

from typing import NamedTuple

LINE = 64  # bytes of a cache line; every array begins with one


class Life(NamedTuple):
    """An array of `size` bytes that others must keep clear of from `born` until just before `died`."""

    size: int
    born: float
    died: float


def places(lives: list[Life]) -> tuple[list[int], int]:
    """Return where each array begins and how long the stretch is, in bytes.

    The largest comes first; each goes into the smallest gap between those that live when it does, or
    behind them. To find the shortest stretch of all is NP-hard. Source: Pisarchyk and Lee 2020,
    "Efficient memory management for deep neural net inference", algorithm 3.
    """
    found, length = [0] * len(lives), 0
    done: list[tuple[int, int, Life]] = []  # start and stop, in the order of the starts
    for number in sorted(range(len(lives)), key=lambda number: -lives[number].size):
        life = lives[number]
        size, stop, tightest, place = -(-life.size // LINE) * LINE, 0, -1, -1
        for start, end, other in done:
            if other.born >= life.died or life.born >= other.died:
                continue
            if start - stop >= size and (place < 0 or start - stop < tightest):
                tightest, place = start - stop, stop
            stop = max(stop, end)
        found[number] = stop if place < 0 else place
        done.append((found[number], found[number] + size, life))
        done.sort(key=lambda each: each[0])
        length = max(length, found[number] + size)
    return found, length
