"""The longest path through many steps at once: the same passes, which take another time in each lane.

A lane is one step. Prices are arrays over the samples of a microbatch; `timed` makes of a program what its passes take,
`walk` carries out the passes of pipelines of one shape, and `finished` what follows them. The arithmetic is that of
path.py without jitter, in the order of the passes' depth: those of one depth are on different ranks.

A pass starts at s and finds the stream of gradients free at f. As it does nothing but add and wait, both its end and
when that stream is free again are max(s + a, f + b), with constants a and b (Baccelli et al. 1992, "Synchronization and
Linearity"). All other streams are free when it starts.
"""

from functools import lru_cache
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from lib_dlhpc.program.calls import FORWARD, PASSES, pipeline
from lib_dlhpc.program.fold import Queue, Shape, Span
from lib_dlhpc.program.instructions import Collective, Meet, Move, Swap, Update, Wait
from lib_dlhpc.program.program import Block, Chunk, Floats, Prices, Program
from lib_dlhpc.program.rounds import sections

# What the table of a chunk has: s of each pass, and of the last one from its start and from when the stream is free to
# its end and until the stream is free again; s that a message occupies a port, and until it arrives.
COLUMNS = (*PASSES, "end", "end behind", "free", "free behind", "busy", "takes")
LAST, SENDS = slice(3, 7), slice(7, 9)


class Timed(NamedTuple):
    """The passes of a program.

    table: s, (COLUMNS, places, chunks, samples). work: s of a microbatch, (forward, backward, recomputed; places,
    samples). limited: what arithmetic and memory limit of that, s, (forward or backward, limit, places, samples).
    """

    step: Program
    table: Floats
    work: Floats
    limited: Floats


def timed(step: Program, samples: int, factor: float, stream: str) -> Timed:
    """Return what the passes of a program take; samples: how many its prices are of; factor: of compute times.

    stream: that on which a pass may leave something behind.
    """
    stages, place = [stage for stage, _ in step.distinct], np.zeros(step.schedule.ranks, np.int64)
    for number, (_, places) in enumerate(step.distinct):
        place[list(places)] = number
    table = np.array(
        [[_columns(chunk, samples, factor, stream) for chunk in stage] for stage in stages]
    )
    sends = np.array([[_sends(chunk, samples) for chunk in stage] for stage in step.stages])
    work, limited = zip(*(_work(stage, samples) for stage in stages), strict=True)
    return Timed(
        step,
        np.moveaxis(np.concatenate([table[place], sends], axis=2), 2, 0),
        np.stack(work, axis=1)[:, place],
        np.stack(limited, axis=2)[:, :, place],
    )


def _columns(chunk: Chunk, samples: int, factor: float, stream: str) -> Floats:
    """Return the column of a chunk in the table, (COLUMNS, samples)."""
    found = np.zeros((SENDS.start, samples))
    for number, block in enumerate((chunk.forward, chunk.backward, chunk.weights)):
        if block is not None:
            found[number] = _taken(block, samples, factor, stream)[0][0]
    end, free = _taken(chunk.last, samples, factor, stream)
    found[LAST] = end[0], end[1], free[0], free[1]
    return found


def _sends(chunk: Chunk, samples: int) -> list[Floats]:
    return [each + np.zeros(samples) for each in (chunk.sends.bandwidth, chunk.sends.total)]


def _work(stage: tuple[Chunk, ...], samples: int) -> tuple[Floats, Floats]:
    work, limited = np.zeros((3, samples)), np.zeros((2, 2, samples))
    for chunk in stage:
        work += chunk.backward.work[0]
        limited += chunk.backward.limited[0]
    return work, limited


def _taken(block: Block, samples: int, factor: float, stream: str) -> tuple[Floats, Floats]:
    """Return when a pass ends, and when its stream is free again, each (2, samples): from a start at 0 with that stream
    free, and from 0 of that stream if it is what matters."""
    shape, prices = block.variants[0].shape, block.prices[0]
    origin = np.array([[0.0], [-np.inf]]) + np.zeros(samples)
    costs = np.zeros((len(shape.priced), samples))
    for number, what in enumerate(shape.priced):
        costs[number] = prices.priced(what).seconds
    seconds = factor * shape.work_of_lanes(prices, samples)
    np.add.at(seconds, np.array(shape.spans_of, np.int64), costs[np.array(shape.numbers, np.int64)])
    posts = costs[shape.posts] if not shape.moves else _with_moves(shape, costs)
    if shape.queue is not None:
        return _queued(shape.queue, seconds, posts, origin)
    now, free, ends, sent = origin, {stream: origin[::-1]}, dict[str, Floats](), iter(posts)
    for each in shape.compact:
        if isinstance(each, Span):
            now = now + seconds[each.number]
        elif isinstance(each, Wait):
            now = np.maximum(now, ends[each.key] if each.key else free.get(each.stream, now))
        else:
            starts = np.maximum(now, free[each.stream]) if each.stream in free else now
            ends[each.key] = free[each.stream] = starts + next(sent)
    return now, free[stream]


def _queued(queue: Queue, seconds: Floats, posts: Floats, origin: Floats) -> tuple[Floats, Floats]:
    """Return the same of a pass that waits for nothing before its end: what it posts is a queue (Lindley 1952)."""
    spent = np.cumsum(seconds[queue.spans], axis=0)
    now = origin + spent[-1] if len(spent) else origin
    if not len(posts):
        return now, origin[::-1]
    before = np.concatenate([0 * posts[:1], spent])[queue.before]
    ahead = np.cumsum(posts, axis=0)
    latest = (origin[:, None] + (before - (ahead - posts))).max(axis=1)
    free = np.maximum(latest, origin[::-1]) + ahead[-1]
    return np.maximum(now, free) if queue.waits else now, free


def _with_moves(shape: Shape, costs: Floats) -> Floats:
    """Return the seconds of each instruction of another stream, moves among them, (posts, samples)."""
    posts = iter(shape.posts)
    pieces = (each for each in shape.compact if isinstance(each, Collective | Move))
    seconds = (each.seconds if isinstance(each, Move) else costs[next(posts)] for each in pieces)
    return np.array([each + np.zeros(costs.shape[1]) for each in seconds])


class Depth(NamedTuple):
    """Passes of one depth: place and chunk as one number, index of the table, the pass whose message each needs, the
    boundary that its message crosses; and which of them complete gradients."""

    place: NDArray[np.int64]
    made: NDArray[np.int64]
    source: NDArray[np.int64]
    boundary: NDArray[np.int64]
    last: bool


def walk(
    schedule: str, ranks: int, many: int, chunks: int, table: Floats
) -> tuple[Floats, Floats, Floats]:
    """Return when each rank is through its passes, its stream free, and for how long it waited, (ranks, lanes).

    table: (COLUMNS, ranks, chunks, lanes).
    """
    lanes = table.shape[-1]
    seconds = np.moveaxis(table[:3], 0, 2).reshape(-1, lanes)  # as passes are numbered in rounds.py
    end, behind, freed, queued = table[LAST].reshape(4, -1, lanes)
    none = np.zeros((1, lanes))  # what sends nothing
    busy, takes = (np.concatenate([each.reshape(-1, lanes), none]) for each in table[SENDS])
    clock, port, free, idle = (np.zeros((ranks, lanes)) for _ in range(4))
    depths = _depths(schedule, ranks, many, chunks)
    arrives = np.empty((sum(len(each.place) for each in depths) + 1, lanes))
    arrives[-1], row = -np.inf, 0
    for place, made, source, boundary, last in depths:
        start = clock[place]
        now = np.maximum(start, arrives[source])
        idle[place] += now - start
        if last:
            at = free[place]
            free[place] = np.maximum(now + freed[made], at + queued[made])
            now = np.maximum(now + end[made], at + behind[made])
        else:
            now += seconds[made]
        clock[place] = now
        left = np.maximum(port[place], now)
        port[place] = left + busy[boundary]
        arrives[row : row + len(place)] = left + takes[boundary]
        row += len(place)
    return clock, free, idle


@lru_cache(maxsize=512)  # the pipelines of a space
def _depths(schedule: str, ranks: int, many: int, chunks: int) -> tuple[Depth, ...]:
    """Return the passes of a pipeline by their depth: one more than those before it on its rank, and its source."""
    each = sections(pipeline(schedule, ranks, many, chunks))
    rows = np.concatenate([np.tile(np.array(one.rows, np.int64), (one.times, 1)) for one in each])
    place, made, back, boundary = rows.T
    source = np.where(back > 0, np.arange(len(rows)) - back, -1)
    depth = _depth(place, source, ranks)
    once = made < 0
    made = np.where(once, -2 - made, made)
    last = once & (made % len(PASSES) != PASSES.index(FORWARD))
    made = np.where(last, made // len(PASSES), made)
    key = 2 * depth + last
    order = np.argsort(key, kind="stable")
    at = np.full(len(order) + 1, len(order))  # what receives nothing waits for the row behind all
    at[order] = np.arange(len(order))
    edges = [0, *(np.flatnonzero(np.diff(key[order])) + 1).tolist(), len(order)]
    place, made, source, boundary = (each[order] for each in (place, made, at[source], boundary))
    parts = ((slice(*pair), bool(last[order[pair[0]]])) for pair in pairwise(edges))
    return tuple(Depth(place[s], made[s], source[s], boundary[s], end) for s, end in parts)


def _depth(place: NDArray[np.int64], source: NDArray[np.int64], ranks: int) -> NDArray[np.int64]:
    """Return the depth of each pass, in an order in which each follows its source; -1: it has none."""
    depth, clock = [0] * (len(place) + 1), [0] * ranks
    for number, (here, needs) in enumerate(zip(place.tolist(), source.tolist(), strict=True)):
        now, ready = clock[here], depth[needs]
        clock[here] = depth[number] = (ready if ready > now else now) + 1
    return np.array(depth[:-1])


def finished(step: Program, clock: Floats, free: Floats, factor: float, stream: str) -> Floats:
    """Return when the last rank is through what follows the passes, (lanes,). stream: as in `timed`."""
    clock, free = clock.copy(), free.copy()
    prices = step.stages[0][0].last.prices[0]
    for row in step.end:
        first = next((each for each in row if each is not None), None)
        places = [place for place, each in enumerate(row) if each is not None]
        if isinstance(first, Meet):
            clock[:] = clock.max(axis=0)
        elif isinstance(first, Swap):
            clock[places] = clock[places].max(axis=0) + float(first.cost.total)
        elif isinstance(first, Wait) and first.stream == stream:
            clock = np.maximum(clock, free)
        elif isinstance(first, Update | Collective | Move):
            seconds = np.array([[_seconds(row[place], prices)] for place in places])
            if isinstance(first, Update):
                clock[places] += factor * seconds
            else:
                free[places] = np.maximum(clock, free)[places] + seconds
    return clock.max(axis=0)


def _seconds(what: Any, prices: Prices) -> float:
    return float(prices.priced(what).seconds if isinstance(what, Collective) else what.seconds)
