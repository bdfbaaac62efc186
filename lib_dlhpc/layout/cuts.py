"""Parts of a range: who has what along one axis of an array."""

from functools import lru_cache
from itertools import pairwise
from typing import TypeAlias

Range: TypeAlias = tuple[int, int]  # from the first to one past the last
Ranges: TypeAlias = tuple[Range, ...]  # of one rank


@lru_cache(maxsize=1024)  # most layers of a deep network have one of a few widths
def even(extent: int, ranks: int) -> Ranges:
    """Return the range of each rank; parts differ by one at most, and the first are the longer ones."""
    short, longer = divmod(extent, ranks)
    edges = [rank * short + min(rank, longer) for rank in range(ranks + 1)]
    return tuple(pairwise(edges))


@lru_cache(maxsize=1024)  # layers of one width share the result: with many ranks it is large
def even_parts(extent: int, ranks: int) -> tuple[Ranges, ...]:
    """Return the ranges of each rank where each has one, as `even` gives it."""
    return tuple((each,) for each in even(extent, ranks))


def bounds(ranges: Ranges) -> tuple[int, ...]:
    """Return where each part of ranges that follow one another begins, and where the last ends."""
    return (*(start for start, _ in ranges), ranges[-1][1])


@lru_cache(maxsize=1024)
def length(ranges: Ranges) -> int:
    """Return how many elements the ranges hold together."""
    return sum(stop - start for start, stop in ranges)


@lru_cache(maxsize=1024)
def scaled(ranges: Ranges, factor: int) -> Ranges:
    """Return the ranges with `factor` elements in the place of each."""
    return tuple((start * factor, stop * factor) for start, stop in ranges)
