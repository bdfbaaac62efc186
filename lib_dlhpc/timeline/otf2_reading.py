"""An OTF2 archive read: ours as it was, those of Score-P and others as the table has it.

Of another program's archive (its ranks, streams and communicators: otf2_definitions.py)

    a region            is an event of kind region, on stream communication where its paradigm is MPI
    MpiSend, MpiRecv    within a call make it a send, a receive; a call may be several (MPI_Waitall)
    a collective's end  within a call makes it a collective
    match               sends and receives in order of communicator, ends and tag, as MPI orders them: a
                        receive has the place of its request; collectives by their number on a communicator

A thread is no stream: what two threads of a process do at once overlaps. Needs the package otf2.
"""

import ctypes
import itertools
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, redirect_stderr
from dataclasses import dataclass, field
from io import StringIO
from pathlib import Path
from typing import Any

from lib_dlhpc.errors import SpecError
from lib_dlhpc.spec.units import count
from lib_dlhpc.timeline.files import Tell
from lib_dlhpc.timeline.lanes import in_order
from lib_dlhpc.timeline.otf2 import ANCHOR, library
from lib_dlhpc.timeline.otf2_definitions import about, communicators, ranks, streams
from lib_dlhpc.timeline.rows import Rows, check_ranks
from lib_dlhpc.timeline.table import Timeline

EXPECTED = f"expected an OTF2 archive: the anchor file ({ANCHOR}), or the folder it is in"
SELF = 2**32 - 2  # root of a collective; it has none, or one elsewhere, is near it
CALLS = {
    "MpiSend": "send",
    "MpiIsend": "send",
    "MpiRecv": "receive",
    "MpiIrecv": "receive",
    "MpiCollectiveEnd": "collective",
    "NonBlockingCollectiveComplete": "collective",
}
REQUESTS = {"MpiIrecvRequest", "NonBlockingCollectiveRequest"}
# Events that say no more than the region around them.
PLAIN = {
    *("MpiCollectiveBegin", "MpiIsendComplete", "MpiProbe", "MpiRequestTest"),
    *("ProgramBegin", "ProgramEnd", "ThreadBegin", "ThreadCreate", "ThreadEnd"),
    *("ThreadFork", "ThreadJoin", "ThreadTeamBegin", "ThreadTeamEnd", "ThreadWait"),
}


def anchor(path: Path) -> Path:
    """Return the anchor file of an archive. Raises SpecError if there is none."""
    if not path.is_dir():
        if not path.is_file() or path.suffix != ".otf2":
            raise SpecError(f"{path}: {'no such file' if not path.exists() else EXPECTED}.")
        return path
    anchors = (
        [path / ANCHOR]
        if (path / ANCHOR).is_file()
        else sorted(file for file in path.glob("*.otf2") if file.is_file())
    )
    if len(anchors) != 1:
        raise SpecError(f"{path}: has {len(anchors) or 'no'} files that end in .otf2; {EXPECTED}.")
    return anchors[0]


def read_otf2(path: Path, tell: Tell) -> Timeline:
    """Return the timeline of an archive. Raises SpecError for what cannot be read, and without the package otf2."""
    file, otf2 = anchor(path), library()
    from _otf2.ErrorCodes import Error  # type: ignore[import-untyped]

    broken = (Error, otf2.error.TraceReaderError, LookupError, TypeError, ValueError)
    notes: list[str] = []
    with _silent() as printed:
        try:
            with otf2.reader.open(str(file), batch_events=4096) as archive:
                timeline = _Reading(otf2, archive).timeline(notes.append)
        except SpecError as error:
            raise SpecError(f"{file}: {error}") from None
        except (*broken, AttributeError, OverflowError) as error:
            why = printed[0] if printed else str(error) or type(error).__name__
            raise SpecError(f"{file}: cannot be read: {why.rstrip('.!')}; {EXPECTED}.") from None
    for sentence in notes:
        tell(f"{file}: {sentence}")
    return timeline


@contextmanager
def _silent() -> Iterator[list[str]]:
    """Collect the error messages of the library, which it would print as well as raise."""
    from _otf2.Config import conf  # type: ignore[import-untyped]

    printed: list[str] = []

    def hear(
        data: int, file: bytes, line: int, function: bytes, code: int, text: bytes, rest: int
    ) -> int:
        if text and b"%" not in text:
            printed.append(text.decode(errors="replace"))
        return code

    number, pointer, text = ctypes.c_int, ctypes.c_void_p, ctypes.c_char_p
    given = (pointer, text, ctypes.c_uint64, text, number, text, pointer)
    heard = ctypes.CFUNCTYPE(number, *given)(hear)
    register = conf.lib.OTF2_Error_RegisterCallback
    register.argtypes, register.restype = [pointer, pointer], pointer
    before = register(ctypes.cast(heard, pointer), None)
    try:
        # Exceptions in callbacks are printed on stderr and also raised.
        with redirect_stderr(StringIO()):
            yield printed
    finally:
        register(before, None)


@dataclass
class _Call:
    """An open region, and the MPI events within it: the event, its place in the order."""

    region: Any
    start: int
    note: dict[str, int]
    inner: list[tuple[str, Any, int]] = field(default_factory=list)


class _Reading:
    """One pass over the events; what is left out is counted."""

    def __init__(self, otf2: Any, archive: Any) -> None:
        self.otf2, self.archive, self.definitions = otf2, archive, archive.definitions
        self.about = about(self.definitions)
        self.rank_of = ranks(otf2, self.definitions)
        most = max(self.rank_of.values(), default=-1) + 1
        if most < 1:
            raise ValueError("no process is defined in it")
        self.ranks = int(self.about.get("ranks", most))
        check_ranks(self.ranks)
        self.stream_of = streams(otf2, self.rank_of, bool(self.about))
        everyone = list(range(self.ranks))
        self.comms = communicators(otf2, self.definitions, self.rank_of, everyone, bool(self.about))
        self.rows = Rows(ticks=True)
        self.messages: dict[Any, tuple[list[Any], list[Any]]] = defaultdict(lambda: ([], []))
        self.collectives: dict[Any, dict[int, list[Any]]] = defaultdict(lambda: defaultdict(list))
        self.odd: Counter[tuple[str, str]] = Counter()

    def timeline(self, tell: Tell) -> Timeline:
        """Return all events of processes."""
        clock = self.definitions.clock_properties
        base = 0 if self.about else clock.global_offset
        stacks: dict[Any, list[_Call]] = {location: [] for location in self.rank_of}
        asked: dict[tuple[Any, int], int] = {}
        last: dict[Any, int] = {}
        seen: Counter[Any] = Counter()
        order = itertools.count()
        for location, event in self.archive.events:
            stack, what = stacks.get(location), type(event).__name__
            seen[location] += 1
            if stack is None:
                self.odd["event", "of no process left out"] += 1
                continue
            time = last[location] = event.time - base
            if what == "Enter":
                note = {key.name: value for key, value in (event.attributes or {}).items()}
                stack.append(_Call(event.region, time, note if self.about else {}))
            elif what == "Leave":
                self._leave(location, stack, event.region, time)
            elif what in CALLS and stack:
                place = next(order)
                if getattr(event, "request_id", None) is not None:
                    place = asked.pop((location, event.request_id), place)
                stack[-1].inner.append((CALLS[what], event, place))
            elif what in REQUESTS:
                asked[location, event.request_id] = next(order)
            elif what not in PLAIN:
                self.odd["event", f"{what} left out"] += 1
        self._check(seen)
        for location, stack in stacks.items():
            self.odd["region", "that is never left: as if at the last event of its thread"] += len(
                stack
            )
            while stack:
                self._close(location, stack.pop(), last[location])
        if not self.about:
            self._match()
        for (noun, what), times in (+self.odd).items():
            tell(f"{count(times, noun)} {what}.")
        return self._table(clock.timer_resolution)

    def _check(self, seen: Counter[Any]) -> None:
        """Look whether all events came: the library is silent where a file of them ends in the middle."""
        for location, number in seen.items() | {
            (place, 0) for place in self.rank_of if place not in seen
        }:
            missing = location.number_of_events - number
            if missing > 0 and self.about:
                found = f"{number:,} of {location.number_of_events:,} events"
                raise SpecError(f"cannot be read: {found} of location {location.name!r} are there.")
            self.odd["event", "that the archive counts but does not have"] += max(missing, 0)

    def _table(self, ticks: int) -> Timeline:
        starts = self.rows.columns["start"]
        zero = -int(self.about["zero"]) if self.about else min(starts, default=0)
        source = self.about.get("source", "measured")
        table = self.rows.timeline(self.ranks, source, zero, float(ticks))
        table = table.select(slice(None, None, -1))  # a region is left after what is within it
        return table.select(in_order(table, table.start, table.stop)).sorted()

    def _leave(self, location: Any, stack: list[_Call], region: Any, stop: int) -> None:
        if not any(call.region is region for call in stack):
            self.odd["leave", "of what was not entered"] += 1
            return
        while stack[-1].region is not region:
            self.odd["region", "that is never left: as if with the region around it"] += 1
            self._close(location, stack.pop(), stop)
        self._close(location, stack.pop(), stop)

    def _close(self, location: Any, call: _Call, stop: int) -> None:
        """Add the row, or the rows, of a region that is left."""
        rank, stream, region = self.rank_of[location], self.stream_of[location], call.region
        if self.about:
            values = call.note
            for kind, event, _ in call.inner:
                values = values | self._values(rank, kind, event)
            self.rows.add(rank, stream, region.description, region.name, call.start, stop, **values)
            return
        if region.paradigm == self.otf2.Paradigm.MPI:
            stream = "communication"
        if not call.inner:
            self.rows.add(rank, stream, "region", region.name, call.start, stop)
        for kind, event, place in call.inner:
            values = self._values(rank, kind, event)
            self._remember(rank, kind, event, (place, len(self.rows)), values["peer"])
            self.rows.add(rank, "communication", kind, region.name, call.start, stop, **values)

    def _values(self, rank: int, kind: str, event: Any) -> dict[str, int]:
        number, members = self._comm(rank, event)
        if kind == "collective":
            size = event.size_sent or event.size_received
            end = getattr(event.root, "value", event.root)
            end = members.index(rank) if end == SELF and rank in members else end
        else:
            size, end = event.msg_length, event.receiver if kind == "send" else event.sender
        return {"bytes": size, "peer": members[end] if end < len(members) else -1, "comm": number}

    def _comm(self, rank: int, event: Any) -> tuple[int, Sequence[int]]:
        number, members = self.comms[event.communicator]
        return number, [rank] if members is None else members

    def _remember(self, rank: int, kind: str, event: Any, row: tuple[int, int], peer: int) -> None:
        comm = event.communicator
        if kind == "collective":
            alone = rank if self.comms[comm][1] is None else -1
            self.collectives[comm, alone][rank].append(row)
        elif peer >= 0:
            ends = (rank, peer) if kind == "send" else (peer, rank)
            self.messages[comm, ends, event.msg_tag][kind == "receive"].append(row)

    def _match(self) -> None:
        match, number = self.rows.columns["match"], itertools.count()
        for both in self.messages.values():
            sends, receives = map(sorted, both)
            for pair in zip(sends, receives, strict=False):
                same = next(number)
                for _, row in pair:
                    match[row] = same
            self.odd["message", "with one end only"] += abs(len(sends) - len(receives))
        for of_rank in self.collectives.values():
            lists = [sorted(rows) for rows in of_rank.values()]
            for calls in zip(*lists, strict=False):
                same = next(number)
                for _, row in calls:
                    match[row] = same
            most = max(map(len, lists))
            self.odd["collective call", "that another rank has not"] += sum(
                most - len(x) for x in lists
            )
