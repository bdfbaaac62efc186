"""The longest path through many steps at once: the same passes, which take another time in each lane.

A lane is one step. Prices are arrays over the samples of a microbatch; `timed` makes of a program what its passes take,
`walk` (lane_walk.py) carries out the passes of pipelines of one shape, and `finished` what follows them. The arithmetic
is that of stage_path.py.

A pass starts at s and finds the stream of gradients free at f. As it does nothing but add and wait, both its end and
when that stream is free again are max(s + a, f + b), with constants a and b (Baccelli et al. 1992, "Synchronization and
Linearity"). All other streams are free when it starts.
"""

from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import groupby
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from lib_dlhpc.arrays import Floats
from lib_dlhpc.keyed import Keyed
from lib_dlhpc.program.calls import PASSES
from lib_dlhpc.program.fold import Queue, Shape, Span
from lib_dlhpc.program.gradient_contention import LinkShares
from lib_dlhpc.program.instructions import (
    Barrier,
    Collective,
    Instruction,
    PairAllreduce,
    Transfer,
    Update,
    Wait,
)
from lib_dlhpc.program.ports import Lines, are_long
from lib_dlhpc.program.program import Block, Chunk, Prices, Program
from lib_dlhpc.schedules.pipeline import Pipeline

# What the table of a chunk has: s of each pass, and of the last one from its start and from when the stream is free to
# its end and until the stream is free again; s that a message occupies a port, and until it arrives; s of the gradients
# of the last pass, whether they wait for the message of the pass before, and what messages share with them,
# gradient_contention.py.
COLUMNS = (
    *(*PASSES, "end", "end behind", "free", "free behind", "busy", "takes"),
    *("posted", "joins", "shared behind", "shared ahead"),
)
BUSY, TAKES, POSTED, JOINS = map(COLUMNS.index, ("busy", "takes", "posted", "joins"))
LAST, SENDS = slice(len(PASSES), BUSY), slice(BUSY, TAKES + 1)  # of the last pass; of messages
SHARED = slice(JOINS + 1, len(COLUMNS))
Samples: TypeAlias = tuple[int, ...]  # numbers of lanes of prices


class Row(NamedTuple):
    """A row of what follows the passes: what its ranks do, which they are, and their seconds, (places, 1)."""

    what: type
    places: NDArray[np.int64]
    seconds: Floats


class Timed(NamedTuple):
    """The passes of a program, of each stage that differs from others, and what follows them.

    table: s, (COLUMNS, stages, chunks, samples). work: s of a microbatch, (forward, backward, recomputed; stages,
    samples). limited: what arithmetic and memory limit of that, s, (forward or backward, limit, stages, samples).
    stage: that of each place. schedule: the pipeline. lines: of its messages. shares: of these with gradients.
    """

    table: Floats
    work: Floats
    limited: Floats
    stage: NDArray[np.int64]
    rows: tuple[Row, ...]
    schedule: Pipeline
    lines: Lines | None
    shares: LinkShares | None

    def of_places(self, sample: NDArray[np.int64]) -> Floats:
        """Return the table of all places of layouts, (COLUMNS, places, chunks, layouts); sample: of each layout."""
        seconds: Floats = self.table[..., sample][:, self.stage]
        if self.shares is not None:
            both = np.array(self.shares[:2]).reshape(2, *seconds.shape[1:3], 1)
            seconds[SHARED] = both
        return seconds

    @property
    def meet(self) -> NDArray[np.bool_]:
        """Whether messages between stages may meet, (samples,)."""
        flat = self.table.reshape(len(COLUMNS), -1, self.table.shape[-1])
        if self.lines is None:
            return np.zeros(flat.shape[-1], bool)
        meets: NDArray[np.bool_] = are_long(flat[BUSY], flat[0], flat[1], self.lines.far)
        return meets


def timed(step: Program, samples: Samples, factor: float, stream: str) -> Timed:
    """Return what the passes of a program take; samples: which of those that its prices are of; factor: of compute
    times.

    stream: that on which a pass may leave something behind.
    """
    stages = dict[int, tuple[int, tuple[Chunk, ...]]]()
    for chunks in step.stages:
        stages.setdefault(id(chunks), (len(stages), chunks))
    work, limited = zip(*(_work(chunks, samples) for _, chunks in stages.values()), strict=True)
    table = [
        [_columns(chunk, samples, factor, stream) for chunk in chunks]
        for _, chunks in stages.values()
    ]
    return Timed(
        np.moveaxis(np.array(table), 2, 0),
        np.stack(work, axis=1),
        np.stack(limited, axis=2),
        np.array([stages[id(stage)][0] for stage in step.stages]),
        tuple(_rows(step, stream)),
        step.schedule,
        step.lines,
        step.shares,
    )


def _columns(chunk: Chunk, samples: Samples, factor: float, stream: str) -> Floats:
    """Return the column of a chunk in the table, (COLUMNS, samples)."""
    columns = np.zeros((len(COLUMNS), len(samples)))
    for number, block in enumerate((chunk.forward, chunk.backward, chunk.weights)):
        if block is not None:
            columns[number] = _taken(Keyed(block, id(block)), samples, factor, stream)[0][0]
    end, free = _taken(Keyed(chunk.last, id(chunk.last)), samples, factor, stream)
    columns[LAST] = end[0], end[1], free[0], free[1]
    columns[BUSY] = _of(chunk.sends.bandwidth, samples)
    columns[TAKES] = _of(chunk.sends.total, samples)
    columns[POSTED] = posted = chunk.last.gradients[0]
    columns[JOINS] = posted > 0 and chunk.last.message is None
    return columns


def _of(values: Any, samples: Samples) -> Any:
    """Return the values of some samples; a number is that of all."""
    return values[..., samples] if np.ndim(values) else values


def _work(stage: tuple[Chunk, ...], samples: Samples) -> tuple[Floats, Floats]:
    work, limited = np.zeros((3, len(samples))), np.zeros((2, 2, len(samples)))
    for chunk in stage:
        work += chunk.backward.work[0][:, samples]
        limited += chunk.backward.limited[0][..., samples]
    return work, limited


@lru_cache(maxsize=8192)  # as many as there are blocks
def _taken(
    key: Keyed[Block], samples: Samples, factor: float, stream: str
) -> tuple[Floats, Floats]:
    """Return when a pass ends, and when its stream is free again, each (2, samples): from a start at 0 with that stream
    free, and from 0 of that stream if it is what matters."""
    shape, prices = key.value.variants[0].shape, key.value.prices[0]
    origin = np.array([[0.0], [-np.inf]]) + np.zeros(len(samples))
    costs = np.zeros((len(shape.priced), len(samples)))
    for number, what in enumerate(shape.priced):
        costs[number] = _of(prices.priced(what).seconds, samples)
    work = shape.work_of_lanes(prices, samples)
    talk = np.zeros_like(work)
    np.add.at(talk, np.array(shape.spans_of, np.int64), costs[np.array(shape.numbers, np.int64)])
    posts = costs[shape.posts] if not shape.moves else _with_moves(shape, costs)
    for index, lane in enumerate(samples):
        alone = work[:, index] + talk[:, index]
        added = shape.crossing(prices, alone, posts[:, index], key.value.message, lane)
        if added is not None:
            talk[:, index] += added.spans
            posts[:, index] += added.posts
    seconds = factor * work + talk
    if shape.queue is not None:
        return _queued(shape.queue, seconds, posts, origin)
    now, free, ends, sent = origin, {stream: origin[::-1]}, dict[str, Floats](), iter(posts)
    for piece in shape.compact:
        if isinstance(piece, Span):
            now = now + seconds[piece.number]
        elif isinstance(piece, Wait):
            now = np.maximum(now, ends[piece.key] if piece.key else free.get(piece.stream, now))
        else:
            starts = np.maximum(now, free[piece.stream]) if piece.stream in free else now
            ends[piece.key] = free[piece.stream] = starts + next(sent)
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
    pieces = (piece for piece in shape.compact if isinstance(piece, Collective | Transfer))
    seconds = (
        piece.seconds if isinstance(piece, Transfer) else costs[next(posts)] for piece in pieces
    )
    return np.array([moved + np.zeros(costs.shape[1]) for moved in seconds])


def _rows(step: Program, stream: str) -> Iterator[Row]:
    """Yield the rows of what follows the passes that take time, those of one kind that follow one another as one;
    stream: as in `timed`."""
    for what, rows in groupby(step.end, lambda row: type(_first(row))):
        # Each place carries out its own collectives one after another, and so takes the sum.
        for group in [[*rows]] if what is Collective else ([row] for row in rows):
            first = _first(group[0])
            if isinstance(first, Wait) and first.stream != stream:
                continue
            distinct = {
                (id(instruction), id(prices)): (instruction, prices)
                for row in group
                for instruction, prices in zip(row, step.ends.prices, strict=True)
            }
            known = {key: _seconds(*pair) for key, pair in distinct.items()}
            on = [*map(id, step.ends.prices)]
            each_row = (zip(map(id, row), on, strict=True) for row in group)
            seconds = np.array([[known[key] for key in keys] for keys in each_row]).sum(axis=0)
            places = np.flatnonzero([any(present) for present in zip(*group, strict=True)])
            yield Row(what, places, seconds[places, None])


def _first(row: Sequence[Instruction | None]) -> Instruction:
    return next(instruction for instruction in row if instruction is not None)


def _seconds(what: Any, prices: Prices) -> float:
    if isinstance(what, Collective):
        return float(prices.priced(what).seconds)
    return float(
        what.cost.total if isinstance(what, PairAllreduce) else getattr(what, "seconds", 0.0)
    )


def finished(rows: Sequence[Row], clock: Floats, free: Floats, factor: float) -> Floats:
    """Return when the last rank finishes what follows the passes, (lanes,)."""
    clock, free = clock.copy(), free.copy()
    for what, places, seconds in rows:
        if what is Barrier:
            clock[:] = clock.max(axis=0)
        elif what is Wait:
            clock = np.maximum(clock, free)
        elif what is PairAllreduce:
            clock[places] = clock[places].max(axis=0) + seconds
        elif what is Update:
            clock[places] += factor * seconds
        else:
            free[places] = np.maximum(clock, free)[places] + seconds
    return clock.max(axis=0)
