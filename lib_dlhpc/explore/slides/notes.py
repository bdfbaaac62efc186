"""What to say beside a slide: no sentence twice, neither on a slide nor on the next one."""

import re
from collections.abc import Iterator, Sequence

from lib_dlhpc.explore.slides.notebook import sentences
from lib_dlhpc.explore.slides.slide import Slide

LONG = 8  # words up to which a sentence may be said again
NUMBER = re.compile(r"(?:\d+\.|[A-G]\.|-) ")  # before a line of a list


def unrepeated(slides: Sequence[Slide]) -> Iterator[Slide]:
    """Yield slides without the sentences that their notes, or those of the slide before, have already."""
    before: set[str] = set()
    for slide in slides:
        own = set[str]()
        lines = (_new(line, before, own) for line in slide.notes.split("\n"))
        kept = "\n".join(line for line in lines if line is not None)
        yield slide._replace(notes=re.sub(r"\n{3,}", "\n\n", kept).strip())
        before = own


def said(notes: str) -> Iterator[str]:
    """Yield the sentences of some notes that are too long to be said twice."""
    for line in notes.split("\n"):
        yield from filter(_long, sentences(NUMBER.sub("", line, count=1)))


def _long(sentence: str) -> bool:
    return len(sentence.split()) > LONG


def _new(line: str, before: set[str], own: set[str]) -> str | None:
    """Return a line without the sentences that are known, or None where nothing of it is left.

    own: the sentences of its slide so far, which grow.
    """
    mark = NUMBER.match(line)
    head, rest = (mark[0], line[mark.end() :]) if mark else ("", line)
    kept, known = list[str](), False  # a short sentence goes with the one before it
    for sentence in sentences(rest):
        if _long(sentence):
            known = sentence in own or sentence in before
            own.add(sentence)
        kept += [] if known else [sentence]
    return head + " ".join(kept) if kept or not rest else None
