"""Proof of a schedule: track every contribution of every rank to every element, and report the first fault.

The buffer is cut into blocks wherever a message begins or ends; no operation affects part of a block.
The content of a block on a rank is how often each rank contributed to it.
Contents are rows of a table and ranks hold row numbers, so the proof is exact and fast.
"""

from dataclasses import dataclass

import numpy as np

from lib_dlhpc.arrays import Ints
from lib_dlhpc.errors import SpecError, listed
from lib_dlhpc.schedules.checks import checked
from lib_dlhpc.schedules.faults import Cells, Trace, not_there, race, wrong_at_the_end
from lib_dlhpc.schedules.goals import ALL, ANY, GOALS, NOTHING, Goal
from lib_dlhpc.schedules.rounds import Round, Schedule, one_by_one

MANY = 100  # counts saturate here


@dataclass(frozen=True)
class Proof:
    """Statistics of a proved schedule."""

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
    """Run `schedule` on symbolic contributions and return its statistics.

    goal: a key of GOALS (default: that of the schedule). root: of a broadcast or reduce.
    Raises ProofError, which names the rank, the elements, the missing or repeated contributions
    and the first faulty round; or a message that cannot be sent.
    """
    goal = goal or schedule.goal
    if goal not in GOALS:
        raise SpecError(listed(f"goal = {goal!r}:", goal, GOALS, "expected one of"))
    options = dict(schedule.options) | ({} if root is None else {"root": root})
    wanted = GOALS[goal](schedule.ranks, schedule.elements, options)
    rounds = checked(schedule)
    places = [array for part in rounds for array in (part.offset, part.offset + part.count)]
    edges: Ints = np.unique(
        np.concatenate([np.array([0, schedule.elements]), wanted.cuts, *places])
    )
    memory = _Memory(schedule.ranks, edges, wanted)
    for number, part in enumerate(rounds):
        for once in one_by_one(part):
            memory.apply(once, number)
    memory.compare(rounds)
    moved = sum(int(part.count.sum()) for part in rounds)
    return Proof(goal, len(rounds), memory.messages, moved)


class _Memory:
    """The content of every block on every rank, and the messages that produced it."""

    def __init__(self, ranks: int, edges: Ints, goal: Goal) -> None:
        self.edges = edges
        self.table = np.eye(ranks, dtype=np.uint8)  # content -> contributions of each rank
        self.messages = 0  # applied so far
        part = np.searchsorted(goal.cuts, edges[:-1], side="right") - 1  # of the goal's parts
        self.wanted = goal.wanted[:, part]
        self.held = np.where(goal.begins[:, part], np.arange(ranks)[:, None], NOTHING)
        # For each rank and block, the number of the message that ...
        self.last = np.full(self.held.shape, NOTHING)  # wrote there last
        self.lost = self.last.copy()  # first overwrote a contribution
        self.repeated = self.last.copy()  # first added a contribution a second time

    def apply(self, part: Round, number: int) -> None:
        """Apply one round."""
        cells = self._cells(part)
        origin, place = (cells.source, cells.block), (cells.target, cells.block)
        sent, there = self.held[origin], self.held[place]
        race(cells, self.edges, number)
        not_there(cells, sent, there, self.edges, number)
        after = np.where(cells.reduce, self._combined(sent, there, cells.reduce), sent)
        twice = cells.reduce & (self.table[after] > 1).any(1)
        gone = ~cells.reduce & (there != NOTHING)
        gone[gone] = (self.table[there[gone]] > self.table[sent[gone]]).any(1)
        message = self.messages + cells.message
        for mark, now in ((self.lost, gone), (self.repeated, twice)):
            # A copy carries the sender's history, a reduction merges both.
            first = _earlier(np.where(cells.reduce, mark[place], NOTHING), mark[origin])
            mark[place] = np.where(now & (first == NOTHING), message, first)
        self.held[place], self.last[place] = after, message
        self.messages += len(part)

    def compare(self, rounds: list[Round]) -> None:
        """Raise ProofError for the first rank and block with a wrong content."""
        complete = (self.table == 1).all(1)[self.held] & (self.held != NOTHING)
        right = np.where(self.wanted == ALL, complete, self.held == self.wanted)
        wrong = np.argwhere(~right & (self.wanted != ANY))
        if not len(wrong):
            return
        rank, block = (int(i) for i in wrong[0])
        held, wanted = self.held[rank, block], self.wanted[rank, block]
        counts = np.zeros(len(self.held), np.int64) if held == NOTHING else self.table[held]
        target = np.ones(len(self.held)) if wanted == ALL else np.arange(len(self.held)) == wanted
        marks = (mark[rank, block] for mark in (self.last, self.lost, self.repeated))
        raise wrong_at_the_end(
            rank,
            (int(self.edges[block]), int(self.edges[block + 1])),
            counts.astype(np.int64),
            target.astype(np.int64),
            Trace(*(_message(rounds, int(mark)) for mark in marks)),
            len(np.unique(wrong[:, 0])) - 1,
        )

    def _cells(self, part: Round) -> Cells:
        first = np.searchsorted(self.edges, part.offset)
        blocks = np.searchsorted(self.edges, part.offset + part.count) - first
        message = np.repeat(np.arange(len(part)), blocks)
        further = np.arange(len(message)) - np.repeat(np.cumsum(blocks) - blocks, blocks)
        return Cells(
            message,
            part.source[message],
            part.target[message],
            first[message] + further,
            part.reduce[message],
        )

    def _combined(self, sent: Ints, there: Ints, reduce: np.ndarray) -> Ints:
        """Return the sum of both contents where `reduce`; appends rows to the table."""
        rows, result = len(self.table), sent.copy()
        low, high = np.minimum(sent, there)[reduce], np.maximum(sent, there)[reduce]
        pairs, which = np.unique(low * rows + high, return_inverse=True)
        low, high = pairs // rows, pairs % rows
        new = np.minimum(self.table[low] + self.table[high], MANY)
        self.table = np.concatenate([self.table, new])
        result[reduce] = rows + which
        return result


def _earlier(first: Ints, other: Ints) -> Ints:
    """The earlier of two messages; NOTHING means none."""
    return np.where(
        first == NOTHING, other, np.where(other == NOTHING, first, np.minimum(first, other))
    )


def _message(rounds: list[Round], message: int) -> tuple[int, int, int] | None:
    """Round, source and target of a message by its number in the schedule."""
    if message == NOTHING:
        return None
    for number, part in enumerate(rounds):
        if message < len(part):
            return number, int(part.source[message]), int(part.target[message])
        message -= len(part)
    raise IndexError(message)
