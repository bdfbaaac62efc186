"""What one rank does and when, recorded as cheaply as Python can: `with region("name")`.

An event is one packed row, written once, at its end, into memory that is mapped in pieces: no object is kept,
and nothing is copied until all is collected. Where the pieces are those of a file, the rows of a process
that is killed are there for others to read.
"""

import functools
import json
import mmap
import os
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from struct import Struct
from time import perf_counter_ns
from typing import Any, BinaryIO, ParamSpec, TextIO, TypeVar
from weakref import WeakSet

import numpy as np
from numpy.typing import NDArray

from lib_dlhpc.errors import SpecError, listed

ROW = np.dtype(
    [
        ("start", "<i8"),  # ns of this rank's clock
        ("stop", "<i8"),
        ("bytes", "<i8"),  # UNKNOWN: known to the receiver only
        ("order", "<i8"),  # what tells calls apart that match by their order; see matching.py
        ("event", "<i4"),  # which words, counted from 1; 0: no row
        ("peer", "<i4"),
        ("comm", "<i4"),  # which of this rank's communicators
        ("tag", "<i4"),
    ]
)
PACK = Struct("<qqqqiiii").pack
PIECE = ROW.itemsize * 65536  # B; of whole rows and whole pages
UNKNOWN = -1
WORLD = "world"
STORAGE = ("input", "checkpoint")  # what a program may wait for on its own

P = ParamSpec("P")
R = TypeVar("R")


class Recorder:
    """The events of one rank, in the order in which they ended; `on` says whether more are recorded.

    path: a file for the rows, and beside it one with the suffix .words for what the numbers in them mean;
    none by default: they are kept in memory. Threads may share one. Raises OSError where there is no room.
    """

    def __init__(self, path: Path | None = None) -> None:
        self.on = True
        self.words: list[tuple[str, str, str]] = []  # stream, kind and name of event 1, 2 ...
        self.comms: list[str] = []  # what ranks that share a communicator all call it
        self.world: Any = None  # the group of the first of them
        self.clocks: list[tuple[int, int]] = []  # ns of this clock, what to add to read rank 0's
        self.regions: dict[str, int] = {}  # the events of regions, by their names
        self._numbers: dict[tuple[str, str, str], int] = {}
        self._lock = threading.Lock()
        self._start(path)

    def keep_in(self, path: Path) -> None:
        """Go on in a file, and put there what has been recorded so far."""
        rows, on = self.rows(), self.on
        self._start(path)
        self.on = True  # what has been recorded is not to be lost where no more is
        for row in rows:
            self._write_on(row.tobytes())
        self.on &= on

    def number(self, stream: str, kind: str, name: str) -> int:
        """Return the number of an event with these words."""
        words = (stream, kind, name)
        known = self._numbers.get(words)
        if known is not None:
            return known
        with self._lock:
            if words not in self._numbers:
                self.words.append(words)
                self._write_note(words=words)
                self._numbers[words] = len(self.words)
        return self._numbers[words]

    def communicator(self, key: str) -> int:
        """Return this rank's number of a new communicator that all its members call `key`."""
        self.comms.append(key)
        self._write_note(comm=key)
        return len(self.comms) - 1

    def clock(self, offset: int) -> None:
        """Note what now has to be added to this rank's clock to read rank 0's, in ns."""
        self.clocks.append((perf_counter_ns(), offset))
        self._write_note(clock=self.clocks[-1])

    def add(
        self,
        event: int,
        start: int,
        stop: int,
        size: int = 0,
        peer: int = -1,
        comm: int = 0,
        tag: int = 0,
        order: int = 0,
    ) -> None:
        """Take down what went on from `start` to `stop` (ns of perf_counter_ns); see `number` for `event`."""
        if self.on:
            row = PACK(start, stop, size, order, event, peer, comm, tag)
            try:
                self._write(row)
            except ValueError:  # the piece is full
                self._write_on(row)

    def rows(self) -> NDArray[Any]:
        """Return a copy of all rows (ROW) so far."""
        rows = np.concatenate([np.frombuffer(bytes(piece), ROW) for piece in self._pieces])
        return rows[rows["event"] > 0]

    def clear(self) -> None:
        """Forget all rows."""
        self._start(None)

    def note(self, **what: Any) -> None:
        """Write a note for the reader of the files, if there are files."""
        self._write_note(**what)

    def _start(self, path: Path | None) -> None:
        self._file: BinaryIO | None = None
        self._notes: TextIO | None = None
        if path is not None:
            self._file = open(path, "w+b")  # noqa: SIM115
            self._notes = open(path.with_suffix(".words"), "w", encoding="utf-8")  # noqa: SIM115
        self._pieces: list[mmap.mmap] = []
        for words in self.words:
            self._write_note(words=words)
        self._next_piece()
        _LIVING.add(self)

    def _next_piece(self) -> None:
        at = len(self._pieces) * PIECE
        if self._file is None:
            piece = mmap.mmap(-1, PIECE)
        else:
            self._file.truncate(at + PIECE)
            # A mapped page that the disk has no room for would end the program.
            if hasattr(os, "posix_fallocate"):
                os.posix_fallocate(self._file.fileno(), at, PIECE)
            piece = mmap.mmap(self._file.fileno(), PIECE, offset=at)
        self._pieces.append(piece)
        self._write = piece.write

    def _write_on(self, row: bytes) -> None:
        with self._lock:
            if self._pieces[-1].tell() == PIECE:  # else another thread was here first
                try:
                    self._next_piece()
                except OSError as error:  # the program continues, its record does not
                    self.on = False
                    self._write_note(lost=f"its record ends early: {error.strerror}.")
            if self.on:
                self._write(row)

    def _write_note(self, **what: Any) -> None:
        if self._notes is not None:
            with suppress(OSError):
                self._notes.write(json.dumps(what) + "\n")
                self._notes.flush()


_LIVING: WeakSet[Recorder] = WeakSet()
HERE = Recorder()


class region:
    """A stretch of a program under a name: `with region("solve"):`, or each call of a function, `@region("solve")`.

    One that is kept may be entered again from within, by one thread; threads each make their own.
    kind: "region"; "input" or "checkpoint" where the program waits for storage, so that a slow disk
    is found: on stream compute if the main thread does, else on the stream of that name, beside it.
    Raises SpecError for another kind.
    """

    __slots__ = ("_again", "_event", "_open", "_recorder")

    def __init__(self, name: str, recorder: Recorder = HERE, kind: str = "region") -> None:
        # The arguments, where the stream depends on the thread that calls.
        self._again: Any = None
        if kind == "region":
            try:
                self._event = recorder.regions[name]
            except KeyError:
                self._event = recorder.regions[name] = recorder.number("compute", "region", name)
        else:
            if kind not in STORAGE:
                known = ("region", *STORAGE)
                raise SpecError(listed(f"kind = {kind!r}:", kind, known, "expected one of"))
            main = threading.current_thread() is threading.main_thread()
            self._event = recorder.number("compute" if main else kind, kind, name)
            self._again = (name, recorder, kind)
        self._recorder = recorder
        self._open: Any = None  # when it was entered, and the same of what it was entered from

    def __enter__(self) -> None:
        self._open = (perf_counter_ns(), self._open)

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        start, self._open = self._open
        recorder = self._recorder
        # What `add` does, without the call, which takes as long as a reading of the clock.
        if recorder.on:
            row = PACK(start, perf_counter_ns(), 0, 0, self._event, -1, 0, 0)
            try:
                recorder._write(row)
            except ValueError:
                recorder._write_on(row)

    def __call__(self, function: Callable[P, R]) -> Callable[P, R]:
        event, add, again = self._event, self._recorder.add, self._again
        if again is not None:

            @functools.wraps(function)
            def recorded(*arguments: P.args, **options: P.kwargs) -> R:
                with region(*again):
                    return function(*arguments, **options)

            return recorded

        @functools.wraps(function)
        def timed(*arguments: P.args, **options: P.kwargs) -> R:
            start = perf_counter_ns()
            try:
                return function(*arguments, **options)
            finally:
                add(event, start, perf_counter_ns())

        return timed


def _stop_in_child() -> None:
    """A forked process must not write over the rows of the one that it came from."""
    for recorder in _LIVING:
        recorder.on = False


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_stop_in_child)
