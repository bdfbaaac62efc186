"""Steps of a program as rows of the Timeline: what ranks at one place of the pipeline do, together."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from lib_dlhpc.layout import Place
from lib_dlhpc.timeline import Timeline, columns, join
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


def tables(spans: list[Span], size: Place) -> Iterator[Timeline]:
    """Yield for each place a row for each rank of a span that is work, or lasts at all; size: ranks in each direction.

    To take less memory, it empties the list of spans. All tables have the same names.
    """
    kinds = dict.fromkeys((span.stream, span.kind) for span in spans)
    names = dict.fromkeys(span.name for span in spans)
    numbers = {name: number for number, name in enumerate(names)}
    places = [{kind: list[Span]() for kind in kinds} for _ in range(size[0])]
    for span in spans:
        places[span.place][span.stream, span.kind].append(span)
    spans.clear()
    while places:
        alike = places.pop(0)
        yield join([_rows(*kind, each, numbers, size) for kind, each in alike.items()])


def _rows(
    stream: str, kind: str, spans: Sequence[Span], numbers: Mapping[str, int], size: Place
) -> Timeline:
    """Return the rows of spans of one kind; numbers: of all names."""
    many, ranks = int(np.prod(size[1:])), int(np.prod(size))
    start, stop = np.empty((2, len(spans), *size[1:]))
    for number, span in enumerate(spans):
        start[number], stop[number] = span.start, span.stop
    stop = np.maximum(start, stop) if kind in WORK else stop  # less by rounding only
    lasts = ((stop > start) | (kind in WORK)).reshape(len(spans), many)
    row, column = np.nonzero(lasts)
    return columns(
        rank=np.array([span.place for span in spans], np.int64)[row] * many + column,
        stream=stream,
        kind=kind,
        name=np.array([numbers[span.name] for span in spans], np.int64)[row],
        names=list(numbers),
        start=start.reshape(lasts.shape)[lasts],
        stop=stop.reshape(lasts.shape)[lasts],
        bytes=np.array([round(span.bytes) for span in spans], np.int64)[row],
        ranks=ranks,
        source="simulated",
    )
