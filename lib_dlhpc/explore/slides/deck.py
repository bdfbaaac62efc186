"""The slides of a module: ideas, guesses, figures, derivations, checks, summary, and what to say.

Only derivations and titles (slides.toml) are written for slides: a deck is as new as the module's lesson.toml, its
figures, its notebook and its instructor notes, and its numbers are computed when it is made. What to try is in the
notes of a figure.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import accumulate
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from lib_dlhpc.explore.blocks.figure import Figure
from lib_dlhpc.explore.blocks.lesson import Lesson, check_of
from lib_dlhpc.explore.blocks.plain_text import Table
from lib_dlhpc.explore.course import Module
from lib_dlhpc.explore.slides.derivation import Derivation
from lib_dlhpc.explore.slides.diagram import Diagram
from lib_dlhpc.explore.slides.notebook import (
    Section,
    after,
    misconceptions,
    notebook_text,
    plain,
    sections,
    sentences,
)
from lib_dlhpc.explore.slides.sources import Titles, derivations, diagrams_of, lesson_of, titles_of
from lib_dlhpc.explore.slides.tex import readable, spoken
from lib_dlhpc.teaching.questions import shuffled

LETTERS = "ABCDEFG"
TITLE = 125  # characters of a question, at most
OPENING, PREDICT, RESULT, CHECK = "Question", "Predict", "Result", "Check"
ANSWER = "Answer"
EARLIER, IDEA, BOARD, END = "From earlier modules", "Idea", "At the board", "Summary"
PUBLISHED, REAL = "Published", "Do it for real"
ON_PAGE = re.compile(r"\b(charts?|figures?|page|map|diamonds|squares)\b|^The (lower|second) ")
WEIGHTS = {OPENING: 1.0, BOARD: 3.0, END: 1.0}  # of a slide's minutes, beside others' two
FORMULAS = 4  # on a slide with what they assume, at most
# Sentences of an idea, of one beside a diagram, and their characters, at most.
LINES, BESIDE, SIGNS = 4, 3, 480
MOST = 27  # slides of a class; in a longer deck the last ideas share the slides of their questions


class Slide(NamedTuple):
    """A slide: its title, its lines, what to say, and the figure, or the formulas as TeX, that it shows, if any.

    kind: what it is for; section: the heading of the notebook that it belongs to. covered: whether the result of the
    figure is hidden. stepwise: whether each formula stands beside one line, its reason, and the lines left over below
    them. table: rows of cells, a heading first. aside: lines beside the others. source: where what it shows is from.
    diagram: what is drawn beside its lines.
    """

    title: str
    lines: tuple[str, ...] = ()
    notes: str = ""
    figure: Figure | None = None
    formulas: tuple[str, ...] = ()
    stepwise: bool = False
    kind: str = ""
    table: tuple[tuple[str, ...], ...] = ()
    section: str = ""
    covered: bool = False
    aside: tuple[str, ...] = ()
    source: str = ""
    diagram: Diagram | None = None


def deck(module: Module, repository: Path) -> list[Slide]:
    """Return the slides of a module. repository: the folder with modules/ and instructor_notes/."""
    text = notebook_text(repository / "modules" / module.file)
    notes = (repository / "instructor_notes" / f"{module.name}.md").read_text("utf-8")
    lesson = lesson_of(text)
    slides = [
        *_opening(module, text, notes, lesson),
        *_sections(text, lesson, titles_of(text), diagrams_of(text)),
        *_formula(text),
        *map(_derived, derivations(text)),
        *_checks(lesson),
        *_closing(text, notes),
    ]
    return list(_timed(_shortened(slides), module.minutes))


def _shortened(slides: list[Slide]) -> list[Slide]:
    """Put the last ideas on the slides of their questions until the deck has at most MOST slides."""
    at = len(slides) - 2
    while len(slides) > MOST and at >= 0:
        idea, asked = slides[at : at + 2]
        if (idea.kind, asked.kind) == (IDEA, PREDICT) and not idea.table:
            said = "\n".join((*idea.lines, idea.notes, asked.notes))
            merged = asked._replace(aside=(idea.title,), diagram=idea.diagram, notes=said)
            slides[at : at + 2] = [merged]
        at -= 1
    return slides


def _timed(slides: Sequence[Slide], minutes: int) -> Iterator[Slide]:
    """Yield slides whose notes begin with the minutes that each takes, `minutes` in all."""
    weights = [WEIGHTS.get(slide.kind, 2.0) for slide in slides]
    ends = [round(minutes * each / sum(weights)) for each in accumulate(weights)]
    for slide, begin, end in zip(slides, [0, *ends], ends, strict=False):
        yield slide._replace(notes=f"Minute {begin} to {end} of {minutes}.\n{slide.notes}")


def figures(widget: Any) -> Iterator[Figure]:
    """Yield the figures of a page's part that are drawn, in order."""
    if isinstance(widget, Figure):
        if widget.summary:
            yield widget
        return
    for child in getattr(widget, "children", ()):
        yield from figures(child)


def _opening(module: Module, text: str, notes: str, lesson: Lesson) -> Iterator[Slide]:
    timing = "\n".join(re.findall(r"^\| \d.*", notes, re.M))
    said = plain(notes.split("\n\n")[1])
    objectives = after(text, "You will be able to").split(";")
    yield Slide(
        f"{module.number} {next(sections(text)).heading}",
        ("You will be able to:", *map(_sentence, objectives)),
        f"{said}\n\n{timing}\n\nLearners need {plain(after(text, 'You need'))}",
        kind=OPENING,
    )
    if asked := list(_retrieval(lesson)):
        answers = ["In pairs, without notes.", *(answer for *_, answer in asked)]
        lines = tuple(line for question, options, _ in asked for line in (question, options))
        yield Slide(EARLIER, lines, "\n".join(answers), kind=EARLIER)


def _retrieval(lesson: Lesson) -> Iterator[tuple[str, str, str]]:
    """Yield the checks of earlier modules that the page asks again, with their options and answers."""
    for check in lesson.texts.get("earlier", {}).get("recall", ()):
        text = check_of(check)
        options = shuffled([answer for answer, _ in text["answers"]], text["check"])
        lettered = (
            f"{letter}.\N{NO-BREAK SPACE}{each}"
            for letter, each in zip(LETTERS, options, strict=False)
        )
        yield text["check"], "   ".join(lettered), text["right"]


def _sections(
    text: str, lesson: Lesson, titles: Titles, diagrams: Mapping[str, Callable[[], Diagram]]
) -> Iterator[Slide]:
    """Yield for each section its idea and tables, and for each guess a slide to predict on, and its figure."""
    opening, *others = sections(text)
    for own in (opening._replace(heading=_upper(opening.heading.partition(": ")[2])), *others):
        shown = own.tables or _published(lesson, own)
        asks = [name for name in own.asked if "guess" in lesson.texts.get(name, ())]
        if own.heading == "The formula, opened" or not (asks or shown):
            continue
        said = "\n".join(map(plain, own.paragraphs))
        title, apart = titles.ideas.get(own.heading, own.heading), titles.tables.get(own.heading)
        rows = (*shown, ())[0]
        if own.heading != REAL and (own.paragraphs or shown):
            beside = bool(rows) and not apart
            draw, tex = diagrams.get(own.heading), tuple(titles.formulas.get(own.heading, ()))
            most = 2 if beside or tex else BESIDE if draw else LINES
            yield Slide(
                title,
                _idea(own.paragraphs, title, most),
                said,
                formulas=tex,
                kind=IDEA,
                table=rows if beside else (),
                section=own.heading,
                diagram=draw() if draw else None,
            )
        for name, paragraph in zip(asks, (*own.paragraphs, ""), strict=False):
            aside = _idea([paragraph]) if own.heading == REAL else ()
            first, *after = _predicted(lesson, name, titles, own.heading, aside)
            yield first._replace(diagram=diagrams[name]()) if name in diagrams else first
            yield from after
            if name in titles.answered:
                drawn = diagrams[f"{name}: answer"]()
                yield _answered(lesson, name, titles.answered[name], drawn, own.heading)
        if apart:
            yield Slide(apart, (), said, kind=PUBLISHED, table=rows, section=own.heading)


def _idea(paragraphs: Iterable[str], title: str = "", most: int = LINES) -> tuple[str, ...]:
    """Return the first sentences of a section, `most` of them; below a title none is about the page."""
    lines = list[str]()
    for sentence in sentences(" ".join(map(plain, paragraphs))):
        if title and ON_PAGE.search(sentence):
            continue
        if len(lines) == most or sum(map(len, [*lines, sentence])) > SIGNS:
            break
        if sentence.rstrip(".") != title:
            lines.append(sentence)
    return tuple(lines)


def _published(lesson: Lesson, own: Section) -> tuple[tuple[tuple[str, ...], ...], ...]:
    """Return the table of what was published, as the section asks for it, if it does."""
    made = (lesson.tables[name]() for name in own.asked if name in lesson.tables)
    return tuple(tuple(map(tuple, each.rows)) for each in made if isinstance(each, Table))


def _predicted(
    lesson: Lesson, name: str, titles: Titles, heading: str, aside: tuple[str, ...]
) -> Iterator[Slide]:
    """Yield a slide to predict on, with its figure, and the figure uncovered; the last has in its notes what to try."""
    _, uncovered = lesson.outcomes[name]
    widget: Any = uncovered() if uncovered else None
    for control, value in titles.settings.get(name, {}).items():
        widget.controls[control].value = value
    drawn = list(figures(widget))
    figure = drawn[titles.figures.get(name, 0)] if drawn else None
    reveals = figure is not None and name in titles.shown
    names = list(lesson.texts)
    following = (*names[names.index(name) + 1 :], "")[0]
    steps = lesson.texts[following].get("steps", ()) if following else ()
    try_it = f"On the page, on the projector. Try:\n{_answers(lesson, steps)}" if steps else ""
    asked = _guess(lesson, name, "" if reveals else try_it)
    source = f"Figure: {figure.title}" if figure and not reveals else ""
    yield asked._replace(
        section=heading,
        figure=figure,
        covered=reveals,
        source=source,
        aside=() if figure else aside,
    )
    if figure and reveals:
        look = "" if name in titles.figures else getattr(widget, "look", "")
        own = _shown(lesson, name, figure, look, try_it)
        yield own._replace(title=titles.shown[name], section=heading)


def _guess(lesson: Lesson, name: str, try_it: str) -> Slide:
    """Return a guess whose title is its question, or the last sentence of a long one."""
    text = lesson.texts[name]
    options = [
        f"{letter}. {lesson.filled(each)}"
        for letter, each in zip(LETTERS, text.get("options", ()), strict=False)
    ]
    number = [f"Write down a number ({text['unit']})."] if text.get("unit") else []
    because = lesson.filled(text.get("because", ""))
    said = f"It is {lesson.result(name)}. {because}"
    notes = ["Everyone commits before anyone speaks.", said, try_it]
    given, question = _asked(lesson.filled(text["guess"]))
    return Slide(question, (*given, *(options or number)), "\n".join(notes).strip(), kind=PREDICT)


def _shown(lesson: Lesson, name: str, figure: Figure, look: str, try_it: str) -> Slide:
    """Return the figure of a guess with what came out, and the first sentence of why."""
    because = lesson.filled(lesson.texts[name].get("because", ""))
    said = f"It is {lesson.result(name)}. {sentences(because)[0]}".strip()
    look = look.removesuffix("Press play.").strip()  # a slide does not move
    notes = (f"Look for {look}" if look else "", figure.summary, because, try_it)
    source = f"Figure: {figure.title} · Computed with lib_dlhpc"
    return Slide("", (said,), "\n".join(filter(None, notes)), figure, kind=RESULT, source=source)


def _answered(lesson: Lesson, name: str, title: str, drawn: Diagram, heading: str) -> Slide:
    """Return the answer to a guess beside a diagram of it."""
    because = lesson.filled(lesson.texts[name].get("because", ""))
    lines = (f"It is {lesson.result(name)}.", sentences(because)[0])
    return Slide(title, lines, because, kind=ANSWER, section=heading, diagram=drawn)


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
        own, answer, _ = lesson.draws[name](np.random.default_rng(0))
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
        f"It assumes {after(section, 'It assumes')}",
        f"It breaks when {after(section, 'It breaks when')}",
    )
    limits = tuple(_sentence(plain(line)) for line in lines)
    texts = tuple(each.strip() for each in re.findall(r"\$\$(.+?)\$\$", section, re.S))
    said, many = spoken(section.strip()), len(texts) > FORMULAS
    yield Slide("The formula, opened", () if many else limits, said, formulas=texts, kind=BOARD)
    if many:
        yield Slide("What the formulas assume, and when they break", limits, said, kind=BOARD)
    (own,) = (each for each in sections(text) if each.heading == "The formula, opened")
    for each in own.tables:
        yield Slide(
            "The formulas, side by side",
            (),
            "\n".join(map(plain, own.paragraphs)),
            kind=BOARD,
            table=each,
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
        kind=BOARD,
    )


def _closing(text: str, notes: str) -> Iterator[Slide]:
    believed = misconceptions(notes)
    exposed = "\n".join(f"- {name} {rest}" for name, rest in believed)
    yield Slide(
        "Who believes this?",
        tuple(name for name, _ in believed[:6]),
        f"Each is wrong. What exposes it:\n{exposed}",
        kind="Discuss",
    )
    five = text.split("**In five lines**", 1)[1].split("\n**", 1)[0]
    summary = tuple(plain(line) for line in re.findall(r"^\d\. (.+)$", five, re.M))
    yield Slide("In five lines", summary, "Ask for five lines first; then show these.", kind=END)
    fails = plain(after(text, "Where the model fails"))
    reading = re.findall(r"^- (.+)$", text.split("**Further reading**", 1)[1], re.M)
    yield Slide(
        "Where the model fails",
        tuple(sentences(fails)[:4]),
        "\n".join([fails, "Further reading:", *map(plain, reading)]),
        kind=END,
    )


def _sentence(text: str) -> str:
    return _upper(plain(text).rstrip(" .;")) + "."


def _upper(text: str) -> str:
    return text[:1].upper() + text[1:]
