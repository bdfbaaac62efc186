"""Answers of a class that does not exist, whose true values are known: what its report is tried on."""

from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

import numpy as np

from lib_dlhpc.classroom.entry import Entry
from lib_dlhpc.classroom.report import AGAIN

MODULES = ("one_step", "allreduce")  # the later asks the checks of the earlier again
START = datetime(2026, 9, 1, 9, tzinfo=UTC)
WEEK = timedelta(days=7)
MISTAKE = "The usual mistake."


class Truth(NamedTuple):
    """Probabilities: right at first, right in the end if not, right a week later if so, absent a week later."""

    first: float = 0.4
    repaired: float = 0.7
    kept: float = 0.75
    absent: float = 0.2
    seconds: float = 90.0  # between two answers


USUAL = Truth()


@dataclass
class _Writer:
    """Adds entries of one learner to a list, a step of time apart."""

    into: list[Entry]
    learner: str
    step: timedelta
    clock: datetime = field(default=START)

    def add(self, module: str, question: str, right: bool | None, attempt: int = 1) -> None:
        """Add an answer; right None: the page was opened."""
        kind = "open" if right is None else "check"
        answer = "" if right is None else "right" if right else MISTAKE
        time, name = self.clock.isoformat(), str(len(self.into))
        entry = Entry(name, self.learner, module, question, kind, attempt, answer, right, time)
        self.into.append(entry)
        self.clock += self.step


def simulated(
    learners: int = 30, questions: int = 4, truth: Truth = USUAL, seed: int = 0
) -> list[Entry]:
    """Return what learners answered to `questions` checks of each of two modules, a week apart."""
    draw = np.random.default_rng(seed)
    found: list[Entry] = []
    for who in range(1, learners + 1):
        writer = _Writer(found, f"learner {who}", timedelta(seconds=truth.seconds))
        learned: dict[str, bool] = {}
        for module in MODULES[: 1 if draw.random() < truth.absent else 2]:
            writer.clock = START + WEEK * MODULES.index(module)
            writer.add(module, "", None, 0)
            for check, had in learned.items():
                writer.add(module, f"{AGAIN}{check}", had and bool(draw.random() < truth.kept))
            for number in range(1, questions + 1):
                first, second = (bool(draw.random() < p) for p in (truth.first, truth.repaired))
                writer.add(module, f"check {number}", first)
                if not first and second:
                    writer.add(module, f"check {number}", True, 2)
                if module == MODULES[0]:
                    learned[f"{module}.check {number}"] = first or second
    return found
