"""The slides of a module: objectives, guesses, figures, things to try, derivations, checks, summary, and what to say.

Only derivations are written for slides: a deck is as new as the module's lesson.toml, its figures, its notebook and
its instructor notes, and its numbers are computed when it is made.
"""

import json
import re
from collections.abc import Iterator, Sequence
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from lib_dlhpc.errors import SpecError
from lib_dlhpc.explore.blocks.figure import Figure
from lib_dlhpc.explore.blocks.lesson import Lesson, check_of
from lib_dlhpc.explore.course import Module
from lib_dlhpc.explore.slides.derivation import Derivation
from lib_dlhpc.explore.slides.tex import readable, spoken
from lib_dlhpc.teaching.questions import shuffled

LETTERS = "ABCDEFG"
QUESTIONS = re.compile(r"from (lib_dlhpc\.explore\.\w+)\.questions import ask")
MOST, READING = 5, 6  # things to try of a slide, the others are in its notes; of the list


class Slide(NamedTuple):
    """A slide: its title, its lines, what to say, and the figure, or the formulas as TeX, that it shows, if any.

    stepwise: whether each formula stands beside one line, its reason, and the lines left over below them.
    """

    title: str
    lines: tuple[str, ...] = ()
    notes: str = ""
    figure: Figure | None = None
    formulas: tuple[str, ...] = ()
    stepwise: bool = False


def deck(module: Module, repository: Path) -> list[Slide]:
    """Return the slides of a module. repository: the folder with modules/ and instructor_notes/."""
    text = notebook_text(repository / "modules" / module.file)
    notes = (repository / "instructor_notes" / f"{module.name}.md").read_text("utf-8")
    lesson = lesson_of(text)
    return [
        *_opening(module, text, notes, lesson),
        *_experiments(lesson),
        _formula(text),
        *map(_derived, derivations(text)),
        *_checks(lesson),
        *_closing(text, notes),
    ]


def notebook_text(path: Path) -> str:
    """Return what the cells of a notebook say."""
    return "\n\n".join(
        "".join(cell["source"]) for cell in json.loads(path.read_text("utf-8"))["cells"]
    )


def lesson_of(text: str) -> Lesson:
    """Return the lesson that a notebook asks for; raises SpecError where it asks for none."""
    lesson: Lesson = import_module(f"{_folder(text)}.questions").lesson
    return lesson


def derivations(text: str) -> Sequence[Derivation]:
    """Return the derivations of a notebook's module, or none; raises SpecError where it asks for no lesson."""
    name = f"{_folder(text)}.derivation"
    found: Sequence[Derivation] = import_module(name).DERIVATIONS if find_spec(name) else ()
    return found


def plain(text: str) -> str:
    """Return Markdown as text: links without their addresses, no marks of emphasis."""
    text = re.sub(r"\[([^\]]+)\]\((?:[^()]|\([^()]*\))*\)", r"\1", text)
    return re.sub(r"[*`]", "", re.sub(r"\s+", " ", spoken(text))).strip()


def figures(widget: Any) -> Iterator[Figure]:
    """Yield the figures of a page's part that are drawn, in order."""
    if isinstance(widget, Figure):
        if widget.summary:
            yield widget
        return
    for child in getattr(widget, "children", ()):
        yield from figures(child)


def misconceptions(notes: str) -> list[tuple[str, str]]:
    """Return the misconceptions of instructor notes, each with what exposes it."""
    section = notes.split("## Misconceptions", 1)[1].split("\n## ", 1)[0]
    found = re.findall(r"^- \*(.+?)\*(.*?)(?=^- |\Z)", section, re.M | re.S)
    return [(plain(name), plain(rest).lstrip(" .,")) for name, rest in found]


def _opening(module: Module, text: str, notes: str, lesson: Lesson) -> Iterator[Slide]:
    timing = "\n".join(re.findall(r"^\| \d.*", notes, re.M))
    said = plain(notes.split("\n\n")[1])
    yield Slide(
        f"{module.number} {module.title}",
        (module.question, f"{module.minutes} minutes"),
        f"{said}\n\n{timing}",
    )
    objectives = _after(text, "You will be able to").split(";")
    yield Slide(
        "You will be able to",
        tuple(_sentence(each) for each in objectives),
        _after(text, "You need"),
    )
    if asked := list(_retrieval(lesson)):
        answers = ["Two minutes, in pairs, without notes.", *(answer for _, answer in asked)]
        yield Slide("From earlier modules", tuple(each for each, _ in asked), "\n".join(answers))


def _retrieval(lesson: Lesson) -> Iterator[tuple[str, str]]:
    """Yield the checks of earlier modules that the page asks again, with their answers."""
    for check in lesson.texts.get("earlier", {}).get("recall", ()):
        text = check_of(check)
        yield text["check"], text["right"]


def _experiments(lesson: Lesson) -> Iterator[Slide]:
    """Yield for each guess a slide to predict on, its figure, and what to try; of live runs what to try is a note."""
    names, number, tries, drawn = list(lesson.texts), 0, 0, list[Figure]()
    for name, following in zip(names, [*names[1:], ""], strict=True):
        text = lesson.texts[name]
        if "guess" in text:
            number += 1
            _, uncovered = lesson.outcomes[name]
            widget = uncovered() if uncovered else None
            drawn = list(figures(widget))[:1]
            steps = lesson.texts[following].get("steps", ()) if following and not drawn else ()
            yield _guess(lesson, name, number, steps)
            yield from (
                _shown(lesson, name, figure, getattr(widget, "look", "")) for figure in drawn
            )
        elif "steps" in text and drawn:
            tries, lines = tries + 1, tuple(do for do, _ in text["steps"][:MOST])
            yield Slide(f"Try it {tries}", lines, _answers(lesson, text["steps"]))


def _guess(lesson: Lesson, name: str, number: int, steps: Sequence[Sequence[str]]) -> Slide:
    text = lesson.texts[name]
    options = [
        f"{letter}. {lesson.filled(each)}"
        for letter, each in zip(LETTERS, text.get("options", ()), strict=False)
    ]
    asked = f"Write down a number ({text['unit']})." if text.get("unit") else ""
    because = lesson.filled(text.get("because", ""))
    notes = ["Everyone commits before anyone speaks.", f"It is {lesson.result(name)}. {because}"]
    if steps:
        notes += ["On the page, on the projector. Try:", _answers(lesson, steps)]
    lines = [lesson.filled(text["guess"]), *(options or [asked])]
    return Slide(f"Predict {number}", tuple(line for line in lines if line), "\n".join(notes))


def _shown(lesson: Lesson, name: str, figure: Figure, look: str) -> Slide:
    found = re.fullmatch(r"([^()]+) \(([^()]+)\)", figure.title)
    title, caption = found.groups() if found else (figure.title, "")
    because = lesson.filled(lesson.texts[name].get("because", ""))
    lines = [_sentence(caption) if caption else "", f"Look for {look}" if look else ""]
    return Slide(title, tuple(filter(None, lines)), f"{figure.summary}\n{because}".strip(), figure)


def _answers(lesson: Lesson, steps: Sequence[Sequence[str]]) -> str:
    return "\n".join(
        f"{number}. {do} {lesson.filled(see)}" for number, (do, see) in enumerate(steps, 1)
    )


def _checks(lesson: Lesson) -> Iterator[Slide]:
    names = [name for name, text in lesson.texts.items() if {"check", "compute"} & text.keys()]
    for number, name in enumerate(names, 1):
        yield _check(lesson, name, number)


def _check(lesson: Lesson, name: str, number: int) -> Slide:
    text = lesson.texts[name]
    if "compute" in text:
        own, answer = lesson.draws[name](np.random.default_rng(0))
        said = f"It is {answer:.3g} {text.get('unit', '')}. {text.get('hint', '')}"
        return Slide(f"Check {number}", (text["compute"].format(**own),), said)
    feedback = {lesson.filled(answer): lesson.filled(said) for answer, said in text["answers"]}
    options = shuffled(list(feedback), lesson.filled(text["check"]))
    answers = [(answer, feedback[answer]) for answer in options]
    lines = [f"{letter}. {answer}" for letter, (answer, _) in zip(LETTERS, answers, strict=False)]
    notes = [f"{letter}. {said}" for letter, (_, said) in zip(LETTERS, answers, strict=False)]
    vote = "Vote, discuss with a neighbor, vote again."
    right = f"Right: {lesson.filled(text['right'])}"
    return Slide(
        f"Check {number}", (lesson.filled(text["check"]), *lines), "\n".join([vote, right, *notes])
    )


def _formula(text: str) -> Slide:
    section = text.split("## The formula, opened", 1)[1].split("\n## ", 1)[0]
    lines = (
        f"It assumes {_after(section, 'It assumes')}",
        f"It breaks when {_after(section, 'It breaks when')}",
    )
    return Slide(
        "The formula, at the board",
        tuple(_sentence(plain(line)) for line in lines),
        spoken(section.strip()),
        formulas=tuple(each.strip() for each in re.findall(r"\$\$(.+?)\$\$", section, re.S)),
    )


def _derived(own: Derivation) -> Slide:
    """Return the slide of a derivation; its notes have each line in words, for those who cannot see formulas."""
    said = [
        f"{number}. {readable(step.tex)}. {step.because}"
        for number, step in enumerate(own.steps, 1)
    ]
    return Slide(
        own.title,
        (*(step.because for step in own.steps), own.numbers),
        "\n".join(
            ["Write one line at a time; ask for the next before you show it.", own.notes, *said]
        ),
        formulas=tuple(step.tex for step in own.steps),
        stepwise=True,
    )


def _closing(text: str, notes: str) -> Iterator[Slide]:
    believed = misconceptions(notes)
    exposed = "\n".join(f"- {name} {rest}" for name, rest in believed)
    yield Slide(
        "Who believes this?",
        tuple(name for name, _ in believed[:6]),
        f"Each is wrong. What exposes it:\n{exposed}",
    )
    five = text.split("**In five lines**", 1)[1].split("\n**", 1)[0]
    summary = tuple(plain(line) for line in re.findall(r"^\d\. (.+)$", five, re.M))
    yield Slide("In five lines", summary, "Ask for five lines first; then show these.")
    fails = plain(_after(text, "Where the model fails"))
    sentences = tuple(re.split(r"(?<=[.)]) (?=[A-Z])", fails))
    yield Slide("Where the model fails", sentences[:4], fails)
    reading = re.findall(r"^- (.+)$", text.split("**Further reading**", 1)[1], re.M)
    yield Slide(
        "Further reading", tuple(plain(line) for line in reading[:READING]), "\n".join(reading)
    )


def _folder(text: str) -> str:
    """Return the package of the module whose questions a notebook asks."""
    found = QUESTIONS.search(text)
    if not found:
        raise SpecError("the notebook imports `ask` from no questions of a module.")
    return found[1]


def _after(text: str, words: str) -> str:
    """Return the rest of the paragraph after words in bold, up to the next words in bold."""
    found = re.search(rf"\*\*{words}\.?\*\*(.+?)(?=\n\n|\s\*\*[A-Z]|\Z)", text, re.S)
    if not found:
        raise SpecError(f"the notebook has no paragraph with {words!r}.")
    return " ".join(found[1].split())


def _sentence(text: str) -> str:
    text = plain(text).rstrip(" .;")
    return text[:1].upper() + text[1:] + "."
