"""Worked problems: one with all of its steps, one with some of them, others with none; answers on a page of their own.

    Problem("A ring", "8 ranks sum 64 MB.", ring.total, Step("Rounds: 2 (p - 1)", 14), Step("Time", seconds, "s"))

Steps are arithmetic with the numbers of the text, the answer comes from the library: tests hold the one to the other.

A file of problems takes its numbers from `draw.any([8, 4, 16])`: its page has the first of each, `version` another.
Its texts are in a TOML file (problem_texts.py).
"""

import runpy
from collections.abc import Sequence
from typing import NamedTuple, Protocol, TypeVar

from lib_dlhpc.spec.units import format_quantity, with_unit

SI = ("s", "B", "B/s", "FLOP", "FLOP/s", "J", "W")
WORKED, FADED, OWN = "worked", "faded: complete it", "yours"
BLANK = "\\_\\_\\_\\_"
HOW = (
    "By hand, to three digits; k, M and G are powers of 1,000. Nothing is handed in: *Practice* on the module's page"
    " checks your results."
)
T = TypeVar("T")


class Cases(Protocol):
    """What chooses one of several cases."""

    def any(self, cases: Sequence[T]) -> T:
        """Return one of the cases."""
        ...


class First:
    """What a page shows."""

    def any(self, cases: Sequence[T]) -> T:
        """Return the first of the cases."""
        return cases[0]


PAGE = First()


class Step(NamedTuple):
    """One step: what to do, and what comes out."""

    do: str
    value: float
    unit: str = ""

    @property
    def result(self) -> str:
        """The value with its unit."""
        if self.unit in SI:
            return format_quantity(self.value, self.unit)
        digits = self.value if float(self.value).is_integer() else float(f"{self.value:.4g}")
        plain = float(digits).is_integer() and abs(digits) < 1e9
        return with_unit(f"{digits:,.0f}" if plain else f"{digits:.4g}", self.unit)


class Trap(NamedTuple):
    """A wrong result, in the unit of the last step, and what to say to those who have it."""

    value: float
    said: str


class Problem:
    """A problem. answer: what the library says, in the unit of the last step.

    kind: WORKED or FADED where a topic begins after the second problem; else its place decides.
    traps: wrong results that misconceptions lead to.
    """

    def __init__(
        self,
        title: str,
        text: str,
        answer: float,
        *steps: Step,
        kind: str = "",
        traps: Sequence[Trap] = (),
    ) -> None:
        self.title, self.text, self.answer, self.steps = title, text, answer, steps
        self.kind, self.traps = kind, traps


def version(file: str, draw: Cases) -> Sequence[Problem]:
    """Return the problems of a file with other numbers than the page's: those of `draw`."""
    found: Sequence[Problem] = runpy.run_path(file, {"draw": draw})["PROBLEMS"]
    return found


def kind_of(number: int, problem: Problem) -> str:
    """Return how much of a problem is solved; by its number from 1 the first all, the second in part."""
    return problem.kind or {1: WORKED, 2: FADED}.get(number, OWN)


def page(title: str, problems: Sequence[Problem]) -> str:
    """Return the problems as Markdown: worked ones solved, of faded ones the first step, of others the text."""
    lines = [f"# {title}", "", HOW, ""]
    for number, problem in enumerate(problems, 1):
        kind = kind_of(number, problem)
        lines += [f"## {number}. {problem.title} ({kind})", "", problem.text, ""]
        shown = {WORKED: len(problem.steps), FADED: 1}.get(kind, 0)
        if shown:
            lines += [
                f"{place}. {step.do}: {step.result if place <= shown else BLANK}"
                for place, step in enumerate(problem.steps, 1)
            ]
            lines.append("")
    return "\n".join(lines)


def answers(title: str, problems: Sequence[Problem]) -> str:
    """Return the answers as Markdown, with all steps."""
    lines = [f"# {title}: answers", ""]
    for number, problem in enumerate(problems, 1):
        lines += [f"## {number}. {problem.title}: {problem.steps[-1].result}", ""]
        lines += [
            f"{place}. {step.do}: {step.result}" for place, step in enumerate(problem.steps, 1)
        ]
        unit = problem.steps[-1].unit
        wrong = [(Step("", trap.value, unit).result, trap.said) for trap in problem.traps]
        lines += [""] * bool(wrong) + [f"- Not {result}: {said}" for result, said in wrong]
        lines.append("")
    return "\n".join(lines)
