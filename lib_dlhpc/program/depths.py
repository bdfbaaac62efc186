"""The passes of a pipeline by their depth, in stretches that repeat: those of one depth are on different ranks.

The depth of a pass is one more than that of the pass before it on its rank, and of that whose message it needs. Once
a pipeline is full the same passes follow at the same distance, so that more microbatches are more of them.
"""

from collections.abc import Sequence
from functools import lru_cache
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from lib_dlhpc.program.calls import FORWARD, PASSES, Numbers, pipeline
from lib_dlhpc.program.rounds import ENOUGH, ONLY, numbered
from lib_dlhpc.schedules.pipeline import Streams


class Depth(NamedTuple):
    """Passes of one depth: place and chunk as one number, index of the table, how many rows before the first of them
    the pass is whose message each needs, the boundary that its message crosses; and which of them complete gradients.

    A depth has a row for each pass and one behind them, which nothing sends: from that of the depth before, 1 row back,
    receive those that need nothing.
    """

    place: Numbers
    made: Numbers
    back: Numbers
    boundary: Numbers
    last: bool

    @property
    def rows(self) -> int:
        """Rows of the depth."""
        return len(self.place) + 1

    @property
    def key(self) -> tuple[object, ...]:
        """What depths have in common that are the same."""
        return (*(array.tobytes() for array in self[:4]), self.last)


class Stretch(NamedTuple):
    """Depths that follow one another `times` times; reach: how many rows before its end are read from there on, and
    before each of its repetitions."""

    depths: tuple[Depth, ...]
    times: int
    reach: int = 0

    @property
    def rows(self) -> int:
        """Rows of the depths, once."""
        return sum(depth.rows for depth in self.depths)


@lru_cache(maxsize=512)  # the pipelines of a space
def stretches(schedule: str, ranks: int, many: int, chunks: int) -> tuple[Stretch, ...]:
    """Return the passes of a pipeline with `many` microbatches by their depth."""
    pipe = pipeline(schedule, ranks, many, chunks)
    if not isinstance(pipe.streams, Streams):
        return (Stretch(by_depth(schedule, ranks, many, chunks), 1),)
    rounds = pipe.streams.rounds
    # Ranks are apart by as many microbatches as there are ranks.
    enough = ENOUGH + -(-ranks // rounds.microbatches)
    more = max(0, min(times for _, times in rounds.each) - enough)
    periods = tuple(passes for passes, _ in rounds.each)
    repeats = _repeated(periods, schedule, ranks, many - more * rounds.microbatches, chunks)
    if more and sum(stretch.times > 1 for stretch in repeats) < len(periods):
        return (Stretch(by_depth(schedule, ranks, many, chunks), 1),)
    return tuple(
        stretch._replace(times=stretch.times + more * (stretch.times > 1)) for stretch in repeats
    )


@lru_cache(maxsize=512)
def _repeated(
    periods: tuple[int, ...], schedule: str, ranks: int, many: int, chunks: int
) -> tuple[Stretch, ...]:
    """Return depths with the longest stretch of each period, in their order."""
    depths = by_depth(schedule, ranks, many, chunks)
    keys, index, repeats = [depth.key for depth in depths], 0, list[Stretch]()
    for period in periods:
        first, times = _longest(keys, index, period)
        if times > 1:
            repeats.append(Stretch(depths[index:first], 1))
            repeats.append(Stretch(depths[first : first + period], times))
            index = first + period * times
    repeats.append(Stretch(depths[index:], 1))
    return tuple(
        first._replace(reach=max(_reach(stretch.depths) for stretch in repeats[number:]))
        for number, first in enumerate(repeats)
    )


def _reach(depths: Sequence[Depth]) -> int:
    """Return how many rows before depths they read."""
    most = row = 0
    for depth in depths:
        most, row = max(most, int(depth.back.max()) - row), row + depth.rows
    return most


def _longest(keys: Sequence[object], start: int, period: int) -> tuple[int, int]:
    """Return where the longest stretch of a period begins, from `start` on, and how many periods it has."""
    begins, longest, first = start, 0, start
    for index in range(start, len(keys) - period):
        if keys[index] != keys[index + period]:
            begins = index + 1
        elif index + 1 - begins > longest:
            first, longest = begins, index + 1 - begins
    return first, longest // period + 1


def by_depth(schedule: str, ranks: int, many: int, chunks: int) -> tuple[Depth, ...]:
    """Return all passes of a pipeline by their depth."""
    numbers, depth = numbered(pipeline(schedule, ranks, many, chunks))
    place, made, needs, boundary = numbers.T
    once = made < 0
    made = np.where(once, ONLY - made, made)
    last = once & (made % len(PASSES) != PASSES.index(FORWARD))
    made = np.where(last, made // len(PASSES), made)
    key = 2 * depth + last
    order = np.argsort(key, kind="stable")
    new = np.diff(key[order], prepend=-1) != 0
    row = np.arange(1, len(order) + 1) + np.cumsum(new) - 1  # the first has one before it
    at = np.empty(len(order), np.int64)
    at[order] = row
    edges = [*np.flatnonzero(new).tolist(), len(order)]
    starts = np.repeat(row[edges[:-1]], np.diff(edges))
    needs = needs[order]
    back = np.where(needs >= 0, starts - at[needs], 1)
    place, made, boundary = (column[order] for column in (place, made, boundary))
    parts = ((slice(*pair), bool(last[order[pair[0]]])) for pair in pairwise(edges))
    return tuple(Depth(place[s], made[s], back[s], boundary[s], end) for s, end in parts)
