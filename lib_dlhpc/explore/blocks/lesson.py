"""A lesson: guesses that uncover what they are about, checks that answer at once, surprises at the end.

What a module asks is in a file beside its package's questions.py, lesson.toml, which names what is computed in braces:

    [exposed]
    guess = "256 GPUs: backward takes {backward}. How much of the allreduce is exposed?"     # a number, or one of
    unit = "ms"                                                                              # options = [...]
    because = "The last bucket is complete when backward ends."
    known = ["forward", "backward"]         # marks, or data sets, of the figure that the question gives away

    [try_buckets]
    steps = [["Make the buckets smaller.", "At 4 MB {exposed_4mb} are exposed."]]            # do this, see that

    [overlap]
    check = "How much of it is hidden?"                                                      # until it is right
    answers = [["All of it", "The last bucket is ready when backward ends."], ["Most of it", "Yes."]]
    right = "Most of it"

    [efficiency]
    compute = "A step computes for {compute} ms. What is the efficiency?"                    # each learner another
    unit = "%"
    hint = "Divide by the sum."                                                              # on the second miss
    [efficiency.mistakes]
    all_exposed = "Only what is not hidden counts."                                          # to a number of the draw

    [earlier]
    recall = ["one_step.launch"]                                                             # a check of another module

    [published]
    rows = [["goyal17-r50-1h", "90 epochs on 256 GPUs", "{:.3g} min"]]                       # a result, beside ours
    families = ["goyal17"]                                                                   # and heading = "..."

    ask = Lesson.read(__file__, outcomes={"exposed": (result, one_step)}, numbers={...}).ask
    ask("exposed")         and ask("problems"), ask("surprises")

Answers are kept in the visitor's browser, and in the record of a learner who has joined (see question.py).
"""

import math
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from html import escape
from pathlib import Path
from string import Formatter
from typing import Any

import ipywidgets
import numpy as np

from lib_dlhpc.errors import SpecError
from lib_dlhpc.explore.blocks.numeric import Drawn, Numeric, factor_between, number, off_by, shown
from lib_dlhpc.explore.blocks.panels import wide_html
from lib_dlhpc.explore.blocks.plain_text import Column, Line, text_of
from lib_dlhpc.explore.blocks.practice import Practice
from lib_dlhpc.explore.blocks.published import published_table
from lib_dlhpc.explore.blocks.question import Card, Judge, Place, Question, verdict
from lib_dlhpc.labs import attempts
from lib_dlhpc.teaching.questions import shuffled

CLOSE = 0.2  # a guess within 20% counts as right
MODULES = Path(__file__).parents[1]
Draw = Callable[[np.random.Generator], Drawn]
Outcome = tuple[Callable[[], Any], Callable[[], Any] | None]


@dataclass
class Guess:
    """What the learner expected and what came out, as text."""

    question: str
    guess: str
    result: str
    surprise: float  # factor between the two, at least 1; infinite for a wrong choice


@dataclass
class Lesson:
    """The guesses of one visitor, in the order in which they were made.

    module: the name of its package, in a lab that of its folder, as records have it.
    texts: the tables of lesson.toml. By their names: outcomes, what a guess is about and what it uncovers, if anything;
    draws, from a generator of random numbers to the numbers and the answer of what each learner computes, and by the
    names of mistakes the wrong numbers to which they lead; tables.
    numbers: what stands in braces, a value or what computes it.
    """

    texts: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    outcomes: Mapping[str, Outcome] = field(default_factory=dict)
    numbers: Mapping[str, Any] = field(default_factory=dict)
    draws: Mapping[str, Draw] = field(default_factory=dict)
    tables: Mapping[str, Callable[[], Any]] = field(default_factory=dict)
    guesses: list[Guess] = field(default_factory=list)
    module: str = field(default_factory=attempts.lab_here)
    _summary: Line | None = None  # none before it is asked for: a widget needs a kernel

    @classmethod
    def read(cls, file: str, **parts: Any) -> "Lesson":
        """Return the lesson of the lesson.toml beside a file."""
        path = Path(file).with_name("lesson.toml")
        parts["module"] = path.parent.name
        texts = tomllib.loads(path.read_text(encoding="utf-8"))
        rows = {name: texts.pop(name) for name in list(texts) if "rows" in texts[name]}
        tables = {name: partial(published_table, **text) for name, text in rows.items()}
        return cls(texts, **{**parts, "tables": tables | parts.get("tables", {})})

    @property
    def names(self) -> list[str]:
        """What can be asked for, in order."""
        return [*self.texts, *self.tables, "problems", "surprises"]

    def ask(self, name: str, seed: int | None = None) -> Any:
        """Return the question, the list of things to try, or the table of that name.

        seed: of the numbers that each learner has of their own. Raises SpecError, naming the legal ones.
        """
        if name == "surprises":
            return self.surprises()
        if name == "problems":
            return Practice(self.module, self.compute)
        if name in self.tables:
            return self.tables[name]()
        if name not in self.texts:
            raise SpecError(f"Nothing is called {name!r}. There are: {', '.join(self.names)}.")
        text = self.texts[name]
        if "steps" in text:
            pairs = (
                (self.filled(do), lambda see=see: self.filled(see)) for do, see in text["steps"]
            )
            listed = self.steps(*pairs)
            for number, step in enumerate(listed.children, 1):
                step.question.place = Place(self.module, f"{name}.{number}", "step")
            return listed
        if "recall" in text:
            return Column([self._recalled(name, each) for each in text["recall"]])
        card = self._asked(name, text, seed)
        card.question.place = card.question.place._replace(question=name)
        return card

    def _asked(self, name: str, text: Mapping[str, Any], seed: int | None) -> Card:
        """Return the card of a table of lesson.toml."""
        if "compute" in text:
            own = self._drawn(name, text, seed)
            card = self._computed(own)

            def variant(seed: int) -> tuple[str, Judge]:
                own = self._drawn(name, text, seed)
                return own.question, own

            card.question.variant = None if seed is not None else variant
            return card
        if "check" in text:
            answers = {self.filled(answer): self.filled(said) for answer, said in text["answers"]}
            return self.choose(self.filled(text["check"]), answers, self.filled(text["right"]))
        result, uncovered = self.outcomes[name]
        figure = uncovered() if uncovered else None
        asked, because = self.filled(text["guess"]), self.filled(text.get("because", ""))
        if "options" in text:
            options = tuple(map(self.filled, text["options"]))
            card = self.predict_choice(asked, options, result, because, figure)
        else:
            card = self.predict(asked, result, text.get("unit", ""), because, figure)
        card.question.known = [self.filled(each) for each in text.get("known", ())]
        return card

    def _recalled(self, name: str, check: str) -> Card:
        """Return a check of an earlier module, with a record of its own here."""
        text = check_of(check)
        card = self.choose(text["check"], dict(text["answers"]), text["right"])
        card.question.place = card.question.place._replace(question=f"{name}.{check}")
        return card

    def filled(self, text: str) -> str:
        """Return a text with its numbers."""
        names = {name for _, name, _, _ in Formatter().parse(text) if name}
        return text.format(**{name: _value(self.numbers[name]) for name in names})

    def result(self, name: str) -> str:
        """Return what a guess is about, as the page shows it."""
        value = _value(self.outcomes[name][0])
        return (
            value
            if isinstance(value, str)
            else shown(float(value), self.texts[name].get("unit", ""))
        )

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
            guess = number(text, unit) if text else None
            value = float(result() if callable(result) else result)
            right = shown(value, unit)
            if guess is None:
                return verdict(None, f"It is {right}. {explanation}", final=True)
            taken = Guess(question, shown(guess, unit), right, factor_between(guess, value))
            bars = [["your guess", guess, taken.guess], ["result", value, right]]
            words = " ".join(filter(None, (off_by(guess, value, unit), explanation)))
            return self._taken(taken, words, text, bars=bars, value=guess)

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

        They are shown in an order of the question's own: a place tells nothing of what is right.

        answers: answer -> what to say to it, the misconception behind a wrong one.
        """
        if right not in answers:
            raise SpecError(f"right = {right!r}: expected one of {', '.join(answers)}.")

        def judge(text: str) -> dict[str, Any]:
            if text not in answers:
                raise SpecError(f"Choose one of: {', '.join(answers)}.")
            return verdict(text == right, answers[text], final=text == right, answer=text)

        options = shuffled(list(answers), question)
        asked = self._placed(Question("check", question, judge, options=options), "check")
        return Card(asked, lambda: [question, *(f"- {answer}" for answer in options)])

    def compute(
        self,
        question: str,
        answer: float,
        unit: str = "",
        hint: str = "",
        mistakes: Sequence[tuple[float, str]] = (),
    ) -> Card:
        """Ask for a number to be worked out; a wrong one gets its mistake's sentence, a second one the hint, too."""
        return self._computed(Numeric(question, answer, unit, hint, mistakes))

    def _computed(self, judge: Numeric) -> Card:
        asked = self._placed(Question("number", judge.question, judge, unit=judge.unit), "compute")
        # Its numbers are those of one learner.
        return Card(asked, lambda: ["A number to work out."])

    def _drawn(self, name: str, text: Mapping[str, Any], seed: int | None) -> Numeric:
        """Return the judge of a question with numbers of one learner."""
        own, answer, wrong = self.draws[name](np.random.default_rng(seed))
        said = text.get("mistakes", {})
        mistakes = [(value, said[mistake].format(**own)) for mistake, value in wrong.items()]
        unit, hint = text.get("unit", ""), text.get("hint", "")
        asked, hint = text["compute"].format(**own), hint.format(**own)
        return Numeric(asked, answer, unit, hint, mistakes)

    def steps(self, *steps: tuple[str, str | Callable[[], str]]) -> Column:
        """List things to do with the experiment above: pairs of an instruction and the answer to compare with."""
        return Column([self._step(*step) for step in steps])

    def _step(self, instruction: str, answer: str | Callable[[], str]) -> Card:
        def judge(text: str) -> dict[str, Any]:
            return verdict(None, str(_value(answer)), final=True, answer=text.strip("-"))

        asked = self._placed(Question("step", instruction, judge), "step")
        return Card(asked, lambda: [f"- {instruction}", f"  {_value(answer)}"])

    def surprises(self) -> ipywidgets.HTML:
        """Return a table of all guesses against results, the largest surprise first; it fills as guesses come."""
        self._summary = self._summary or Line()
        self._refresh()
        return self._summary

    def _taken(self, guess: Guess, explanation: str, text: str, **more: Any) -> dict[str, Any]:
        self.guesses.append(guess)
        self._refresh()
        words = f"You said {guess.guess}; it is {guess.result}. {explanation}"
        right = guess.surprise <= 1 + CLOSE
        return verdict(right, words, final=True, answer=text, result=guess.result, **more)

    def _placed(self, question: Question, kind: str) -> Question:
        """Say where a question stands; one without a name is known by how it begins."""
        question.place = Place(self.module, question.question[:80], kind)
        return question

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
            answer = value if isinstance(value, str) else shown(float(value), unit)
            return [question, f"Answer: {answer}. {explanation}", text_of(then) if then else ""]

        asked = Question(kind, question, judge, unit=unit, options=list(options))
        return Card(self._placed(asked, "choice" if options else "guess"), lines, then)

    def _refresh(self) -> None:
        if self._summary is None:
            return
        if not self.guesses:
            self._summary.value = "<p>No guesses yet.</p>"
            return
        rows = "".join(
            f"<tr><td>{escape(g.question)}</td><td>{escape(g.guess)}</td><td>{escape(g.result)}</td>"
            f"<td>{_words(g.surprise)}</td></tr>"
            for g in sorted(self.guesses, key=lambda g: -g.surprise)
        )
        table = (
            "<table><thead><tr><th>question</th><th>your guess</th><th>result</th><th>off by</th></tr></thead>"
            f"<tbody>{rows}</tbody></table>"
        )
        self._summary.value = wide_html(table, "Guesses and results")


def check_of(check: str) -> dict[str, Any]:
    """Return the table of a check of any module, "one_step.launch". It has no numbers: its module stays unloaded."""
    module, name = check.split(".")
    path = MODULES / module / "lesson.toml"
    return dict(tomllib.loads(path.read_text(encoding="utf-8"))[name])


def _value(result: Any) -> Any:
    """Return a result, computed now if it is not there yet; an experiment that comes Later stays unmade."""
    result = getattr(result, "answer", result)
    return result() if callable(result) else result


def _words(surprise: float) -> str:
    if math.isinf(surprise):
        return "another answer"
    return "close" if surprise <= 1 + CLOSE else f"a factor of {surprise:,.3g}"
