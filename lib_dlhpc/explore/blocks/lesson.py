"""A lesson: guesses that unlock what they are about, checks that answer at once, surprises at the end.

    lesson = Lesson()
    lesson.predict("How many times faster are 256 GPUs than 8?", 28.8, unit="times", then=chart)
    lesson.choose("Which grows with the ranks?", {"the latency of a ring": "Yes: ...", ...})
    lesson.surprises()

Guesses live in the page's kernel and nowhere else.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from html import escape
from typing import Any

import ipywidgets

from lib_dlhpc.errors import SpecError
from lib_dlhpc.explore.blocks.plain_text import Line, Readable, text_of
from lib_dlhpc.spec.units import parse_quantity

CLOSE = 0.2  # a guess within 20 % counts as right
RIGHT, WRONG = "✓", "✗"


@dataclass
class Guess:
    """What the learner expected and what came out, as text."""

    question: str
    guess: str
    result: str
    surprise: float  # factor between the two, at least 1; infinite for a wrong choice


@dataclass
class Lesson:
    """The guesses of one visitor, in the order in which they were made."""

    guesses: list[Guess] = field(default_factory=list)
    _summary: Line = field(default_factory=Line)

    def predict(
        self,
        question: str,
        result: float | Callable[[], float],
        unit: str = "",
        explanation: str = "",
        then: ipywidgets.Widget | None = None,
    ) -> ipywidgets.VBox:
        """Ask for a number; once it is given, show it beside `result` and unlock `then`.

        result: the number, or what computes it when asked. unit: what is shown behind both.
        """
        entry = ipywidgets.Text(placeholder="your guess", layout={"width": "12em"})
        entry.tooltip = question

        def judge(text: str) -> Guess:
            guess = parse_quantity(
                text.strip().removesuffix(unit).strip() or "nothing", "", "guess"
            )
            value = float(result() if callable(result) else result)
            return Guess(question, _shown(guess, unit), _shown(value, unit), _factor(guess, value))

        def answer() -> str:
            return _shown(float(_value(result)), unit)

        return self._ask(question, entry, judge, explanation, then, answer)

    def predict_choice(
        self,
        question: str,
        options: tuple[str, ...],
        result: str | Callable[[], str],
        explanation: str = "",
        then: ipywidgets.Widget | None = None,
    ) -> ipywidgets.VBox:
        """Ask for one of `options`; once it is chosen, show `result` and unlock `then`."""
        entry = ipywidgets.Dropdown(options=["choose", *options], layout={"width": "auto"})

        def judge(text: str) -> Guess:
            if text not in options:
                raise SpecError(f"Choose one of: {', '.join(options)}.")
            value = str(result() if callable(result) else result)
            return Guess(question, text, value, 1.0 if text == value else math.inf)

        return self._ask(
            question, entry, judge, explanation, then, answer=lambda: str(_value(result))
        )

    def choose(self, question: str, answers: Mapping[str, str], right: str) -> ipywidgets.VBox:
        """Ask a check question; each answer has its own feedback, given at once, and may be tried again.

        answers: answer -> what to say to it, the misconception behind a wrong one.
        """
        if right not in answers:
            raise SpecError(f"right = {right!r}: expected one of {', '.join(answers)}.")
        feedback = _feedback()
        buttons = []
        for answer in answers:
            button = ipywidgets.Button(description=answer, layout={"width": "auto"})
            button.on_click(lambda _, a=answer: _tell(feedback, a == right, answers[a]))
            buttons.append(button)
        row = ipywidgets.HBox(buttons, layout={"flex_flow": "row wrap"})
        return Card(
            question, [row, feedback], lambda: [question, *(f"- {answer}" for answer in answers)]
        )

    def compute(
        self, question: str, answer: float, unit: str = "", hint: str = "", tolerance: float = 0.02
    ) -> ipywidgets.VBox:
        """Ask for a number to be worked out; right within `tolerance` (relative), else `hint` and try again."""
        entry = ipywidgets.Text(
            placeholder=f"number{' in ' + unit if unit else ''}", continuous_update=False
        )
        entry.tooltip = question
        feedback = _feedback()

        def judge(_: Any) -> None:
            try:
                given = parse_quantity(entry.value.strip().removesuffix(unit).strip(), "", "answer")
            except SpecError as error:
                _tell(feedback, False, str(error))
                return
            if math.isclose(given, answer, rel_tol=tolerance):
                _tell(feedback, True, f"Yes: {_shown(answer, unit)}.")
            else:
                size = "large" if given > answer else "small"
                _tell(feedback, False, f"Too {size}. {hint}")

        check = ipywidgets.Button(description="Check")
        check.on_click(judge)
        # Its numbers are those of one learner.
        return Card(
            question, [ipywidgets.HBox([entry, check]), feedback], lambda: ["A number to work out."]
        )

    def surprises(self) -> ipywidgets.HTML:
        """Return a table of all guesses against results, the largest surprise first; it fills as guesses come."""
        self._refresh()
        return self._summary

    def _ask(
        self,
        question: str,
        entry: Any,
        judge: Callable[[str], Guess],
        explanation: str,
        then: ipywidgets.Widget | None,
        answer: Callable[[], str],
    ) -> ipywidgets.VBox:
        commit = ipywidgets.Button(description="Commit", tooltip="Your guess stays as it is")
        feedback = _feedback()
        locked = ipywidgets.HTML("<p><em>Locked until you commit a guess.</em></p>")
        below = ipywidgets.VBox([locked] if then is not None else [])

        def committed(_: Any) -> None:
            try:
                guess = judge(entry.value)
            except SpecError as error:
                _tell(feedback, False, str(error))
                return
            entry.disabled = commit.disabled = True
            self.guesses.append(guess)
            self._refresh()
            words = f"You said {guess.guess}; it is {guess.result}. {explanation}"
            _tell(feedback, guess.surprise <= 1 + CLOSE, words)
            below.children = (then,) if then is not None else ()

        commit.on_click(committed)
        return Card(
            question,
            [ipywidgets.HBox([entry, commit]), feedback, below],
            lambda: [question, f"Answer: {answer()}. {explanation}", text_of(then)],
        )

    def _refresh(self) -> None:
        if not self.guesses:
            self._summary.value = "<p>No guesses yet.</p>"
            return
        rows = "".join(
            f"<tr><td>{escape(g.question)}</td><td>{escape(g.guess)}</td><td>{escape(g.result)}</td>"
            f"<td>{_words(g.surprise)}</td></tr>"
            for g in sorted(self.guesses, key=lambda g: -g.surprise)
        )
        self._summary.value = (
            "<table><thead><tr><th>question</th><th>your guess</th><th>result</th><th>off by</th></tr></thead>"
            f"<tbody>{rows}</tbody></table>"
        )


class Card(Readable, ipywidgets.VBox):
    """A question with what belongs to it. lines: what a reader of the notebook sees where no kernel runs."""

    def __init__(self, question: str, parts: list[Any], lines: Callable[[], list[str]]) -> None:
        super().__init__([ipywidgets.HTML(f"<p><b>{escape(question)}</b></p>"), *parts])
        self.add_class("dlhpc-question")
        self._lines = lines

    def plain_text(self) -> str:
        """Return the lines that are not empty."""
        return "\n".join(line.strip() for line in self._lines() if line.strip())


def _value(result: Any) -> Any:
    """Return a result, computed now if it is not there yet; an experiment that comes Later stays unmade."""
    result = getattr(result, "answer", result)
    return result() if callable(result) else result


def _feedback() -> ipywidgets.HTML:
    feedback = ipywidgets.HTML()
    feedback.add_class("dlhpc-feedback")
    return feedback


def _tell(feedback: ipywidgets.HTML, right: bool, words: str) -> None:
    mark = RIGHT if right else WRONG
    feedback.value = f'<p role="status">{mark} {escape(words)}</p>'


def _shown(value: float, unit: str) -> str:
    return f"{value:,.3g} {unit}".strip() if abs(value) < 1e5 else f"{value:,.0f} {unit}".strip()


def _factor(guess: float, value: float) -> float:
    """The factor between two numbers, at least 1; infinite when one is 0 or their signs differ."""
    if guess == value:
        return 1.0
    if guess * value <= 0:
        return math.inf
    return max(guess / value, value / guess)


def _words(surprise: float) -> str:
    if math.isinf(surprise):
        return "another answer"
    return "close" if surprise <= 1 + CLOSE else f"a factor of {surprise:,.3g}"
