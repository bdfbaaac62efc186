"""Slides of what a lesson asks: guesses to predict on, their results, checks.

A title is a topic, and the question is below it: "What share of its step is still bubble?" says nothing by itself. The
topics are in slides.toml; a check whose whole question is short enough is its own title.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from lib_dlhpc.errors import SpecError
from lib_dlhpc.explore.blocks.address import Share
from lib_dlhpc.explore.blocks.figure import Figure
from lib_dlhpc.explore.blocks.lesson import Lesson
from lib_dlhpc.explore.blocks.question import Empty
from lib_dlhpc.explore.slides.diagram import Diagram
from lib_dlhpc.explore.slides.notebook import first, plain, sentences, taken
from lib_dlhpc.explore.slides.slide import ANSWER, CHECK, PREDICT, RESULT, RIGHT, WORDS, Slide
from lib_dlhpc.explore.slides.sources import Titles
from lib_dlhpc.spec.units import with_unit
from lib_dlhpc.teaching.questions import shuffled

LETTERS = "ABCDEFG"
NOTHING = "Nothing measured"  # what a figure without its run says: a slide does not show it
TRY = "On the page, on the projector. Try:"
ASK = "Ask those who were close how they got there, and those who were not what they left out."
TITLE = 125  # characters of a question that is a title, at most


def figures(widget: Any) -> Iterator[Figure]:
    """Yield the figures of a page's part that are drawn, in order."""
    if isinstance(widget, Figure):
        if widget.summary and not widget.summary.startswith(NOTHING):
            yield widget
        return
    for child in getattr(widget, "children", ()):
        yield from figures(child)


def made(widget: Any) -> Any:
    """Return an experiment; one that is made later, or computed in the background, with all that it shows."""
    if isinstance(widget, Empty):
        widget.fill()
        (widget,) = widget.children
        widget.complete()
    return widget


def predicted(
    lesson: Lesson, name: str, titles: Titles, heading: str, aside: str
) -> Iterator[Slide]:
    """Yield a slide to predict on, with its figure, and the figure uncovered; the last has in its notes what to try."""
    _, uncovered = lesson.outcomes[name]
    widget: Any = made(uncovered()) if uncovered else None
    for control, value in titles.settings.get(name, {}).items():
        widget.controls[control].value = value
    drawn = list(figures(widget))
    figure = drawn[titles.figures.get(name, 0)] if drawn else None
    reveals = figure is not None and name in titles.shown
    try_it = _tried(lesson, name)
    asked = _guess(lesson, name, titles, "" if reveals or name in titles.answered else try_it)
    source = f"Figure: {figure.title}" if figure and not reveals else ""
    yield asked._replace(
        section=heading,
        figure=figure,
        covered=reveals,
        source=source,
        aside=() if figure else _beside(aside, asked.lines[0]),
        notes="\n".join(filter(None, (asked.notes, "" if figure else aside))),
    )
    if figure and reveals:
        look = "" if name in titles.figures else getattr(widget, "look", "")
        own = _shown(lesson, name, titles, figure, look, standing(widget), try_it)
        yield own._replace(section=heading, live=next(shares(widget), ""))


def shares(widget: Any) -> Iterator[str]:
    """Yield the fragments of an address that show the figures of a page's part as they stand."""
    if isinstance(widget, Share):
        yield widget.link
    for child in getattr(widget, "children", ()):
        yield from shares(child)


def standing(widget: Any) -> str:
    """Return where the controls of an experiment stand, so that its figure can be shown live, or nothing."""
    controls = getattr(widget, "controls", {}).values()
    stands = [
        f"{each.description} {each.label or each.value}"
        for each in controls
        if hasattr(each, "label")
    ]
    return f"Live, set: {', '.join(stands)}." if stands else ""


def _guess(lesson: Lesson, name: str, titles: Titles, try_it: str) -> Slide:
    """Return a guess below its topic."""
    text = lesson.texts[name]
    options = [
        f"{letter}. {lesson.filled(each)}"
        for letter, each in zip(LETTERS, text.get("options", ()), strict=False)
    ]
    number = [f"Write down a number ({text['unit']})."] if text.get("unit") else []
    because = lesson.filled(text.get("because", ""))
    said = f"It is {lesson.result(name)}. {because}"
    notes = ["Everyone commits before anyone speaks.", said, try_it]
    if name in titles.brief:
        notes.append(f"In full: {lesson.filled(text['guess'])}")
    lines = (lesson.filled(titles.brief.get(name, text["guess"])), *(options or number))
    vote = f"{lesson.module}/{name}"
    return Slide(_topic(titles, name), lines, "\n".join(notes).strip(), kind=PREDICT, vote=vote)


def _beside(aside: str, question: str) -> tuple[str, ...]:
    """Return what stands beside a question: the sentences for which it leaves room."""
    return tuple(filter(None, taken(sentences(aside), WORDS - len(question.split()))))


def _shown(
    lesson: Lesson, name: str, titles: Titles, figure: Figure, look: str, standing: str, try_it: str
) -> Slide:
    """Return the figure of a guess with what came out, and why."""
    because = lesson.filled(lesson.texts[name].get("because", ""))
    said = " ".join(_result(lesson, name, titles))
    look = look.removesuffix("Press play.").strip()  # a slide does not move
    notes = (f"Look for {look}" if look else "", figure.summary, because, standing, try_it)
    source = f"Figure: {figure.title} · Computed with lib_dlhpc"
    return Slide(
        titles.shown[name],
        (said,),
        "\n".join(filter(None, notes)),
        figure,
        kind=RESULT,
        source=source,
    )


def _result(lesson: Lesson, name: str, titles: Titles) -> tuple[str, str]:
    """Return what came out, with the name of the quantity, and why."""
    because = titles.because.get(name, lesson.texts[name].get("because", ""))
    said = f"{_topic(titles, name)}: {lesson.result(name)}."
    return said, first(lesson.filled(because), WORDS - len(said.split()))


def answered(
    lesson: Lesson, name: str, titles: Titles, drawn: Diagram | None, heading: str
) -> Slide:
    """Return the answer to a guess, beside a diagram of it if there is one; its notes have what to try."""
    said = "\n".join(filter(None, (ASK, _tried(lesson, name))))
    own = Slide(titles.answered[name], _result(lesson, name, titles), said, kind=ANSWER)
    return own._replace(section=heading, diagram=drawn)


def _tried(lesson: Lesson, name: str) -> str:
    """Return what to try after a guess, with the answers, or nothing."""
    names = list(lesson.texts)
    following = (*names[names.index(name) + 1 :], "")[0]
    steps = lesson.texts[following].get("steps", ()) if following else ()
    return f"{TRY}\n{to_try(lesson, steps)}" if steps else ""


def to_try(lesson: Lesson, steps: Sequence[Sequence[str]]) -> str:
    """Return things to try, numbered, each with what is seen."""
    return "\n".join(
        f"{number}. {plain(lesson.filled(do))} {plain(lesson.filled(see))}"
        for number, (do, see) in enumerate(steps, 1)
    )


def checks(lesson: Lesson, titles: Titles, names: Iterable[str]) -> Iterator[Slide]:
    """Yield these checks of a page."""
    yield from (_check(lesson, name, titles) for name in names)


def _check(lesson: Lesson, name: str, titles: Titles) -> Slide:
    """Return a check below its topic, or with its question as its title."""
    text, vote = lesson.texts[name], f"{lesson.module}/{name}"
    if "compute" in text:
        own, answer, _ = lesson.draws[name](np.random.default_rng(0))
        title, given = _titled(titles, name, text["compute"].format(**own))
        right = with_unit(f"{answer:.3g}", text.get("unit", ""))
        said = f"It is {right}. {text.get('hint', '')}"
        unit = f" ({text['unit']})" if text.get("unit") else ""
        given += (f"Write down a number{unit}.", RIGHT + right)
        return Slide(title, given, said, kind=CHECK, vote=vote)
    title, given = _titled(titles, name, lesson.filled(text["check"]))
    feedback = {lesson.filled(answer): lesson.filled(said) for answer, said in text["answers"]}
    options = shuffled(list(feedback), lesson.filled(text["check"]))
    answers = [(answer, feedback[answer]) for answer in options]
    lines = [f"{letter}. {answer}" for letter, (answer, _) in zip(LETTERS, answers, strict=False)]
    notes = [f"{letter}. {said}" for letter, (_, said) in zip(LETTERS, answers, strict=False)]
    again = "Vote, discuss with a neighbor, vote again."
    right = lesson.filled(text["right"])
    said = "\n".join([again, RIGHT + right, *notes])
    lines.append(RIGHT + LETTERS[options.index(right)])
    return Slide(title, (*given, *lines), said, kind=CHECK, vote=vote)


def _topic(titles: Titles, name: str) -> str:
    """Return the title of a question; raises SpecError where slides.toml has none."""
    if name not in titles.asked:
        raise SpecError(f"slides.toml has no title for {name!r} in [asked].")
    return titles.asked[name]


def _titled(titles: Titles, name: str, question: str) -> tuple[str, tuple[str, ...]]:
    """Return the title of a check and what is below it: nothing where the question is short."""
    if name in titles.asked or len(question) > TITLE:
        return _topic(titles, name), (question,)
    return question, ()
