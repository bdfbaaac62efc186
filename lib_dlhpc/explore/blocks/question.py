"""A question on a page: one widget with its entry, its verdict and what the visitor's browser remembers of it.

The browser keeps answers (see static/question.js) and gives them back after a reload; the kernel only judges.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import anywidget
import traitlets
from ipywidgets import Box, VBox

from lib_dlhpc.errors import SpecError
from lib_dlhpc.explore.blocks.plain_text import Readable

HERE = Path(__file__).parent
KINDS = ("number", "choice", "check", "step")


class Question(anywidget.AnyWidget):
    """Asks, hands each answer to `judge`, and shows the verdict.

    kind: "number" (typed), "choice" (one of options, final), "check" (one of options, until it is right) or
    "step" (an instruction with a place for notes and an answer to open).
    judge: answer -> verdict, see verdict(); an empty answer means that the visitor skips the question.
    """

    _esm = HERE / "static" / "question.js"
    _css = HERE / "static" / "question.css"

    name = traitlets.Unicode().tag(sync=True)  # under which the browser keeps the answer
    kind = traitlets.Enum(KINDS).tag(sync=True)
    question = traitlets.Unicode().tag(sync=True)
    unit = traitlets.Unicode().tag(sync=True)
    options = traitlets.List(traitlets.Unicode()).tag(sync=True)
    gates = traitlets.Bool().tag(sync=True)  # whether it covers something
    given: traitlets.List = traitlets.List().tag(sync=True)  # [serial, answer], from the browser
    verdict: traitlets.Dict = traitlets.Dict().tag(sync=True)

    def __init__(
        self, kind: str, question: str, judge: Callable[[str], dict[str, Any]], **more: Any
    ) -> None:
        super().__init__(kind=kind, question=question, name=more.pop("name", question), **more)
        self._judge = judge
        self.observe(lambda event: self.answer(str(event["new"][1])), "given")

    def answer(self, text: str) -> dict[str, Any]:
        """Judge an answer as the browser does, and return the verdict. After a final one nothing changes."""
        if not self.verdict.get("final"):
            try:
                self.verdict = self._judge(text)
            except SpecError as error:
                self.verdict = verdict(False, str(error))
        return self.verdict

    def __repr__(self) -> str:
        return f"Question({self.question!r})"


def verdict(right: bool | None, words: str, final: bool = False, **more: Any) -> dict[str, Any]:
    """Return what a question shows of an answer.

    right: None is neither. final: no other answer is taken. bars: [label, value, text] of guess and result.
    """
    return {"right": right, "words": words, "final": final, **more}


class Card(Readable, VBox):
    """A question and, below it, what it is about: covered until there is a final answer.

    lines: what a reader of the notebook sees where no kernel runs.
    """

    def __init__(
        self, question: Question, lines: Callable[[], list[str]], stage: Any = None
    ) -> None:
        self.question = question
        question.gates = stage is not None
        self.stage = Box([stage] if stage is not None else [])
        self.stage.add_class("dlhpc-stage")
        self.stage.add_class("covered")
        super().__init__([question, self.stage] if stage is not None else [question])
        self.add_class("dlhpc-card")
        self._lines = lines

    def plain_text(self) -> str:
        """Return the lines that are not empty."""
        return "\n".join(line.strip() for line in self._lines() if line.strip())
