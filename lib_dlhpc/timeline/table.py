"""The event table that every engine fills: who did what, on which stream, from when to when.

A row is one event of one rank. The engine classifies it, in `stream` and `kind`, and
never guessed from a name:

    stream compute        forward, backward, update: work; wait, bubble, input, checkpoint: work stands
                          still for other ranks, for its turn in a pipeline, for the next batch, for a
                          checkpoint being written; kernel: work in the trace of a framework, one row an
                          operation of its accelerator or processor
    stream communication  one row a bucket, from the moment this rank joins to the moment it is done;
                          with a peer >= 0 one row a message, rank to peer, while it is in flight:
                          detail within it, which adds to no measure
                          send, receive, collective: a call of a program that was recorded, from entering
                          it to leaving it; peer is the other end, or the root where there is one;
                          what did not block is a row over its Wait. wait: a Probe, or a Wait for sends
    stream input          a batch being fetched; stream checkpoint: a checkpoint being written
    stream host           what the processor does beside an accelerator whose work is on stream compute;
                          step: a step of training, as a framework annotates it

What a recorded program names itself is kind region, on stream compute, and may lie within another.
A send and the receive of what it sent share a `match`, as do all calls of one collective; `comm` numbers
the communicator they are on, 0 being that of all ranks.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from lib_dlhpc.errors import SpecError, listed
from lib_dlhpc.results import Columns, Result, Summary
from lib_dlhpc.timeline.kinds import KINDS, STREAMS

if TYPE_CHECKING:
    import altair as alt


COLUMNS = {
    "rank": np.int32,
    "stream": np.int8,
    "kind": np.int8,
    "name": np.int32,
    "start": np.float64,
    "stop": np.float64,
    "bytes": np.int64,
    "peer": np.int32,
    "comm": np.int32,
    "match": np.int64,
}
# of columns that an engine may leave out
DEFAULTS = {"bytes": 0, "peer": -1, "comm": 0, "match": -1}
Column: TypeAlias = NDArray[Any]


class Event(NamedTuple):
    """One row, in words: for engines that meet their events one at a time."""

    rank: int
    stream: str
    kind: str
    name: str
    start: float  # s
    stop: float  # s
    bytes: int = 0
    peer: int = -1
    comm: int = 0
    match: int = -1


@dataclass(frozen=True, eq=False, repr=False)
class Timeline(Result):
    """Events as columns of one length; `names[name]` and `KINDS[kind]` are their words."""

    rank: Column
    stream: Column  # index into STREAMS
    kind: Column  # index into KINDS
    name: Column  # index into names
    start: Column  # s
    stop: Column  # s
    bytes: Column
    peer: Column  # rank, -1: none
    comm: Column  # number of a communicator, 0: all ranks
    match: Column  # what was sent and received, or done together, has the same; -1: nothing
    names: tuple[str, ...]
    ranks: int
    source: str  # "simulated", "measured" ...

    def __len__(self) -> int:
        return len(self.rank)

    def __iter__(self) -> Iterator[Event]:
        """Yield the rows as Events, in words."""
        for row in zip(*(getattr(self, column).tolist() for column in COLUMNS), strict=True):
            rank, stream, kind, name, *others = row
            yield Event(rank, STREAMS[stream], KINDS[kind], self.names[name], *others)

    def select(self, rows: Any) -> "Timeline":
        """Return the rows of a mask or of a list of indices."""
        return replace(self, **{column: getattr(self, column)[rows] for column in COLUMNS})

    def sorted(self) -> "Timeline":
        """Return the rows by rank, then by start; rows that start together keep their order."""
        return self.select(np.lexsort((self.start, self.rank)))

    def where(self, stream: str = "", *kinds: str) -> NDArray[np.bool_]:
        """Return the mask of the rows on `stream` ("": any) of one of `kinds` (none: any)."""
        mask = np.ones(len(self), dtype=np.bool_)
        if stream:
            mask &= self.stream == _index(STREAMS, "stream", stream)
        if kinds:
            mask &= np.isin(self.kind, [_index(KINDS, "kind", kind) for kind in kinds])
        return mask

    def summary(self) -> Summary:
        """Return ranks, events, span and the time of each kind, in words."""
        from lib_dlhpc.timeline.summary import summary

        return summary(self)

    def to_columns(self) -> Columns:
        """Return a row for each event, in words and s; `breakdown` has the terms of a step."""
        from lib_dlhpc.timeline.summary import columns

        return columns(self)

    def plot(self) -> "alt.Chart":
        """Return a Gantt chart of some ranks; `select` chooses other rows."""
        from lib_dlhpc.results.charts import gantt
        from lib_dlhpc.timeline.summary import drawn

        part = drawn(self)
        title = f"{self.summary().title}; {len(part):,} of them shown"
        return gantt(part.to_columns(), title)


def columns(
    *,
    rank: Any,
    stream: str,
    kind: str,
    name: Any,
    start: Any,
    stop: Any,
    names: Sequence[str],
    ranks: int,
    source: str,
    bytes: Any = 0,
    peer: Any = -1,
    comm: Any = 0,
    match: Any = -1,
) -> Timeline:
    """Return the Timeline of arrays that broadcast together: for engines that meet many events at once.

    All rows share `stream` and `kind`; `name` indexes `names`. Shapes may have any number of axes.
    Raises SpecError for what is no table: see `check`.
    """
    given = {"rank": rank, "name": name, "start": start, "stop": stop}
    given |= {"bytes": bytes, "peer": peer, "comm": comm, "match": match}
    arrays = np.broadcast_arrays(*given.values())
    values = {key: array.reshape(-1) for key, array in zip(given, arrays, strict=True)}
    rows = values["rank"].size
    values["stream"] = np.full(rows, _index(STREAMS, "stream", stream))
    values["kind"] = np.full(rows, _index(KINDS, "kind", kind))
    typed = {column: values[column].astype(kind_of) for column, kind_of in COLUMNS.items()}
    return check(Timeline(**typed, names=tuple(names), ranks=ranks, source=source))


def from_rows(rows: Iterable[Sequence[Any]], ranks: int, source: str) -> Timeline:
    """Return the Timeline of Events, or of tuples like them. Raises SpecError: see `check`."""
    events = [Event(*row) for row in rows]
    numbers: dict[str, int] = {}
    table = {
        "rank": [event.rank for event in events],
        "stream": [_index(STREAMS, "stream", event.stream) for event in events],
        "kind": [_index(KINDS, "kind", event.kind) for event in events],
        "name": [numbers.setdefault(event.name, len(numbers)) for event in events],
        "start": [event.start for event in events],
        "stop": [event.stop for event in events],
        "bytes": [event.bytes for event in events],
        "peer": [event.peer for event in events],
        "comm": [event.comm for event in events],
        "match": [event.match for event in events],
    }
    typed = {column: np.array(table[column], dtype=kind) for column, kind in COLUMNS.items()}
    return check(Timeline(**typed, names=tuple(numbers), ranks=ranks, source=source))


def join(parts: Iterable[Timeline]) -> Timeline:
    """Return all rows of the parts, at least one, which must be of the same ranks and source."""
    names: dict[str, int] = {}
    found: dict[str, Column] = {column: np.empty(0, kind) for column, kind in COLUMNS.items()}
    for part in parts:
        numbers = np.array([names.setdefault(name, len(names)) for name in part.names], np.int32)
        for column, rows in found.items():
            more = getattr(part, column)
            # In place, so that what parts yield one by one is in memory once.
            rows.resize(len(rows) + len(part), refcheck=False)
            rows[len(rows) - len(part) :] = numbers[more] if column == "name" else more
    return Timeline(**found, names=tuple(names), ranks=part.ranks, source=part.source)


def check(timeline: Timeline) -> Timeline:
    """Return the timeline; raises SpecError at the first row that ends before it starts or has no such rank."""
    backwards = ~(timeline.stop >= timeline.start)  # also true of NaN
    strangers = (timeline.rank < 0) | (timeline.rank >= timeline.ranks)
    for wrong, why in ((backwards, "ends before it starts"), (strangers, "is of no such rank")):
        if wrong.any():
            row = int(np.argmax(wrong))
            raise SpecError(
                f"Event {row} ({timeline.names[timeline.name[row]]}, rank {timeline.rank[row]} of"
                f" {timeline.ranks}, {timeline.start[row]:g} s to {timeline.stop[row]:g} s) {why}."
            )
    return timeline


def _index(legal: tuple[str, ...], field: str, value: str) -> int:
    if value not in legal:
        raise SpecError(listed(f"{field} = {value!r}:", value, legal, "expected one of"))
    return legal.index(value)
