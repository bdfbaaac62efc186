"""The slides of a module: ideas, guesses, figures, derivations, checks, summary, and what to say.

Only derivations are written for slides: a deck is as new as the module's lesson.toml, its figures, its notebook and
its instructor notes, and its numbers are computed when it is made. What to try is in the notes of a figure.
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
from lib_dlhpc.explore.blocks.plain_text import Table
from lib_dlhpc.explore.course import Module
from lib_dlhpc.explore.slides.derivation import Derivation
from lib_dlhpc.explore.slides.tex import readable, spoken
from lib_dlhpc.teaching.questions import shuffled

LETTERS = "ABCDEFG"
QUESTIONS = re.compile(r"from (lib_dlhpc\.explore\.\w+)\.questions import ask")
TITLE = 125  # characters of a question, at most
PREDICT, CHECK, EARLIER, IDEA = "Predict", "Check", "From earlier modules", "Idea"
LINES, SIGNS = (
    5,
    620,
)  # sentences of an idea, and their characters, at most; the others are in its notes
MOST = 27  # slides of a class; in a longer deck the last ideas stand above their questions


class Slide(NamedTuple):
    """A slide: its title, its lines, what to say, and the figure, or the formulas as TeX, that it shows, if any.

    stepwise: whether each formula stands beside one line, its reason, and the lines left over below them. kind: what
    it is for, if its title does not say it. table: rows of cells, a heading first.
    """

    title: str
    lines: tuple[str, ...] = ()
    notes: str = ""
    figure: Figure | None = None
    formulas: tuple[str, ...] = ()
    stepwise: bool = False
    kind: str = ""
    table: tuple[tuple[str, ...], ...] = ()


class Section(NamedTuple):
    """A section of a notebook: its heading, its paragraphs, its tables and the names of what it asks."""

    heading: str
    paragraphs: tuple[str, ...]
    tables: tuple[tuple[tuple[str, ...], ...], ...]
    asked: tuple[str, ...]


def deck(module: Module, repository: Path) -> list[Slide]:
    """Return the slides of a module. repository: the folder with modules/ and instructor_notes/."""
    text = notebook_text(repository / "modules" / module.file)
    notes = (repository / "instructor_notes" / f"{module.name}.md").read_text("utf-8")
    lesson = lesson_of(text)
    return _shortened(
        [
            *_opening(module, text, notes, lesson),
            *_sections(text, lesson),
            *_formula(text),
            *map(_derived, derivations(text)),
            *_checks(lesson),
            *_closing(text, notes),
        ]
    )


def _shortened(slides: list[Slide]) -> list[Slide]:
    """Put ideas on the slides of their questions, from the last one on, until the deck has MOST slides."""
    at = len(slides) - 2
    while len(slides) > MOST and at >= 0:
        idea, asked = slides[at : at + 2]
        if (idea.kind, asked.kind) == (IDEA, PREDICT) and not idea.table:
            first = idea.lines[: 1 if len(asked.lines) > 2 else 2]
            notes = f"{idea.notes}\n\n{asked.notes}"
            slides[at : at + 2] = [asked._replace(lines=(*first, *asked.lines), notes=notes)]
        at -= 1
    return slides


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


def sections(text: str) -> Iterator[Section]:
    """Yield the sections of a notebook's text; the first has the notebook's title."""
    for part in re.split(r"^##? ", text, flags=re.M)[1:]:
        heading, _, rest = part.partition("\n")
        parts = [each.strip() for each in rest.split("\n\n")]
        tables = [table(each) for each in parts if each.startswith("|")]
        said = (each for each in parts if re.match(r"[^\W\d]|\*\*[\w-]+\*\* (?!:)", each))
        prose = [each for each in said if not re.match(r"from \w|ask\(", each)]
        asked = re.findall(r'^ask\("(\w+)"\)', rest, re.M)
        yield Section(plain(heading), tuple(prose), tuple(tables), tuple(asked))


def table(text: str) -> tuple[tuple[str, ...], ...]:
    """Return the rows of a Markdown table."""
    rows = [line.strip().strip("|").split("|") for line in text.splitlines()]
    return tuple(
        tuple(map(plain, row)) for row in rows if not re.fullmatch(r"[-:| ]+", "|".join(row))
    )


def _opening(module: Module, text: str, notes: str, lesson: Lesson) -> Iterator[Slide]:
    timing = "\n".join(re.findall(r"^\| \d.*", notes, re.M))
    said = plain(notes.split("\n\n")[1])
    own = next(sections(text))
    yield Slide(
        f"{module.number} {module.title}",
        (module.question, *_idea(own)),
        f"{module.minutes} minutes. {said}\n\n{timing}",
    )
    objectives = _after(text, "You will be able to").split(";")
    yield Slide(
        "You will be able to",
        tuple(_sentence(each) for each in objectives),
        _after(text, "You need"),
    )
    if asked := list(_retrieval(lesson)):
        answers = ["Two minutes, in pairs, without notes.", *(answer for *_, answer in asked)]
        lines = tuple(line for question, options, _ in asked for line in (question, options))
        yield Slide(EARLIER, lines, "\n".join(answers))


def _retrieval(lesson: Lesson) -> Iterator[tuple[str, str, str]]:
    """Yield the checks of earlier modules that the page asks again, with their options and answers."""
    for check in lesson.texts.get("earlier", {}).get("recall", ()):
        text = check_of(check)
        options = shuffled([answer for answer, _ in text["answers"]], text["check"])
        lettered = (f"{letter}. {each}" for letter, each in zip(LETTERS, options, strict=False))
        yield text["check"], "   ".join(lettered), text["right"]


def _sections(text: str, lesson: Lesson) -> Iterator[Slide]:
    """Yield for each section its idea and tables, and for each guess a slide to predict on, and its figure."""
    for number, own in enumerate(sections(text)):
        shown = own.tables or _published(lesson, own)
        asks = [name for name in own.asked if "guess" in lesson.texts.get(name, ())]
        if own.heading == "The formula, opened" or not (asks or shown):
            continue
        said = "\n".join(map(plain, own.paragraphs))
        if number and own.heading != "Do it for real" and (own.paragraphs or shown):
            yield Slide(
                own.heading, _idea(own, bool(shown)), said, kind=IDEA, table=(*shown, ())[0]
            )
        for count, name in enumerate(asks, 1):
            title = own.heading if number else _upper(own.heading.partition(": ")[2])
            yield from _predicted(lesson, name, title + (f" ({count})" if count > 1 else ""))


def _idea(own: Section, beside: bool = False) -> tuple[str, ...]:
    """Return the first sentences of a section; fewer beside a table."""
    lines = list[str]()
    for sentence in re.split(r"(?<=[.?!)]) (?=[A-Z0-9])", " ".join(map(plain, own.paragraphs))):
        if len(lines) == (2 if beside else LINES) or sum(map(len, [*lines, sentence])) > SIGNS:
            break
        lines.append(sentence)
    return tuple(lines)


def _published(lesson: Lesson, own: Section) -> tuple[tuple[tuple[str, ...], ...], ...]:
    """Return the table of what was published, as the section asks for it, if it does."""
    made = (lesson.tables[name]() for name in own.asked if name in lesson.tables)
    return tuple(tuple(map(tuple, each.rows)) for each in made if isinstance(each, Table))


def _predicted(lesson: Lesson, name: str, title: str) -> Iterator[Slide]:
    """Yield a slide to predict on, and the figure, with what to try in its notes, or else in those of the guess."""
    _, uncovered = lesson.outcomes[name]
    widget = uncovered() if uncovered else None
    drawn = list(figures(widget))[:1]
    names = list(lesson.texts)
    following = (*names[names.index(name) + 1 :], "")[0]
    steps = lesson.texts[following].get("steps", ()) if following else ()
    try_it = f"On the page, on the projector. Try:\n{_answers(lesson, steps)}" if steps else ""
    yield _guess(lesson, name, title, "" if drawn else try_it)
    yield from (
        _shown(lesson, name, figure, getattr(widget, "look", ""), try_it) for figure in drawn
    )


def _guess(lesson: Lesson, name: str, title: str, try_it: str) -> Slide:
    text = lesson.texts[name]
    options = [
        f"{letter}. {lesson.filled(each)}"
        for letter, each in zip(LETTERS, text.get("options", ()), strict=False)
    ]
    asked = f"Write down a number ({text['unit']})." if text.get("unit") else ""
    because = lesson.filled(text.get("because", ""))
    said = f"It is {lesson.result(name)}. {because}"
    notes = ["Everyone commits before anyone speaks.", said, try_it]
    lines = [lesson.filled(text["guess"]), *(options or [asked])]
    return Slide(title, tuple(filter(None, lines)), "\n".join(notes).strip(), kind=PREDICT)


def _shown(lesson: Lesson, name: str, figure: Figure, look: str, try_it: str) -> Slide:
    found = re.fullmatch(r"([^()]+) \(([^()]+)\)", figure.title)
    title, caption = found.groups() if found else (figure.title, "")
    because = lesson.filled(lesson.texts[name].get("because", ""))
    look = look.removesuffix("Press play.").strip()  # a slide does not move
    lines = [_sentence(caption) if caption else "", f"Look for {look}" if look else ""]
    notes = "\n".join(filter(None, (figure.summary, because, try_it)))
    return Slide(title, tuple(filter(None, lines)), notes, figure)


def _answers(lesson: Lesson, steps: Sequence[Sequence[str]]) -> str:
    return "\n".join(
        f"{number}. {do} {lesson.filled(see)}" for number, (do, see) in enumerate(steps, 1)
    )


def _checks(lesson: Lesson) -> Iterator[Slide]:
    names = [name for name, text in lesson.texts.items() if {"check", "compute"} & text.keys()]
    yield from (_check(lesson, name) for name in names)


def _check(lesson: Lesson, name: str) -> Slide:
    """Return a check whose title is its question, or the last sentence of a long one."""
    text = lesson.texts[name]
    if "compute" in text:
        own, answer = lesson.draws[name](np.random.default_rng(0))
        given, question = _asked(text["compute"].format(**own))
        said = f"It is {answer:.3g} {text.get('unit', '')}. {text.get('hint', '')}"
        return Slide(question, given or ("Work it out.",), said, kind=CHECK)
    given, question = _asked(lesson.filled(text["check"]))
    feedback = {lesson.filled(answer): lesson.filled(said) for answer, said in text["answers"]}
    options = shuffled(list(feedback), lesson.filled(text["check"]))
    answers = [(answer, feedback[answer]) for answer in options]
    lines = [f"{letter}. {answer}" for letter, (answer, _) in zip(LETTERS, answers, strict=False)]
    notes = [f"{letter}. {said}" for letter, (_, said) in zip(LETTERS, answers, strict=False)]
    vote = "Vote, discuss with a neighbor, vote again."
    right = f"Right: {lesson.filled(text['right'])}"
    return Slide(question, (*given, *lines), "\n".join([vote, right, *notes]), kind=CHECK)


def _asked(text: str) -> tuple[tuple[str, ...], str]:
    """Return what a question gives, and its last sentence; a short one is not cut."""
    if len(text) <= TITLE:
        return (), text
    *given, last = re.split(r"(?<=[.?!:]) (?=[A-Z])", text)
    return ((" ".join(given),) if given else ()), last


def _formula(text: str) -> Iterator[Slide]:
    section = text.split("## The formula, opened", 1)[1].split("\n## ", 1)[0]
    lines = (
        f"It assumes {_after(section, 'It assumes')}",
        f"It breaks when {_after(section, 'It breaks when')}",
    )
    yield Slide(
        "The formula, at the board",
        tuple(_sentence(plain(line)) for line in lines),
        spoken(section.strip()),
        formulas=tuple(each.strip() for each in re.findall(r"\$\$(.+?)\$\$", section, re.S)),
    )
    (own,) = (each for each in sections(text) if each.heading == "The formula, opened")
    for each in own.tables:
        yield Slide(
            "The formulas, side by side", (), "\n".join(map(plain, own.paragraphs)), table=each
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
    reading = re.findall(r"^- (.+)$", text.split("**Further reading**", 1)[1], re.M)
    yield Slide(
        "Where the model fails",
        sentences[:4],
        "\n".join([fails, "Further reading:", *map(plain, reading)]),
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
    return _upper(plain(text).rstrip(" .;")) + "."


def _upper(text: str) -> str:
    return text[:1].upper() + text[1:]
