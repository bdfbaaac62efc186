"""What each chart shows: columns for its drawing, and the same in a sentence.

A drawing is made once (see drawing.py and built.py); here numbers become the columns of its named
datasets.  Each `..._state` returns (data, summary), what Figure.update takes:

    memory = chart("memory")
    memory.update(*memory_state(ledger, capacity))
"""

from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from lib_dlhpc.explore.blocks.built import drawings
from lib_dlhpc.explore.blocks.figure import Figure
from lib_dlhpc.spec.units import format_quantity

Data = dict[str, dict[str, Any]]
State = tuple[Data, str]


def drawing(name: str) -> dict[str, Any]:
    """Return the compiled drawing called `name`; KeyError names the legal ones."""
    known = drawings()
    if name not in known:
        raise KeyError(f"no drawing {name!r}; there are: {', '.join(known)}")
    return known[name]


def chart(name: str, data: Data | None = None, summary: str = "") -> Figure:
    """Return a Figure of the drawing called `name`, empty or with its first state."""
    return Figure(drawing(name), data or {}, summary)


def spread_labels(places: Sequence[float], shown: Iterable[float]) -> list[float]:
    """Move labels on a logarithmic axis apart until a line of text fits between them."""
    moved = apart(np.log(places), line_of_text(shown), passes=4)
    return [float(place) for place in np.exp(moved)]


def line_of_text(shown: Iterable[float]) -> float:
    """Return the height of a line of text on a logarithmic axis that shows these values."""
    return max(float(np.ptp(np.log(list(shown)))), 0.05) * 0.085


def apart(places: Iterable[float], gap: float, passes: int = 12) -> list[float]:
    """Move labels on a linear axis apart until `gap` lies between them; each pass halves what is missing."""
    moved = np.asarray(list(places), dtype=float)
    order = np.argsort(moved, kind="stable")
    for _ in range(passes):
        for low, high in pairwise(order):
            missing = gap - (moved[high] - moved[low])
            if missing > 0:
                moved[low] -= missing / 2
                moved[high] += missing / 2
    return [float(place) for place in moved]


def columns(rows: Iterable[Mapping[str, Any]]) -> dict[str, list[Any]]:
    """Return rows, all with the same names, as columns."""
    listed = list(rows)
    return {name: [row[name] for row in listed] for name in listed[0]} if listed else {}


def marked(words: str, late: bool, shift: int, **place: float) -> dict[str, list[Any]]:
    """Return the columns of one mark with its words; see `beside`."""
    return columns([{**place, "words": words, **beside(late, shift)}])


def beside(late: bool, shift: int) -> dict[str, Any]:
    """Return where the words of a mark are; late: to its left, to stay in the picture."""
    return {"side": "right", "shift": -shift} if late else {"side": "left", "shift": shift}


def stacked(parts: Mapping[str, float]) -> list[tuple[str, float, float]]:
    """Return (name, start, stop) of parts that lie end to end, those of no length left out."""
    ends = np.cumsum([0.0, *parts.values()]).tolist()
    return [(name, a, b) for name, (a, b) in zip(parts, pairwise(ends), strict=True) if b > a]


def between(band: tuple[float, float]) -> str:
    """Return the ends of a band of seconds, in words."""
    return f"{format_quantity(band[0], 's')} to {format_quantity(band[1], 's')}"
