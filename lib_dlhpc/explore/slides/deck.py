"""The slides of a module: ideas, guesses, figures, derivations, checks, summary, and what to say.

Only derivations and titles (slides.toml) are written for slides: a deck is as new as the module's lesson.toml, its
figures, its notebook and its instructor notes, and its numbers are computed when it is made. What to try is in the
notes of a figure.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path

from lib_dlhpc.explore.blocks.lesson import Lesson, check_of
from lib_dlhpc.explore.blocks.plain_text import Table
from lib_dlhpc.explore.course import Module
from lib_dlhpc.explore.slides.asked import LETTERS, TRY, answered, checks, predicted, to_try
from lib_dlhpc.explore.slides.derivation import Derivation
from lib_dlhpc.explore.slides.diagram import Diagram
from lib_dlhpc.explore.slides.listing import listed
from lib_dlhpc.explore.slides.minutes import timed
from lib_dlhpc.explore.slides.notebook import (
    Section,
    after,
    first,
    misconceptions,
    notebook_text,
    plain,
    plain_lines,
    sections,
    sentences,
    taken,
)
from lib_dlhpc.explore.slides.notes import unrepeated
from lib_dlhpc.explore.slides.slide import (
    BOARD,
    DISCUSS,
    EARLIER,
    END,
    IDEA,
    OPENING,
    PREDICT,
    PUBLISHED,
    REAL,
    WORDS,
    Slide,
)
from lib_dlhpc.explore.slides.sources import Titles, derivations, diagrams_of, lesson_of, titles_of
from lib_dlhpc.explore.slides.tex import readable
from lib_dlhpc.teaching.questions import shuffled

ON_PAGE = re.compile(r"\b(charts?|figures?|page|map|diamonds|squares)\b|^The (lower|second) ")
CITED = 95  # characters of the sources at the foot of a slide, at most
FORMULAS = 7  # on a slide, at most
LINES, BESIDE = 4, 3  # sentences of an idea, and of one beside a diagram, at most
EXPLAINED = "The notes of the slide with the first formulas explain all letters and limits."
IDEAS = 2  # slides that only present an idea, at least
MOST = 32  # slides of a class; in a longer deck the last ideas share the slides of their questions


def deck(module: Module, repository: Path) -> list[Slide]:
    """Return the slides of a module. repository: the folder with modules/ and instructor_notes/."""
    text = notebook_text(repository / "modules" / module.file)
    notes = (repository / "instructor_notes" / f"{module.name}.md").read_text("utf-8")
    lesson, titles = lesson_of(text), titles_of(text)
    slides = [
        *_opening(module, text, notes, lesson),
        *_sections(text, lesson, titles, diagrams_of(text)),
        *_formula(text, titles),
        *map(_derived, derivations(text)),
        *_drawn(titles, diagrams_of(text)),
        *(listed(title, list(names)) for title, names in titles.code.items()),
        *checks(lesson, titles, _last(lesson, titles)),
        *_closing(text, notes, titles),
    ]
    return list(timed(list(unrepeated(_shortened(slides))), notes))


def _shortened(slides: list[Slide]) -> list[Slide]:
    """Put the last ideas on the slides of their questions until the deck has at most MOST slides.

    IDEAS of them keep their own; where that is not enough, the notes of the summary say where the model fails.
    """
    at = len(slides) - 2
    while len(slides) > MOST and at >= 0 and sum(own.kind == IDEA for own in slides) > IDEAS:
        idea, asked = slides[at : at + 2]
        if (idea.kind, asked.kind) == (IDEA, PREDICT) and not idea.table:
            said = f"{idea.notes}\n{asked.notes}"
            merged = asked._replace(aside=(idea.title,), diagram=idea.diagram, notes=said)
            slides[at : at + 2] = [merged]
        at -= 1
    if len(slides) > MOST:
        summary, fails = slides[-2:]
        said = f"{summary.notes}\n{fails.title}: {fails.notes}"
        slides[-2:] = [summary._replace(notes=said)]
    return slides


def _opening(module: Module, text: str, notes: str, lesson: Lesson) -> Iterator[Slide]:
    timing = "\n".join(_timing(notes))
    said = plain(notes.split("\n\n")[1])
    objectives = after(text, "You will be able to").split(";")
    yield Slide(
        f"{module.number} {next(sections(text)).heading}",
        ("You will be able to:", *map(_sentence, objectives)),
        f"{said}\n\n{timing}\n\nLearners need {plain(after(text, 'You need'))}",
        kind=OPENING,
    )
    if asked := list(_retrieval(lesson)):
        answers = ["In pairs, without notes.", *(why for *_, why in asked)]
        lines = tuple(line for question, options, _ in asked for line in (question, options))
        yield Slide(EARLIER, lines, "\n".join(answers), kind=EARLIER)


def _timing(notes: str) -> Iterator[str]:
    """Yield what a class of 50 minutes does when, of the table in instructor notes."""
    for minutes, during in re.findall(r"^\| ([\d-]+) \| ([^|]+) \|", notes, re.M):
        yield f"Minutes {minutes}: {plain(during)}"


def _retrieval(lesson: Lesson) -> Iterator[tuple[str, str, str]]:
    """Yield the checks of earlier modules that the page asks again, with their options, and which is right and why."""
    for check in lesson.texts.get("earlier", {}).get("recall", ()):
        text = check_of(check)
        feedback = dict(text["answers"])
        options = shuffled(list(feedback), text["check"])
        lettered = (
            f"{letter}.\N{NO-BREAK SPACE}{each}"
            for letter, each in zip(LETTERS, options, strict=False)
        )
        right = text["right"]
        letter = LETTERS[options.index(right)]
        because = re.sub("^Yes[:,] ", "", feedback[right])
        yield text["check"], "   ".join(lettered), f"{letter}. {right}: {because}"


def _sections(
    text: str, lesson: Lesson, titles: Titles, diagrams: Mapping[str, Callable[[], Diagram]]
) -> Iterator[Slide]:
    """Yield for each section its idea and tables, and for each guess a slide to predict on, and its figure."""
    opening, *others = sections(text)
    for own in (opening._replace(heading=_upper(opening.heading.partition(": ")[2])), *others):
        shown = own.tables or _published(lesson, own)
        if own.heading in titles.writes:
            yield _written(lesson, own, *titles.writes[own.heading])
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
                tuple(titles.said.get(own.heading, ())) or _idea(own.paragraphs, title, most),
                said,
                formulas=tex,
                kind=IDEA,
                table=rows if beside else (),
                section=own.heading,
                diagram=draw() if draw else None,
            )
        for name, paragraph in zip(asks, (*own.paragraphs, ""), strict=False):
            aside = plain(paragraph) if own.heading == REAL else ""
            asked, *result = predicted(lesson, name, titles, own.heading, aside)
            yield asked._replace(diagram=diagrams[name]()) if name in diagrams else asked
            yield from result
            if name in titles.answered:
                drawn = diagrams.get(f"{name}: answer")
                yield answered(lesson, name, titles, drawn and drawn(), own.heading)
        if apart:
            yield Slide(apart, (), said, kind=PUBLISHED, table=rows, section=own.heading)
        draw = diagrams.get(own.heading)
        for check in checks(lesson, titles, titles.checked.get(own.heading, ())):
            yield check._replace(section=own.heading, diagram=draw() if draw else None)


def _last(lesson: Lesson, titles: Titles) -> list[str]:
    """Return the checks that end no section."""
    begun = {name for names in titles.checked.values() for name in names}
    asked = (name for name, text in lesson.texts.items() if {"check", "compute"} & text.keys())
    return [name for name in asked if name not in begun]


def _idea(paragraphs: Iterable[str], title: str, most: int) -> tuple[str, ...]:
    """Return the first sentences of a section, `most` of them, of WORDS words; none is about the page."""
    said = [
        sentence
        for sentence in sentences(" ".join(map(plain, paragraphs)))
        if not ON_PAGE.search(sentence) and sentence.rstrip(".") != title
    ]
    return tuple(taken(said[:most], WORDS)) or tuple(filter(None, (first(" ".join(said), WORDS),)))


def _published(lesson: Lesson, own: Section) -> tuple[tuple[tuple[str, ...], ...], ...]:
    """Return the table of what was published, as the section asks for it, if it does."""
    made = (lesson.tables[name]() for name in own.asked if name in lesson.tables)
    return tuple(tuple(map(tuple, each.rows)) for each in made if isinstance(each, Table))


def _written(lesson: Lesson, own: Section, title: str, start: str, *task: str) -> Slide:
    """Return the slide of what learners write: code to begin with, the task, and what is checked."""
    steps = [each for name in own.asked for each in lesson.texts[name].get("steps", ())]
    said = "\n".join((*map(plain, own.paragraphs), TRY, to_try(lesson, steps)))
    code = listed(title, [start])
    return code._replace(aside=tuple(task), notes=said, section=own.heading)


def _formula(text: str, titles: Titles) -> Iterator[Slide]:
    section = text.split("## The formula, opened", 1)[1].split("\n## ", 1)[0]
    names = iter(titles.formula)
    texts = [each.strip() for each in re.findall(r"\$\$(.+?)\$\$", section, re.S)]
    parts = list(_parted(texts))
    for number, part in enumerate(parts, 1):
        title, lines = next(names), tuple(titles.limits) if number == len(parts) else ()
        said = EXPLAINED if number > 1 else plain_lines(section.strip())
        source = _cited(section)
        yield Slide(title, lines, said, formulas=tuple(part), kind=BOARD, source=source)
    (own,) = (each for each in sections(text) if each.heading == "The formula, opened")
    for each in own.tables:
        yield Slide(
            next(names),
            (),
            f"Ask what each row counts, and which one you would choose. {EXPLAINED}",
            kind=BOARD,
            table=each,
        )


def _cited(section: str) -> str:
    """Return the sources of a section, as many as fit a line; the notes have all of them."""
    found = re.search(r"\bSources?: (.+)", section)
    works = plain(found[1]).rstrip(".").split("; ") if found else []
    shown = [sum(map(len, works[: n + 1])) + 2 * n <= CITED for n in range(len(works))].count(True)
    return f"After {'; '.join(works[:shown])}" if shown else ""


def _parted(texts: Iterable[str]) -> Iterator[list[str]]:
    """Yield lines of formulas for each slide, FORMULAS at most; those on a line have a space between."""
    part, held = list[str](), 0
    for text in texts:
        own = text.count(r"\qquad") + 1
        if part and held + own > FORMULAS:
            yield part
            part, held = [], 0
        part.append(text)
        held += own
    yield part


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


def _drawn(titles: Titles, diagrams: Mapping[str, Callable[[], Diagram]]) -> Iterator[Slide]:
    """Yield diagrams that belong to no section."""
    for title, (name, *lines) in titles.drawn.items():
        own = diagrams[name]()
        said = f"Draw it first, one step at a time. What to see: {title}. {' '.join(lines)}"
        yield Slide(title, tuple(lines), said, kind=BOARD, diagram=own)


def _closing(text: str, notes: str, titles: Titles) -> Iterator[Slide]:
    believed = misconceptions(notes)
    exposed = "\n".join(f"- {name} {rest}" for name, rest in believed)
    yield Slide(
        "Statements to defend or to refute",
        tuple(taken([name for name, _ in believed[:6]], WORDS)),
        f"Each is wrong. What exposes it:\n{exposed}",
        kind=DISCUSS,
    )
    five = text.split("**In five lines**", 1)[1].split("\n**", 1)[0]
    full = map(plain, re.findall(r"^\d\. .+$", five, re.M))
    said = "\n".join(["Ask for five lines first; then show these. At length:", *full])
    yield Slide("In five lines", tuple(titles.summary), said, kind=END)
    limits, further = text.split("**Where the model fails.**", 1)[1].split("**Further reading**", 1)
    fails = plain(limits)
    reading = re.findall(r"^- (.+)$", further, re.M)
    yield Slide(
        "Where the model fails",
        tuple(titles.fails) or tuple(taken(sentences(fails), WORDS)),
        "\n".join([fails, "Further reading:", *map(plain, reading)]),
        kind=END,
    )


def _sentence(text: str) -> str:
    return _upper(plain(text).rstrip(" .;")) + "."


def _upper(text: str) -> str:
    return text[:1].upper() + text[1:]
