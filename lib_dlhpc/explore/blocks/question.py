"""A question on a page: one widget with its entry, its verdict and what is remembered of it.

The browser keeps answers (see static/question.js) and gives them back after a reload; the kernel judges, and writes the
answers of a learner who has joined into their record, from which a page goes on in any browser.
"""

from collections.abc import Callable, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import anywidget
import traitlets
from ipywidgets import Box, VBox

from lib_dlhpc.classroom import recording
from lib_dlhpc.errors import SpecError
from lib_dlhpc.explore.blocks.plain_text import Readable

HERE = Path(__file__).parent
KINDS = ("number", "choice", "check", "step")
LATE = "late"
Judge = Callable[[str], dict[str, Any]]


class Place(NamedTuple):
    """Where a question stands, as records name it. kind: see classroom/entry.py."""

    module: str
    question: str
    kind: str


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
    known = traitlets.List(traitlets.Unicode()).tag(sync=True)  # what of it is not covered
    uncovered = traitlets.Bool().tag(sync=True)  # without an answer, from the browser
    # [serial, answer] from the browser; a third element if it is sent again, see _hear.
    given: traitlets.List = traitlets.List().tag(sync=True)
    heard = traitlets.Int().tag(sync=True)  # serial of the last answer that the kernel is done with
    visitor: traitlets.List = traitlets.List().tag(sync=True)  # [serial, token], from the browser
    verdict: traitlets.Dict = traitlets.Dict().tag(sync=True)

    def __init__(self, kind: str, question: str, judge: Judge, **more: Any) -> None:
        super().__init__(kind=kind, question=question, name=more.pop("name", question), **more)
        self._judge = judge
        self.place = Place("", "", kind)
        self.variant: Callable[[int], tuple[str, Judge]] | None = None  # of a learner's seed
        self.observe(lambda event: self._hear(*event["new"]), "given")
        self.observe(lambda event: self.enter(str(event["new"][1])), "visitor")

    def answer(self, text: str) -> dict[str, Any]:
        """Judge an answer as the browser does, record it, and return the verdict. After a final one nothing changes."""
        if not self.verdict.get("final"):
            said = self._judged(text)
            self.verdict = {**said, **self._recorded(text, said)}
        return self.verdict

    def enter(self, token: str) -> None:
        """Go on where the learner with this token stopped: their variant, their last answer."""
        recording.enter(token)
        try:
            recording.opened(self.place.module)
            self.resume()
        except OSError:
            pass  # the next answer says what cannot be written

    def resume(self) -> None:
        """Show the learner's variant, and judge the answers in their record as if given now: a second miss is one."""
        seed = recording.seed(self.place.module, self.place.question)
        if self.variant and seed is not None and not self.verdict.get("final"):
            self.question, self._judge = self.variant(seed)
        said = self.verdict
        for before in recording.given(self.place.module, self.place.question):
            if not said.get("final"):
                said = self._judged(before.answer)
        self.verdict = said

    def _hear(self, serial: int, text: str, again: bool | str = False) -> None:
        """Answer. again: shown once more after a reload; LATE: it is not known whether a kernel heard it before."""
        if again == LATE:
            again = self._is_last(text)
        if not again:
            self.answer(text)
        elif not self.verdict.get("final"):
            self.verdict = self._judged(text)
        self.heard = serial

    def _is_last(self, text: str) -> bool:
        before = recording.last(self.place.module, self.place.question)
        return before is not None and before.answer == text

    def _judged(self, text: str) -> dict[str, Any]:
        try:
            return self._judge(text)
        except SpecError as error:
            return verdict(False, str(error), understood=False)

    def _recorded(self, text: str, said: Mapping[str, Any]) -> dict[str, Any]:
        """Record an answer; return what changes in the verdict if that fails."""
        if not said.get("understood", True):
            return {}
        about = {key: said[key] for key in ("right", "final", "value", "result") if key in said}
        try:
            recording.record(*self.place, answer=text, asked=self.question, **about)
        except OSError as error:
            return {"words": f"{said['words']} (Not recorded: {error.strerror}.)"}
        return {}

    def __repr__(self) -> str:
        return f"Question({self.question!r})"


def verdict(right: bool | None, words: str, final: bool = False, **more: Any) -> dict[str, Any]:
    """Return what a question shows of an answer.

    right: None is neither. final: no other answer is taken. bars: [label, value, text] of guess and result.
    value, result: the answer as a number, and what is right as text, for the record. understood: false of no answer.
    """
    return {"right": right, "words": words, "final": final, **more}


class Empty(VBox):
    """A place for an experiment that is made when its question is answered, or uncovered without an answer."""

    def __init__(self, make: Callable[[], Any]) -> None:
        super().__init__()
        self._make: Callable[[], Any] | None = make

    def fill(self) -> None:
        """Make the experiment, once."""
        if self._make is not None:
            self.children = (self._make(),)
            self._make = None


class Later:
    """An experiment that is made only when its question is answered: `gives` is what that asks."""

    def __init__(self, make: Callable[[], Any]) -> None:
        self._make = make

    @cached_property
    def box(self) -> Empty:
        """Where it will be."""
        return Empty(self._make)

    def gives(self, answer: Any) -> Callable[[], Any]:
        """Return what gives `answer`, or what it computes, and makes the experiment."""

        def opened() -> Any:
            self.box.fill()
            return answer() if callable(answer) else answer

        opened.answer = answer  # type: ignore[attr-defined]
        return opened


class Card(Readable, VBox):
    """A question and, below it, what it is about: covered until there is a final answer.

    lines: what a reader of the notebook sees where no kernel runs.
    """

    def __init__(
        self, question: Question, lines: Callable[[], list[str]], stage: Any = None
    ) -> None:
        self.question = question
        question.gates = stage is not None
        if isinstance(stage, Empty):
            question.observe(lambda event: stage.fill(), "uncovered")
        self.stage = Box([stage] if stage is not None else [])
        self.stage.add_class("dlhpc-stage")
        self.stage.add_class("covered")
        super().__init__([question, self.stage] if stage is not None else [question])
        self.add_class("dlhpc-card")
        self._lines = lines

    def plain_text(self) -> str:
        """Return the lines that are not empty."""
        return "\n".join(line.strip() for line in self._lines() if line.strip())
