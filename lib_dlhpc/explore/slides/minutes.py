"""When each slide is shown: the slides of a section share the minutes that the plan in the instructor notes gives it.

A plan is a table: | 15-25 | *How does a schedule sum?* Play the ring | ... |. Its first row is the question, with the
first guess where it says so, the second the rest of the first section, the last the checks.
"""

import re
from collections.abc import Iterator, Sequence
from itertools import accumulate
from typing import NamedTuple

from lib_dlhpc.explore.slides.asked import TRY
from lib_dlhpc.explore.slides.notebook import plain
from lib_dlhpc.explore.slides.slide import (
    AGENDA,
    BOARD,
    CHECK,
    CODE,
    DISCUSS,
    END,
    NEXT,
    OPENING,
    PREDICT,
    Slide,
)

# of a slide's time, beside others' two; each thing to try is one more
WEIGHTS = {OPENING: 1.0, AGENDA: 0.5, END: 1.0, NEXT: 1.0}
ITALICS, AT_HOME = r"\*(.+?)\*", r"\*([^*]+)\* at home"
OPTIONAL = "Optional: the 50 minutes leave no time."
READ = 30  # s of a slide before its experiments begin
STEP = 10  # s: times are multiples


class Row(NamedTuple):
    """A row of a plan: seconds from the beginning, and what happens, with headings in italics."""

    begin: int
    end: int
    during: str


def plan(notes: str) -> list[Row]:
    """Return the plan of a class of 50 minutes in instructor notes."""
    found = re.findall(r"^\| (\d+)-(\d+) \| ([^|]+) \|", notes, re.M)
    return [Row(60 * int(begin), 60 * int(end), during) for begin, end, during in found]


def timed(slides: Sequence[Slide], notes: str) -> Iterator[Slide]:
    """Yield slides whose notes begin with their times, or say that they are optional."""
    rows = plan(notes)
    places = list(rows_of(slides, rows))
    for place, slide in zip(places, slides, strict=True):
        if place is None:
            said = slide.notes.replace(TRY, _to_try(slide, 0))
            yield slide._replace(notes=f"{OPTIONAL}\n{said}", optional=True)
            continue
        own = [each for each, row in zip(slides, places, strict=True) if row == place]
        weights = [_weight(each) for each in own]
        length = rows[place].end - rows[place].begin
        parts = (STEP * round(length / STEP * each / sum(weights)) for each in accumulate(weights))
        ends = [rows[place].begin + part for part in parts]
        at = next(number for number, each in enumerate(own) if each is slide)
        begin, end = (rows[place].begin, *ends)[at : at + 2]
        said = slide.notes.replace(TRY, _to_try(slide, (end - begin - READ) // 60))
        yield slide._replace(
            notes=f"Minutes {_clock(begin)} to {_clock(end)} of {rows[-1].end // 60}.\n{said}"
        )


def rows_of(slides: Sequence[Slide], rows: Sequence[Row]) -> Iterator[int | None]:
    """Yield the number of the row of each slide, or None for one that the plan leaves out."""
    place, asked = 0, False
    for slide in slides:
        if slide.kind in (BOARD, CODE) and not slide.section:
            yield None
        elif slide.kind in (DISCUSS, END, NEXT) or (slide.kind == CHECK and not slide.section):
            yield len(rows) - 1
        else:
            named = [
                n
                for n, row in enumerate(rows)
                if n >= place and _names(row, slide.section, ITALICS)
            ]
            first = asked or (slide.kind == PREDICT and "guess" not in rows[0].during)
            place = (*named, max(place, int(first)))[0]
            asked = asked or slide.kind == PREDICT
            yield None if _names(rows[place], slide.section, AT_HOME) else place


def _names(row: Row, heading: str, pattern: str) -> bool:
    """Whether a row has a heading, or how it begins, where a pattern says."""
    return any(_bare(heading).startswith(_bare(each)) for each in re.findall(pattern, row.during))


def _bare(heading: str) -> str:
    return re.sub(r"[^\w -]", "", plain(heading)).lower()


def _tries(slide: Slide) -> int:
    """Return how many things to try the notes of a slide have."""
    return len(re.findall(r"^\d+\. ", slide.notes.partition(TRY)[2], re.M))


def _weight(slide: Slide) -> float:
    return WEIGHTS.get(slide.kind, 2.0) + _tries(slide)


def _to_try(slide: Slide, room: int) -> str:
    """Return the line above what to try: with how much of it there is time for, a minute each."""
    if room >= _tries(slide):
        return TRY
    on = TRY.removesuffix(" Try:")
    first = f"the first {room}" if room > 1 else "the first"
    return f"{on} Try {first}, the others are optional:" if room > 0 else f"{on} Optional:"


def _clock(seconds: int) -> str:
    return f"{seconds // 60}:{seconds % 60:02}"
