"""Exam questions: four options, each wrong one with the misconception that leads to it.

    wrong = {show(flop / peak, "s"): "Peak FLOP/s predicts time.", ...}
    Question("peak", "How long does the layer take?", show(seconds, "s"), wrong, "Its weights come from memory first.")

A file of questions is Python: numbers of options come from the library, so that a key is never older than the models.
An item may be a function of a Draw instead: then each version of an exam has numbers of its own.

    def peak(draw):
        machine = draw.of(["summit", "perlmutter", "lumi"])
        ...
        return Question("peak", ...)
"""

import runpy
from collections.abc import Mapping, Sequence
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np

from lib_dlhpc.errors import SpecError

LETTERS = "ABCD"
T = TypeVar("T")


class Question(NamedTuple):
    """One question. wrong: each wrong option with the misconception behind it. because: why the right one is right."""

    name: str
    text: str
    right: str
    wrong: Mapping[str, str]
    because: str


class Draw(NamedTuple):
    """What one version of an exam draws for one item."""

    seed: int
    item: str

    def of(self, cases: Sequence[T]) -> T:
        """Return one of the cases; each of as many seeds in a row gets another one."""
        return shuffled(cases, self.item)[self.seed % len(cases)]


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
    """Return the questions of a file, in one version: items that are functions draw their numbers."""
    return [
        each if isinstance(each, Question) else each(Draw(seed, each.__name__))
        for each in read(path, "QUESTIONS")
    ]


def options(question: Question, seed: int = 0) -> list[str]:
    """Return the options in the order of one version of an exam, the same for the same seed."""
    return shuffled([question.right, *question.wrong], f"{seed} {question.name} {question.text}")


def shuffled(options: Sequence[T], seed: str) -> list[T]:
    """Return the options in an order that is the same for the same seed."""
    digest = sha256(seed.encode()).digest()
    order = np.random.default_rng(int.from_bytes(digest[:8])).permutation(len(options))
    return [options[place] for place in order]


def right_letter(question: Question, seed: int = 0) -> str:
    """Return the letter of the right option."""
    return LETTERS[options(question, seed).index(question.right)]


def sheet(title: str, questions: Sequence[Question], seed: int = 0) -> str:
    """Return the questions as Markdown, without a hint of the answers."""
    lines = [f"# {title}", ""]
    for number, question in enumerate(questions, 1):
        lines += [f"**{number}.** {question.text}", ""]
        lines += [f"- {letter}. {option}" for letter, option in _lettered(question, seed)]
        lines.append("")
    return "\n".join(lines)


def key(title: str, questions: Sequence[Question], seed: int = 0) -> str:
    """Return the answers as Markdown, with the misconception behind each wrong option."""
    lines = [f"# {title}: answers", ""]
    for number, question in enumerate(questions, 1):
        lines += [f"**{number}.** {right_letter(question, seed)}. {question.because}", ""]
        lines += [
            f"- {letter}, {option}: {question.wrong[option]}"
            for letter, option in _lettered(question, seed)
            if option != question.right
        ]
        lines.append("")
    return "\n".join(lines)


def _lettered(question: Question, seed: int) -> list[tuple[str, str]]:
    return list(zip(LETTERS, options(question, seed), strict=True))
