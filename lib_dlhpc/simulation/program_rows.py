"""Steps of a program as rows of the Timeline: what ranks at one place of the pipeline do, together."""

from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np

from lib_dlhpc.layout import Place
from lib_dlhpc.timeline import Timeline, columns, from_rows, join
from lib_dlhpc.timeline.measure import WORK


class Span(NamedTuple):
    """An event of all ranks at one place of the pipeline; start and stop, in s, may differ between them."""

    place: int
    stream: str
    kind: str
    name: str
    start: Any  # (data, spatial, tensor), or one for all
    stop: Any
    bytes: float = 0.0


def table(spans: Iterable[Span], size: Place) -> Timeline:
    """Return a row for each rank of a span that is work, or lasts at all; size: ranks in each direction."""
    alike: dict[tuple[str, str], list[Span]] = {}
    numbers: dict[str, int] = {}
    for span in spans:
        alike.setdefault((span.stream, span.kind), []).append(span)
        numbers.setdefault(span.name, len(numbers))
    many, ranks = int(np.prod(size[1:])), int(np.prod(size))
    parts = [from_rows([], ranks, "simulated")]
    for (stream, kind), rows in alike.items():
        start, stop = np.empty((2, len(rows), *size[1:]))
        for number, span in enumerate(rows):
            start[number], stop[number] = span.start, span.stop
        stop = np.maximum(start, stop) if kind in WORK else stop  # less by rounding only
        lasts = ((stop > start) | (kind in WORK)).reshape(len(rows), many)
        row, column = np.nonzero(lasts)
        parts.append(
            columns(
                rank=np.array([span.place for span in rows])[row] * many + column,
                stream=stream,
                kind=kind,
                name=np.array([numbers[span.name] for span in rows])[row],
                names=list(numbers),
                start=start.reshape(lasts.shape)[lasts],
                stop=stop.reshape(lasts.shape)[lasts],
                bytes=np.array([round(span.bytes) for span in rows])[row],
                ranks=ranks,
                source="simulated",
            )
        )
    return join(parts)
