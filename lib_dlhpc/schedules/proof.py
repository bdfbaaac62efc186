"""Proof of a schedule: follow every contribution of every rank to every element, and say what went wrong.

The buffer falls into blocks between all places where a message begins or ends; nothing ever happens to
a part of a block. What a rank holds of a block is a content: how often each rank contributed to it.
Contents are kept once each in a table, ranks hold numbers of its rows, so the proof is exact and fast.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from lib_dlhpc.schedules.checks import ProofError, checked
from lib_dlhpc.schedules.goals import ALL, ANY, GOALS, Goal
from lib_dlhpc.schedules.rounds import Ints, Round, Schedule, elements_text
from lib_dlhpc.spec.errors import SpecError, suggest

NOTHING = -1  # the content of a block whose data has not arrived yet
MANY = 100  # counts stop here: enough to know that it is too often


@dataclass(frozen=True)
class Proof:
    """What a proved schedule consists of."""

    goal: str
    rounds: int
    messages: int
    elements_moved: int

    def __str__(self) -> str:
        return (
            f"Proved: {self.goal} in {self.rounds} rounds, {self.messages} messages,"
            f" {self.elements_moved} elements moved."
        )


def prove(schedule: Schedule, goal: str = "", root: int | None = None) -> Proof:
    """Run `schedule` on contributions in place of numbers and return what it took.

    goal: a key of GOALS (default: what the schedule is for). root: of a broadcast or reduce.
    Raises ProofError, whose text says which rank lacks or repeats whose contribution to which
    elements and in which round it went wrong; or which message cannot be sent at all.
    """
    goal = goal or schedule.goal
    if goal not in GOALS:
        raise SpecError(
            f"goal = {goal!r}: expected one of {', '.join(GOALS)}.{suggest(goal, GOALS)}"
        )
    options = dict(schedule.options) | ({} if root is None else {"root": root})
    wanted = GOALS[goal](schedule.ranks, schedule.elements, options)
    rounds = checked(schedule)
    places = [array for part in rounds for array in (part.offset, part.offset + part.count)]
    edges: Ints = np.unique(
        np.concatenate([np.array([0, schedule.elements]), wanted.cuts, *places])
    )
    memory = _Memory(schedule.ranks, edges, wanted)
    for number, part in enumerate(rounds):
        memory.play(part, number)
    memory.compare(wanted)
    return Proof(
        goal,
        len(rounds),
        sum(len(part) for part in rounds),
        sum(int(part.count.sum()) for part in rounds),
    )


class _Cells(NamedTuple):
    """Messages cut into blocks: one entry for each block of each message."""

    source: Ints
    target: Ints
    block: Ints
    reduce: NDArray[np.bool_]


class _Memory:
    """What every rank holds of every block, and when that last changed."""

    def __init__(self, ranks: int, edges: Ints, goal: Goal) -> None:
        self.ranks, self.edges = ranks, edges
        self.table = np.zeros(
            (2 * ranks, ranks), np.uint8
        )  # content -> how often each rank is in it
        np.fill_diagonal(self.table, 1)
        self.rows = ranks
        self.part = np.searchsorted(goal.cuts, edges[:-1], side="right") - 1  # of the goal's parts
        own = np.arange(ranks)[:, None]
        self.held = np.where(goal.begins[:, self.part], own, NOTHING)
        self.last = np.full(self.held.shape, NOTHING)  # the round that wrote there last
        self.writer = np.full(self.held.shape, NOTHING)  # and the rank it came from
        self.lost = np.full(
            self.held.shape, NOTHING
        )  # the round that first overwrote a contribution
        self.repeated = np.full(self.held.shape, NOTHING)  # that first counted a contribution twice

    def play(self, part: Round, number: int) -> None:
        """Carry out one round."""
        cells = self._cells(part)
        self._check_race(cells, number)
        sent, there = self.held[cells.source, cells.block], self.held[cells.target, cells.block]
        self._check_sent(cells, sent, there, number)
        after = sent.copy()
        at = np.flatnonzero(cells.reduce)
        after[at] = self._combined(sent[at], there[at])
        place = (cells.target, cells.block)
        copied = ~cells.reduce & (there != NOTHING) & (there != sent)
        gone = np.zeros(len(sent), np.bool_)
        gone[copied] = (self.table[there[copied]] > self.table[sent[copied]]).any(1)
        twice = np.zeros(len(sent), np.bool_)
        twice[at] = (self.table[after[at]] > 1).any(1)
        for mark, now in ((self.lost, gone), (self.repeated, twice)):
            old = np.where(cells.reduce, mark[place], NOTHING)  # a copy brings the sender's history
            first = _earlier(old, mark[cells.source, cells.block])
            mark[place] = np.where((first == NOTHING) & now, number, first)
        self.held[place], self.last[place], self.writer[place] = after, number, cells.source

    def compare(self, goal: Goal) -> None:
        """Raise ProofError for the first rank and block that does not hold what the goal wants."""
        wanted = goal.wanted[:, self.part]
        full = np.zeros(self.rows, np.bool_)
        full[:] = (self.table[: self.rows] == 1).all(1)
        right = np.where(
            wanted == ALL, full[self.held] & (self.held != NOTHING), self.held == wanted
        )
        wrong = np.argwhere(~right & (wanted != ANY))
        if len(wrong):
            rank, block = (int(i) for i in wrong[0])
            self._explain(rank, block, int(wanted[rank, block]), len(np.unique(wrong[:, 0])))

    def _explain(self, rank: int, block: int, wanted: int, ranks: int) -> None:
        held = self.held[rank, block]
        counts = self.table[held].astype(int) if held != NOTHING else np.zeros(self.ranks, int)
        target = (
            np.ones(self.ranks, int) if wanted == ALL else np.eye(self.ranks, dtype=int)[wanted]
        )
        lacks, repeats = (
            np.flatnonzero(counts < target),
            np.flatnonzero((counts > target) & (counts > 1)),
        )
        strange = np.flatnonzero((counts == 1) & (target == 0))
        place = elements_text(int(self.edges[block]), int(self.edges[block + 1]))
        faults = []
        if len(lacks):
            faults.append(f"lacks the contribution of {_ranks_text(lacks)}")
        if len(repeats):
            faults.append(
                f"has the contribution of {_ranks_text(repeats)} {_times(counts[repeats[0]])}"
            )
        if len(strange):
            faults.append(
                f"has the contribution of {_ranks_text(strange)}, which does not belong there"
            )
        last, writer = int(self.last[rank, block]), int(self.writer[rank, block])
        lost, repeated = int(self.lost[rank, block]), int(self.repeated[rank, block])
        if len(repeats) and repeated != NOTHING:
            when, cause = (
                repeated,
                f"Round {repeated} first combined data that held the same contribution.",
            )
        elif len(lacks) and lost != NOTHING and wanted == ALL:
            when, cause = (
                lost,
                f"Round {lost} overwrote a contribution: 'copy' where 'reduce' was due?",
            )
        elif last == NOTHING:
            when, cause = NOTHING, "No message ever brings it anything there: is one missing?"
        else:
            when, cause = (
                last,
                f"The last message to get there is rank {writer}'s in round {last}: too early, or one is missing?",
            )
        others = f" ({ranks - 1} more ranks are wrong.)" if ranks > 1 else ""
        raise ProofError(
            f"Rank {rank}, {place}: at the end it {' and '.join(faults)}. {cause}{others}",
            rank,
            (int(self.edges[block]), int(self.edges[block + 1])),
            None if when == NOTHING else when,
        )

    def _cells(self, part: Round) -> _Cells:
        first = np.searchsorted(self.edges, part.offset)
        many = np.searchsorted(self.edges, part.offset + part.count) - first
        message = np.repeat(np.arange(len(part)), many)
        within = np.arange(len(message)) - np.repeat(np.cumsum(many) - many, many)
        block = first[message] + within
        return _Cells(part.source[message], part.target[message], block, part.reduce[message])

    def _check_race(self, cells: _Cells, number: int) -> None:
        key = cells.target * len(self.edges) + cells.block
        order = np.argsort(key, kind="stable")
        for i in np.flatnonzero(np.diff(key[order]) == 0)[:1]:
            a, b = order[i], order[i + 1]
            target, place = int(cells.target[a]), self._place(int(cells.block[a]))
            raise ProofError(
                f"Round {number}: the messages from ranks {cells.source[a]} and {cells.source[b]} both write"
                f" {elements_text(*place)} of rank {target}; which comes first is luck. Use two rounds.",
                target,
                place,
                number,
            )

    def _check_sent(self, cells: _Cells, sent: Ints, there: Ints, number: int) -> None:
        for i in np.flatnonzero(sent == NOTHING)[:1]:
            source, place = int(cells.source[i]), self._place(int(cells.block[i]))
            raise ProofError(
                f"Round {number}: rank {source} sends {elements_text(*place)} to rank {cells.target[i]},"
                " but has received nothing there yet.",
                source,
                place,
                number,
            )
        for i in np.flatnonzero(cells.reduce & (there == NOTHING))[:1]:
            target, place = int(cells.target[i]), self._place(int(cells.block[i]))
            raise ProofError(
                f"Round {number}: rank {target} is to combine {elements_text(*place)} from rank"
                f" {cells.source[i]} with its own, but has nothing there yet: 'reduce' where 'copy' was due?",
                target,
                place,
                number,
            )

    def _place(self, block: int) -> tuple[int, int]:
        return int(self.edges[block]), int(self.edges[block + 1])

    def _combined(self, one: Ints, other: Ints) -> Ints:
        """Return the contents of `one` and `other` together, new rows of the table."""
        low, high = np.minimum(one, other), np.maximum(one, other)
        pairs, which = np.unique(low * self.rows + high, return_inverse=True)
        low, high = pairs // self.rows, pairs % self.rows
        start, self.rows = self.rows, self.rows + len(pairs)
        if self.rows > len(self.table):
            more = np.zeros((self.rows, self.ranks), np.uint8)
            self.table = np.concatenate([self.table, more])
        self.table[start : self.rows] = np.minimum(self.table[low] + self.table[high], MANY)
        return start + which


def _earlier(one: Ints, other: Ints) -> Ints:
    """The earlier of two rounds, NOTHING standing for never."""
    return np.where(one == NOTHING, other, np.where(other == NOTHING, one, np.minimum(one, other)))


def _times(count: int) -> str:
    return "twice" if count == 2 else f"{count} times" if count < MANY else "very often"


def _ranks_text(ranks: Ints) -> str:
    shown = ", ".join(map(str, ranks[:4]))
    more = f" and {len(ranks) - 4} more" if len(ranks) > 4 else ""
    return f"rank{'s' if len(ranks) > 1 else ''} {shown}{more}"
