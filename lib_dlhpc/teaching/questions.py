"""Exam questions: four options, each wrong one with the misconception that leads to it.

    wrong = {show(flop / peak, "s"): "Peak FLOP/s predicts time.", ...}
    Question("peak", "How long does the layer take?", show(seconds, "s"), wrong, "Its weights come from memory first.")

A file of questions is Python: numbers of options come from the library, so that a key is never older than the models.
An item may be a function of a Draw instead: then each version of an exam has numbers of its own. Draws whose options
are no options, such as two that are nearly equal, are drawn again (`fair`).

    def peak(draw):
        machine, batch = draw.any(["summit", "perlmutter", "lumi"]), draw.between(8, 120, 8)
        ...
        return Question("peak", ..., steps=[Step("FLOP over peak", flop / peak, "s")])
"""

import runpy
from collections.abc import Callable, Mapping, Sequence, Set
from functools import cache
from hashlib import sha256
from itertools import combinations
from math import ceil
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np

from lib_dlhpc.errors import SpecError
from lib_dlhpc.teaching.numbers import on_page, printed, value
from lib_dlhpc.teaching.problems import Step

LETTERS = "ABCD"
HAND_IN = "Hand in one letter for each question. k, M and G are powers of 1,000."
POINTS = (
    " A correct letter is worth one point. You may use paper and a calculator; numbers are rounded, so choose the"
    " nearest."
)
HALF_A_PAGE = " The last question takes half a page."
WORDS, STEP = 120, 2 / 3  # of technical text in a minute; minutes of a step on a calculator
CHECKING = 1.25  # over the minutes of all items
HALF_A_PAGE_MINUTES = 10
APART = 0.05  # numbers that differ by less could be one answer, rounded
FAR = 20  # a number that is further from the answer, as a factor, eliminates itself
TRIES = 100
T = TypeVar("T")
N = TypeVar("N", int, float)


class Question(NamedTuple):
    """One question. wrong: each wrong option with the misconception behind it. because: why the right one is right.

    steps: for a number, how to get it by hand.
    """

    name: str
    text: str
    right: str
    wrong: Mapping[str, str]
    because: str
    steps: Sequence[Step] = ()


class Open(NamedTuple):
    """An open question. answer: what a good one says. rubric: what earns points, and how many."""

    text: str
    answer: str
    rubric: Mapping[str, int]

    @property
    def points(self) -> int:
        """All points."""
        return sum(self.rubric.values())


class Draw:
    """What one version of an exam draws for one item: the same numbers in the same order each time."""

    def __init__(self, seed: int, item: str, attempt: int = 0) -> None:
        self.seed, self.item = seed + attempt, item
        self._random = _generator(f"{seed} {item} {attempt}")

    def of(self, cases: Sequence[T]) -> T:
        """Return one of the cases; each of as many seeds in a row gets another one."""
        return shuffled(cases, self.item)[self.seed % len(cases)]

    def any(self, cases: Sequence[T]) -> T:
        """Return one of the cases, whatever was drawn before."""
        return cases[int(self._random.integers(len(cases)))]

    def between(self, low: N, high: N, step: N) -> N:
        """Return low, low + step, ... or high."""
        return round(low + step * int(self._random.integers(round((high - low) / step) + 1)), 6)


@cache
def read(path: Path, name: str) -> Any:
    """Return what a file of the course defines under a name; raises SpecError, naming both, where there is none."""
    if not path.is_file():
        raise SpecError(f"There is no file {path}.")
    found = runpy.run_path(str(path)).get(name)
    if found is None:
        raise SpecError(f"{path} defines no {name}.")
    return found


def exam(path: Path, seed: int = 0) -> list[Question]:
    """Return the questions of a file, in one version: items that are functions draw their numbers.

    No right number is one that the module's page shows. Raises SpecError where an item has no fair draw.
    """
    page = path.resolve().parents[2] / "modules" / f"{path.stem}.ipynb"
    return [
        each if isinstance(each, Question) else drawn(each, seed, on_page(page))
        for each in read(path, "QUESTIONS")
    ]


def drawn(item: Callable[[Draw], Question], seed: int, taken: Set[tuple[str, str]]) -> Question:
    """Return the first fair draw of an item. taken: printed numbers that must not be right."""
    for attempt in range(TRIES):
        found = item(Draw(seed, item.__name__, attempt))
        if fair(found) and (value(found.right) is None or not printed(found.right) & taken):
            return found
    raise SpecError(f"{item.__name__}: none of {TRIES} draws is fair.")


def fair(question: Question) -> bool:
    """Return whether each number could be the answer: none equals another, is far off, or is a share of 0 or 100%."""
    right = value(question.right)
    every = [question.right, *question.wrong]
    numbers = [number for option in every if (number := value(option)) is not None]
    apart = all(abs(a - b) > APART * max(abs(a), abs(b)) for a, b in combinations(numbers, 2))
    near = right is None or all(right and 1 / FAR <= number / right <= FAR for number in numbers)
    shares = [value(option) or 0.0 for option in every if option.endswith("%")]
    four = len(set(every)) == len(LETTERS)  # equal options are one key of a mapping
    return four and apart and near and all(0 < share < 100 for share in shares)


def options(question: Question, seed: int = 0) -> list[str]:
    """Return the options in the order of one version of an exam, the same for the same seed."""
    return shuffled([question.right, *question.wrong], f"{seed} {question.name} {question.text}")


def shuffled(options: Sequence[T], seed: str) -> list[T]:
    """Return the options in an order that is the same for the same seed."""
    return [options[place] for place in _generator(seed).permutation(len(options))]


def _generator(seed: str) -> np.random.Generator:
    return np.random.default_rng(int.from_bytes(sha256(seed.encode()).digest()[:8]))


def pace(question: Question) -> float:
    """Return the minutes of a question: those of reading it with its options, and of its steps by hand.

    An estimate, which no class has tested.
    """
    read_ = sum(len(each.split()) for each in (question.text, question.right, *question.wrong))
    return read_ / WORDS + STEP * len(question.steps)


def allowed(questions: Sequence[Question], last: Open | None = None) -> int:
    """Return the minutes for all questions and their checking, in fives. last: an open question after them."""
    own = CHECKING * sum(map(pace, questions)) + (HALF_A_PAGE_MINUTES if last else 0)
    return 5 * ceil(own / 5)


def right_letter(question: Question, seed: int = 0) -> str:
    """Return the letter of the right option."""
    return LETTERS[options(question, seed).index(question.right)]


def sheet(
    title: str,
    questions: Sequence[Question],
    seed: int = 0,
    last: Open | None = None,
    graded: bool = True,
    minutes: int = 0,
) -> str:
    """Return the questions as Markdown, without a hint of the answers. last: an open question after them.

    minutes: for all of it; 0: not stated.
    """
    how = HAND_IN + POINTS * graded + (HALF_A_PAGE if last else "")
    how += f" You have {minutes} minutes." if minutes else ""
    lines = [f"# {title}", "", how, ""]
    for number, question in enumerate(questions, 1):
        lines += [f"**{number}.** {question.text}", ""]
        lines += [f"- {letter}. {option}" for letter, option in _lettered(question, seed)]
        lines.append("")
    if last:
        lines += [f"## In your own words ({last.points} points)", "", last.text, ""]
    return "\n".join(lines)


def key(title: str, questions: Sequence[Question], seed: int = 0, last: Open | None = None) -> str:
    """Return the answers as Markdown: steps by hand, the misconception behind each wrong option, the rubric."""
    lines = [f"# {title}: answers", ""]
    for number, question in enumerate(questions, 1):
        lines += [f"**{number}.** {right_letter(question, seed)}. {question.because}", ""]
        lines += [f"- About {pace(question):.1f} minutes."]
        lines += [f"- By hand. {each.do}: {each.result}" for each in question.steps]
        lines += [
            f"- {letter}, {option}: {question.wrong[option]}"
            for letter, option in _lettered(question, seed)
            if option != question.right
        ]
        lines.append("")
    if last:
        lines += [f"## In your own words ({last.points} points)", "", last.answer, ""]
        lines += [f"- {points}: {what}" for what, points in last.rubric.items()]
        lines.append("")
    return "\n".join(lines)


def _lettered(question: Question, seed: int) -> list[tuple[str, str]]:
    return list(zip(LETTERS, options(question, seed), strict=True))
