"""A lesson: guesses that uncover what they are about, checks that answer at once, surprises at the end.

    lesson = Lesson()
    lesson.predict("How many times faster are 256 GPUs than 8?", 28.8, unit="times", then=chart)
    lesson.choose("Which grows with the ranks?", {"the latency of a ring": "Yes: ...", ...})
    lesson.steps(("Raise the batch until ...", "Memory: the activations ..."), ...)
    lesson.surprises()

Answers are kept in the visitor's browser (see question.py).
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from html import escape
from typing import Any

import ipywidgets

from lib_dlhpc.errors import SpecError
from lib_dlhpc.explore.blocks.plain_text import Column, Line, text_of
from lib_dlhpc.explore.blocks.question import Card, Question, verdict
from lib_dlhpc.spec.units import parse_quantity

CLOSE = 0.2  # a guess within 20 % counts as right


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
    ) -> Card:
        """Ask for a number; once it is given, or skipped, show it beside `result` and uncover `then`.

        result: the number, or what computes it when asked. unit: what is shown behind both.
        """

        def judge(text: str) -> dict[str, Any]:
            guess = _number(text, unit, "guess") if text else None
            value = float(result() if callable(result) else result)
            right = _shown(value, unit)
            if guess is None:
                return verdict(None, f"It is {right}. {explanation}", final=True)
            taken = Guess(question, _shown(guess, unit), right, _factor(guess, value))
            bars = [["your guess", guess, taken.guess], ["result", value, right]]
            return self._taken(taken, explanation, text, bars=bars)

        return self._card("number", question, judge, explanation, then, result, unit)

    def predict_choice(
        self,
        question: str,
        options: tuple[str, ...],
        result: str | Callable[[], str],
        explanation: str = "",
        then: ipywidgets.Widget | None = None,
    ) -> Card:
        """Ask for one of `options`; once it is chosen, or skipped, show `result` and uncover `then`."""

        def judge(text: str) -> dict[str, Any]:
            if text and text not in options:
                raise SpecError(f"Choose one of: {', '.join(options)}.")
            value = str(result() if callable(result) else result)
            if not text:
                return verdict(None, f"It is {value}. {explanation}", final=True)
            off = 1.0 if text == value else math.inf
            return self._taken(Guess(question, text, value, off), explanation, text)

        return self._card("choice", question, judge, explanation, then, result, options=options)

    def choose(self, question: str, answers: Mapping[str, str], right: str) -> Card:
        """Ask a check question; each answer has its own feedback, given at once, and may be tried again.

        answers: answer -> what to say to it, the misconception behind a wrong one.
        """
        if right not in answers:
            raise SpecError(f"right = {right!r}: expected one of {', '.join(answers)}.")

        def judge(text: str) -> dict[str, Any]:
            if text not in answers:
                raise SpecError(f"Choose one of: {', '.join(answers)}.")
            return verdict(text == right, answers[text], final=text == right)

        asked = Question("check", question, judge, options=list(answers))
        return Card(asked, lambda: [question, *(f"- {answer}" for answer in answers)])

    def compute(
        self, question: str, answer: float, unit: str = "", hint: str = "", tolerance: float = 0.02
    ) -> Card:
        """Ask for a number to be worked out; right within `tolerance` (relative), else `hint` and try again."""

        def judge(text: str) -> dict[str, Any]:
            if not text:
                return verdict(None, f"It is {_shown(answer, unit)}. {hint}", final=True)
            given = _number(text, unit, "answer")
            if math.isclose(given, answer, rel_tol=tolerance):
                return verdict(True, f"Yes: {_shown(answer, unit)}.", final=True, answer=text)
            size = "large" if given > answer else "small"
            return verdict(False, f"Too {size}. {hint}")

        asked = Question("number", question, judge, unit=unit)
        # Its numbers are those of one learner.
        return Card(asked, lambda: ["A number to work out."])

    def steps(self, *steps: tuple[str, str | Callable[[], str]]) -> Column:
        """List things to do with the experiment above: pairs of an instruction and the answer to compare with."""
        return Column([self._step(*step) for step in steps])

    def _step(self, instruction: str, answer: str | Callable[[], str]) -> Card:
        def judge(text: str) -> dict[str, Any]:
            return verdict(None, str(_value(answer)), final=True, answer=text.strip("-"))

        asked = Question("step", instruction, judge)
        return Card(asked, lambda: [f"- {instruction}", f"  {_value(answer)}"])

    def surprises(self) -> ipywidgets.HTML:
        """Return a table of all guesses against results, the largest surprise first; it fills as guesses come."""
        self._refresh()
        return self._summary

    def _taken(self, guess: Guess, explanation: str, text: str, **more: Any) -> dict[str, Any]:
        self.guesses.append(guess)
        self._refresh()
        words = f"You said {guess.guess}; it is {guess.result}. {explanation}"
        return verdict(guess.surprise <= 1 + CLOSE, words, final=True, answer=text, **more)

    def _card(
        self,
        kind: str,
        question: str,
        judge: Callable[[str], dict[str, Any]],
        explanation: str,
        then: ipywidgets.Widget | None,
        result: Any,
        unit: str = "",
        options: tuple[str, ...] = (),
    ) -> Card:
        def lines() -> list[str]:
            value = _value(result)
            answer = value if isinstance(value, str) else _shown(float(value), unit)
            return [question, f"Answer: {answer}. {explanation}", text_of(then) if then else ""]

        asked = Question(kind, question, judge, unit=unit, options=list(options))
        return Card(asked, lines, then)

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


def _number(text: str, unit: str, what: str) -> float:
    return float(parse_quantity(text.strip().removesuffix(unit).strip() or "nothing", "", what))


def _value(result: Any) -> Any:
    """Return a result, computed now if it is not there yet; an experiment that comes Later stays unmade."""
    result = getattr(result, "answer", result)
    return result() if callable(result) else result


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
