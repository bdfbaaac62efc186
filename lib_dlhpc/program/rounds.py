"""The passes of a pipeline as numbers, in rounds that repeat: a walk through it need not make them all."""

from functools import lru_cache
from typing import NamedTuple, TypeAlias

import numpy as np

from lib_dlhpc.program.calls import FORWARD, PASSES, Numbers, linked, messages, pipeline
from lib_dlhpc.schedules.pipeline import Pipeline, SteadyState, Streams

# Calls as numbers: place, pass, back, boundary. A pass is a chunk of a place times the number of PASSES plus the index
# of one of them, and ONLY less that where a call is the only one; behind these is what computes nothing, and then an
# overlapped pass for each chunk of a place; back: how many calls ago the one was whose message it receives, 0: it
# receives none; a boundary is a chunk of a place, -1: it sends nothing. Each is counted through all places.
Rows: TypeAlias = list[tuple[int, int, int, int]]
# Columns of calls as numbers; SOURCE: -1 where there is none.
PLACE, PASS, SOURCE, BOUNDARY = range(4)
ONLY = -2  # ONLY - (ONLY - number) is the number
# Rounds from which they are summarized in a section: one with what comes before it, two to compare.
ENOUGH = 4


class Section(NamedTuple):
    """Calls that are executed `times` times; all messages between sections, and rounds, are of the round before."""

    rows: Rows
    times: int


def sections(pipe: Pipeline) -> tuple[Section, ...]:
    """Return the calls of a pipeline, each after the call whose message it needs."""
    if not isinstance(pipe.streams, Streams):
        return (Section(_rows(numbered(pipe)[0]), 1),)
    rounds = pipe.streams.rounds
    more = max(0, min(times for _, times in rounds.each) - ENOUGH)
    known = pipe.name, pipe.ranks, pipe.microbatches - more * rounds.microbatches, pipe.chunks
    parts = _sections(*known)
    return tuple(
        section._replace(times=section.times + more * (section.times > 1)) for section in parts
    )


@lru_cache(maxsize=512)
def _sections(schedule: str, ranks: int, microbatches: int, chunks: int) -> tuple[Section, ...]:
    pipe = pipeline(schedule, ranks, microbatches, chunks)
    assert isinstance(pipe.streams, Streams)
    rounds, (numbers, _) = pipe.streams.rounds, numbered(pipe)
    if min(times for _, times in rounds.each) < ENOUGH:
        return (Section(_rows(numbers), 1),)
    parts = _in_rounds(numbers, rounds, ranks)
    order = np.concatenate([row for rows in parts for row in rows])
    position = np.empty_like(order)
    position[order] = np.arange(len(order))
    numbers = numbers[order]
    numbers[:, SOURCE] = np.where(numbers[:, SOURCE] >= 0, position[numbers[:, SOURCE]], -1)
    rows, edge, result = _rows(numbers), 0, list[Section]()
    pending = Rows()
    for part in parts:
        count = len(part[0])
        pending = pending + rows[edge : edge + count]
        edge += count * len(part)
        if len(part) > 1:
            result += [Section(pending, 1), Section(rows[edge - count : edge], len(part) - 1)]
            pending = []
    return (*result, Section(pending, 1))


def _in_rounds(numbers: Numbers, rounds: SteadyState, ranks: int) -> list[list[Numbers]]:
    """Return the calls of each round of each kind, the ones of all rounds in the order of the last."""
    mine = [np.flatnonzero(numbers[:, PLACE] == rank) for rank in range(ranks)]
    first = [rounds.first(rank) for rank in range(ranks)]
    parts = [
        [np.sort(np.concatenate([calls[:end] for calls, end in zip(mine, first, strict=True)]))]
    ]
    mine = [calls[end:] for calls, end in zip(mine, first, strict=True)]
    for passes, times in rounds.each:
        columns = [
            np.concatenate([calls[passes * n : passes * (n + 1)] for calls in mine])
            for n in range(times)
        ]
        parts.append([column[np.argsort(columns[-1])] for column in columns])
        mine = [calls[passes * times :] for calls in mine]
    return [*parts, [np.sort(np.concatenate(mine))]]


def _rows(numbers: Numbers) -> Rows:
    """Return calls with how far back their sources are."""
    back = np.where(numbers[:, SOURCE] >= 0, np.arange(len(numbers)) - numbers[:, SOURCE], 0)
    columns = (numbers[:, PLACE], numbers[:, PASS], back, numbers[:, BOUNDARY])
    return list(zip(*(column.tolist() for column in columns), strict=True))


def numbered(pipe: Pipeline) -> tuple[Numbers, Numbers]:
    """Return calls as numbers by their depth, (calls, 4), and that depth of each, (calls,).

    In the place of `back` is the call whose message each receives, or -1. The depth of a call is one more than that of
    the call before it on its rank, and of that whose message it needs. Of one depth, calls that complete gradients are
    behind the others.
    """
    ranks, chunks = pipe.ranks, pipe.chunks
    _, (place, chunk, kind, needs, gives, after, crossed, once, computes) = linked(pipe)
    depth, source = _depths(place, needs, gives, messages(pipe))
    at, nothing = place * chunks + chunk, len(PASSES) * ranks * chunks
    number = np.where(kind < len(PASSES), len(PASSES) * at + kind, nothing + 1 + at)
    number = np.where(computes > 0, number, nothing)
    boundary = np.where(after >= 0, crossed % ranks * chunks + crossed // ranks, -1)
    order = np.lexsort((place, (once > 0) & (kind != PASSES.index(FORWARD)), depth))
    row = np.append(np.argsort(order), -1)  # of the first dimension, where each call is; -1: none
    columns = place, np.where(once > 0, ONLY - number, number), row[source], boundary
    return np.stack(columns, axis=1)[order], depth[order]


def _depths(place: Numbers, needs: Numbers, gives: Numbers, many: int) -> tuple[Numbers, Numbers]:
    """Return the depth of each call, and the call whose message it needs; calls are in the order of each place.

    needs, gives: of `many` messages, -1: none.
    """
    giver = np.full(many + 1, -1)
    giver[gives] = np.arange(len(gives))
    giver[-1] = -1
    source = giver[needs]
    depth, there = np.zeros(len(place), np.int64), np.zeros(len(place) + 1, bool)
    there[-1] = True  # what is not needed
    edges = np.flatnonzero(np.diff(place, prepend=-1, append=-1))
    at, end, now = edges[:-1], edges[1:], 0
    while len(at):
        ready = there[source[at]]
        now, calls = now + 1, at[ready]
        assert len(calls), "ranks wait for each other"
        depth[calls], there[calls] = now, True
        at = at + ready
        left = at < end
        at, end = at[left], end[left]
    return depth, source
