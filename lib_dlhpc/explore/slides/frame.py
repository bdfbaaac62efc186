"""What frames a class: its agenda at the beginning, and what comes next at its end."""

import re
from collections.abc import Iterator, Sequence

from lib_dlhpc.explore.course import LABS, PATH, Module
from lib_dlhpc.explore.slides.minutes import plan, rows_of
from lib_dlhpc.explore.slides.notebook import plain
from lib_dlhpc.explore.slides.slide import AGENDA, CHECK, DISCUSS, END, NEXT, Slide

OPENS, CLOSES = "The question", "Checks, statements to discuss, summary"
ALONE = "your own network, on your own machine"  # what follows the last module


def agenda(slides: Sequence[Slide], notes: str) -> Slide:
    """Return the slide of what a class does when: the sections in each row of the plan in the instructor notes."""
    rows = plan(notes)
    places = list(rows_of(slides, rows))
    parts = list[tuple[int, int, tuple[str, ...]]]()
    for number, row in enumerate(rows):
        own = (each for each, place in zip(slides, places, strict=True) if place == number)
        begin, named = row.begin, tuple(dict.fromkeys(filter(None, map(_heading, own))))
        if parts and (not named or set(parts[-1][2]) & set(named)):  # the same section goes on
            begin, _, before = parts.pop()
            named = tuple(dict.fromkeys((*before, *named)))
        parts.append((begin, row.end, named))
    cells = [(f"{a // 60}-{b // 60}", " · ".join(named) or OPENS) for a, b, named in parts]
    return Slide(
        f"From the question to the summary in {rows[-1].end // 60} minutes",
        notes=_skipped(notes),
        kind=AGENDA,
        table=(("minutes", "part"), *cells),
    )


def _heading(slide: Slide) -> str:
    """Return the part of a class that a slide belongs to, or nothing for what opens it."""
    return slide.section or (CLOSES if slide.kind in (CHECK, DISCUSS, END, NEXT) else "")


def _skipped(notes: str) -> str:
    """Return what to leave out when time is short, as the instructor notes say."""
    found = re.search(r"^.*?(Skip first: .+?)\n\n", notes, re.M | re.S)
    said = plain(found[1]) if found else "Leave out optional slides first."
    return f"Show it for a few seconds; return to it when time is short.\nShort of time? {said}"


def following(module: Module, text: str) -> Slide:
    """Return the slide of what comes after a module: practice, its labs, the next module, and what to read."""
    at = PATH.index(module) + 1
    after = PATH[at] if at < len(PATH) else None
    return Slide(
        f"Before next week, {f'when we begin {after.number} {after.title}' if after else ALONE}",
        tuple(_tasks(module, after, text)),
        "Say what is due, and when. "
        + (f"Ask for a guess before the next class: {after.question}" if after else ""),
        kind=NEXT,
    )


def _tasks(module: Module, after: Module | None, text: str) -> Iterator[str]:
    yield "Practice: the problems at the end of the page, which checks your answers."
    for lab in module.labs:
        yield f"Lab {lab[:2]}: {LABS[lab].title} ({LABS[lab].minutes} minutes)."
    reading = re.search(r"\*\*Further reading\*\*.*?^- (.+?)$", text, re.M | re.S)
    if reading:
        yield f"Read: {plain(reading[1])}"
    yield (
        f"Then: {after.question}" if after else "Then: the explorer, with all terms of the course."
    )
