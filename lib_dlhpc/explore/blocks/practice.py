"""Problems on a page: one solved, one begun, the others to work out; or so for each of several topics.

The module's problems.py computes each answer. They are read after a click, so a page costs nothing before it.
"""

from collections.abc import Callable, Sequence
from html import escape
from importlib import import_module
from typing import Any

import ipywidgets

from lib_dlhpc.explore.blocks.plain_text import Column, Readable
from lib_dlhpc.explore.blocks.question import Card
from lib_dlhpc.teaching.problems import FADED, OWN, WORKED, Problem, kind_of

ABOUT = "Problems by hand: one solved, one begun, the others to work out."
Ask = Callable[..., Card]  # Lesson.compute


class Practice(Readable, ipywidgets.VBox):
    """A button that shows the problems of a module, a folder in explore/. compute: asks for a number."""

    def __init__(self, module: str, compute: Ask) -> None:
        self.module, self.compute = module, compute
        self.button = ipywidgets.Button(description="Show the problems", layout={"width": "auto"})
        self.button.on_click(lambda _: self.show())
        super().__init__([ipywidgets.HTML(f"<p>{ABOUT}</p>"), self.button])
        self.add_class("dlhpc-practice")

    def plain_text(self) -> str:
        """Return what they are; the problems themselves come after a click."""
        return ABOUT

    def show(self) -> None:
        """Read the problems and show them in place of the button."""
        problems = import_module(f"lib_dlhpc.explore.{self.module}.problems").PROBLEMS
        self.children = [self._shown(number, each) for number, each in enumerate(problems, 1)]

    def _shown(self, number: int, problem: Problem) -> ipywidgets.Widget:
        """Return a problem with what is solved of it, and places for the rest."""
        kind = kind_of(number, problem)
        head = heading(number, kind, problem)
        if kind == WORKED:
            return ipywidgets.HTML(head + listed(problem))
        if kind == FADED:
            rest = range(1, len(problem.steps))
            cards = [self._step(number, problem, place) for place in rest]
            return Column([ipywidgets.HTML(head + listed(problem, 1)), *cards])
        return Column([ipywidgets.HTML(head), self._whole(number, problem)])

    def _step(self, number: int, problem: Problem, place: int) -> Card:
        step = problem.steps[place]
        asked = f"{place + 1}. {step.do}"
        return self._placed(f"problems.{number}.{place + 1}", asked, step.value, step.unit)

    def _whole(self, number: int, problem: Problem) -> Card:
        *before, last = problem.steps
        hint = "By steps: " + "; ".join(step.do for step in problem.steps) + "."
        early = [
            (step.value, f'That is not the end yet: it answers "{step.do}". Go on from there.')
            for step in before
            if step.unit == last.unit and step.value not in [trap.value for trap in problem.traps]
        ]
        asked = (problem.text, last.value, last.unit, hint, [*problem.traps, *early])
        return self._placed(f"problems.{number}", *asked)

    def _placed(self, name: str, *asked: Any) -> Card:
        card = self.compute(*asked)
        card.question.place = card.question.place._replace(question=name)
        return card


def heading(number: int, kind: str, problem: Problem) -> str:
    """Return title and text of a problem as HTML; the text of one to work out stands beside its answer."""
    title = f"<h4>{number}. {escape(problem.title)} ({escape(kind)})</h4>"
    return title if kind == OWN else f"{title}<p>{escape(problem.text)}</p>"


def listed(problem: Problem, first: int | None = None) -> str:
    """Return its steps with their results as HTML, or the first of them."""
    steps: Sequence[Any] = problem.steps[:first]
    items = "".join(f"<li>{escape(step.do)}: <b>{escape(step.result)}</b></li>" for step in steps)
    return f"<ol>{items}</ol>"
