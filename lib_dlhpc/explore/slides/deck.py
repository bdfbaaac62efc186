"""The slides of a module: agenda, ideas, guesses, figures, checks, summary, what comes next, and what to say.

What the 50 minutes of a class have no time for, such as derivations, comes last.
Only derivations and titles (slides.toml) are written for slides: a deck is as new as the module's lesson.toml, its
figures, its notebook and its instructor notes, and its numbers are computed when it is made. What to try is in the
notes of a figure.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from lib_dlhpc.explore.blocks.lesson import Lesson, check_of
from lib_dlhpc.explore.blocks.plain_text import Table
from lib_dlhpc.explore.course import Module
from lib_dlhpc.explore.front import thumbnails
from lib_dlhpc.explore.slides import notebook
from lib_dlhpc.explore.slides.asked import LETTERS, TRY, answered, checks, predicted, to_try
from lib_dlhpc.explore.slides.derivation import Derivation
from lib_dlhpc.explore.slides.diagram import Diagram
from lib_dlhpc.explore.slides.frame import agenda, following
from lib_dlhpc.explore.slides.listing import listed
from lib_dlhpc.explore.slides.minutes import timed
from lib_dlhpc.explore.slides.notes import unrepeated
from lib_dlhpc.explore.slides.slide import (
    BOARD,
    CODE,
    DISCUSS,
    EARLIER,
    END,
    IDEA,
    OPENING,
    PREDICT,
    PUBLISHED,
    REAL,
    RIGHT,
    WORDS,
    Slide,
)
from lib_dlhpc.explore.slides.sources import Titles, derivations, diagrams_of, lesson_of, titles_of
from lib_dlhpc.explore.slides.tex import readable
from lib_dlhpc.teaching.questions import shuffled

ON_PAGE = re.compile(r"\b(charts?|figures?|page|map|diamonds|squares)\b|^The (lower|second) ")
SERVED = {
    "the machine that serves this page": "this machine",
    "the process that serves this page": "one process",
}
CITED = 95  # characters of the sources at the foot of a slide, at most
FORMULAS = 7  # on a slide, at most
LINES, BESIDE = 4, 3  # sentences of an idea, and of one beside a diagram, at most
EXPLAINED = "The notes of the slide with the first formulas explain all letters and limits."
IDEAS = 2  # slides that only present an idea, at least
MOST = 28  # slides of a class, if possible; in a longer deck the last ideas share the slides of their questions


def deck(module: Module, repository: Path) -> list[Slide]:
    """Return the slides of a module. repository: the folder with modules/ and instructor_notes/."""
    text = notebook.notebook_text(repository / "modules" / module.file)
    notes = (repository / "instructor_notes" / f"{module.name}.md").read_text("utf-8")
    lesson, titles = lesson_of(text), titles_of(text)
    slides = [
        *_opening(module, text, notes),
        *_earlier(lesson),
        *_sections(text, lesson, titles, diagrams_of(text)),
        *_formula(text, titles),
        *map(_derived, derivations(text)),
        *_drawn(titles, diagrams_of(text)),
        *(listed(title, list(names)) for title, names in titles.code.items()),
        *checks(lesson, titles, _last(lesson, titles)),
        *_closing(text, notes, titles),
        following(module, text),
    ]
    slides = _shortened(slides)
    slides.insert(1, agenda(slides, notes))
    slides = [own._replace(live=own.live and f"{module.file}#{own.live}") for own in slides]
    shown = timed(list(unrepeated(slides)), notes)
    return sorted(shown, key=lambda slide: slide.optional)


def _shortened(slides: list[Slide]) -> list[Slide]:
    """Put the last ideas on the slides of their questions until a class has MOST slides; IDEAS keep their own."""
    at = len(slides) - 2
    while _long(slides) and at >= 0 and sum(own.kind == IDEA for own in slides) > IDEAS:
        idea, asked = slides[at : at + 2]
        open_ = asked.figure and not asked.covered  # what is known beforehand has to stay
        if (idea.kind, asked.kind) == (IDEA, PREDICT) and not (
            idea.table or asked.diagram or open_
        ):
            said = f"{idea.notes}\n{asked.notes}"
            beside = _beside_diagram(asked, idea.diagram) if idea.diagram else asked
            merged = beside._replace(aside=(idea.title,), notes=said)
            slides[at : at + 2] = [merged]
        at -= 1
    return slides


def _long(slides: Sequence[Slide]) -> bool:
    return sum(own.kind not in (BOARD, CODE) for own in slides) > MOST


def _beside_diagram(asked: Slide, drawn: Diagram) -> Slide:
    """Return a question beside a diagram; covered axes would say less, and leave neither enough room."""
    return asked._replace(diagram=drawn, figure=None, covered=False, source="")


def _opening(module: Module, text: str, notes: str) -> Iterator[Slide]:
    timing = "\n".join(_timing(notes))
    said = notebook.plain(notes.split("\n\n")[1])
    objectives = notebook.after(text, "You will be able to").split(";")
    yield Slide(
        f"{module.number} {next(notebook.sections(text)).heading}",
        ("You will be able to:", *map(_sentence, objectives)),
        f"{said}\n\n{timing}\n\nLearners need {notebook.plain(notebook.after(text, 'You need'))}",
        kind=OPENING,
        aside=(getattr(thumbnails, module.folder).__doc__,),
        emblem=module.folder,
    )


def _earlier(lesson: Lesson) -> Iterator[Slide]:
    """Yield the slide of two checks of earlier modules, beside each other."""
    if asked := list(_retrieval(lesson)):
        answers = ["In pairs, without notes.", *(why for *_, why in asked)]
        (one, *ones), *others = (
            (question, *options, RIGHT + why[0]) for question, options, why in asked
        )
        beside = tuple(line for lines in others for line in lines)
        yield Slide(EARLIER, (one, *ones), "\n".join(answers), kind=EARLIER, aside=beside)


def _timing(notes: str) -> Iterator[str]:
    """Yield what a class of 50 minutes does when, of the table in instructor notes."""
    for minutes, during in re.findall(r"^\| ([\d-]+) \| ([^|]+) \|", notes, re.M):
        yield f"Minutes {minutes}: {notebook.plain(during)}"


def _retrieval(lesson: Lesson) -> Iterator[tuple[str, list[str], str]]:
    """Yield the checks of earlier modules that the page asks again, with their options, and which is right and why."""
    for check in lesson.texts.get("earlier", {}).get("recall", ()):
        text = check_of(check)
        feedback = dict(text["answers"])
        options = shuffled(list(feedback), text["check"])
        lettered = [f"{letter}. {each}" for letter, each in zip(LETTERS, options, strict=False)]
        right = text["right"]
        letter = LETTERS[options.index(right)]
        because = re.sub("^Yes[:,] ", "", feedback[right])
        yield text["check"], lettered, f"{letter}. {right}: {because}"


def _sections(
    text: str, lesson: Lesson, titles: Titles, diagrams: Mapping[str, Callable[[], Diagram]]
) -> Iterator[Slide]:
    """Yield for each section its idea and tables, and for each guess a slide to predict on, and its figure."""
    opening, *others = notebook.sections(text)
    for own in (opening._replace(heading=_upper(opening.heading.partition(": ")[2])), *others):
        shown = own.tables or _published(lesson, own)
        if own.heading in titles.writes:
            yield _written(lesson, own, *titles.writes[own.heading])
        asks = [name for name in own.asked if "guess" in lesson.texts.get(name, ())]
        if own.heading == "The formula, opened" or not (asks or shown):
            continue
        said = "\n".join(map(notebook.plain, own.paragraphs))
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
            aside = _here(notebook.plain(paragraph)) if own.heading == REAL else ""
            asked, *result = predicted(lesson, name, titles, own.heading, aside)
            yield _beside_diagram(asked, diagrams[name]()) if name in diagrams else asked
            yield from result
            if name in titles.answered:
                drawn = diagrams.get(f"{name}: answer")
                yield answered(lesson, name, titles, drawn and drawn(), own.heading)
        if apart:
            yield Slide(apart, (), said, kind=PUBLISHED, table=rows, section=own.heading)
        draw = diagrams.get(own.heading)
        for check in checks(lesson, titles, titles.checked.get(own.heading, ())):
            yield check._replace(section=own.heading, diagram=draw() if draw else None)


def _here(text: str) -> str:
    """Return what a page says of the machine that runs it, as a slide says it."""
    for server, here in SERVED.items():
        text = text.replace(server, here)
    return text


def _last(lesson: Lesson, titles: Titles) -> list[str]:
    """Return the checks that end no section."""
    begun = {name for names in titles.checked.values() for name in names}
    asked = (name for name, text in lesson.texts.items() if {"check", "compute"} & text.keys())
    return [name for name in asked if name not in begun]


def _idea(paragraphs: Iterable[str], title: str, most: int) -> tuple[str, ...]:
    """Return the first sentences of a section, `most` of them, of WORDS words; none is about the page."""
    said = [
        sentence
        for sentence in notebook.sentences(" ".join(map(notebook.plain, paragraphs)))
        if not ON_PAGE.search(sentence) and sentence.rstrip(".") != title
    ]
    return tuple(notebook.taken(said[:most], WORDS)) or tuple(
        filter(None, (notebook.first(" ".join(said), WORDS),))
    )


def _published(lesson: Lesson, own: notebook.Section) -> tuple[tuple[tuple[str, ...], ...], ...]:
    """Return the table of what was published, as the section asks for it, if it does."""
    made = (lesson.tables[name]() for name in own.asked if name in lesson.tables)
    return tuple(tuple(map(tuple, each.rows)) for each in made if isinstance(each, Table))


def _written(lesson: Lesson, own: notebook.Section, title: str, start: str, *task: str) -> Slide:
    """Return the slide of what learners write: code to begin with, the task, and what is checked."""
    steps = [each for name in own.asked for each in lesson.texts[name].get("steps", ())]
    said = "\n".join((*map(notebook.plain, own.paragraphs), TRY, to_try(lesson, steps)))
    code = listed(title, [start])
    return code._replace(aside=tuple(task), notes=said, section=own.heading)


def _formula(text: str, titles: Titles) -> Iterator[Slide]:
    section = text.split("## The formula, opened", 1)[1].split("\n## ", 1)[0]
    names = iter(titles.formula)
    texts = [each.strip() for each in re.findall(r"\$\$(.+?)\$\$", section, re.S)]
    parts = list(_parted(texts))
    for number, part in enumerate(parts, 1):
        title, lines = next(names), tuple(titles.limits) if number == len(parts) else ()
        apart = tuple(own for tex in part for own in _apart(tex))
        room = LINES if lines else LINES + 1
        shown = apart if len(apart) <= room else tuple(part)
        said = EXPLAINED if number > 1 else notebook.plain_lines(section.strip())
        source = _cited(section)
        yield Slide(title, lines, said, formulas=shown, kind=BOARD, source=source)
    (own,) = (each for each in notebook.sections(text) if each.heading == "The formula, opened")
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
    works = notebook.plain(found[1]).rstrip(".").split("; ") if found else []
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


def _apart(tex: str) -> Sequence[str]:
    """Return the formulas of a line, each on its own; a line that continues another begins with a space and stays."""
    parts = [part.strip(" ,") for part in tex.split(r"\qquad")]
    return parts if all(parts) else [tex]


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


def statements(notes: str, said: str, section: str = "") -> Slide:
    """Return the misconceptions of instructor notes as statements to discuss; said: what the speaker says of them."""
    believed = notebook.misconceptions(notes)
    exposed = "\n".join(f"- {name} {rest}" for name, rest in believed)
    return Slide(
        "Statements to defend or to refute",
        tuple(notebook.taken([name for name, _ in believed[:6]], WORDS)),
        f"{said} What exposes it:\n{exposed}",
        kind=DISCUSS,
        section=section,
    )


def _closing(text: str, notes: str, titles: Titles) -> Iterator[Slide]:
    yield statements(notes, "Each is wrong.")
    five = text.split("**In five lines**", 1)[1].split("\n**", 1)[0]
    full = map(notebook.plain, re.findall(r"^\d\. .+$", five, re.M))
    said = "\n".join(["Ask for five lines first; then show these. At length:", *full])
    yield Slide("In five lines", tuple(titles.summary), said, kind=END)
    limits, further = text.split("**Where the model fails.**", 1)[1].split("**Further reading**", 1)
    fails = notebook.plain(limits)
    reading = re.findall(r"^- (.+)$", further, re.M)
    yield Slide(
        "Where the model fails",
        tuple(titles.fails) or tuple(notebook.taken(notebook.sentences(fails), WORDS)),
        "\n".join([fails, "Further reading:", *map(notebook.plain, reading)]),
        kind=END,
    )


def _sentence(text: str) -> str:
    return _upper(notebook.plain(text).rstrip(" .;")) + "."


def _upper(text: str) -> str:
    return text[:1].upper() + text[1:]
