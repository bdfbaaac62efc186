"""File calls of a loader on a folder, and its requests to a packed store, counted while it runs.

    with counted(folder) as calls:
        for batch in loader(folder):
            ...
    print(calls.now())

Python's functions are patched meanwhile, as in mount.py, so calls of all threads are counted; opens are
reported by the interpreter's audit hook (PEP 578). Reads through a memory map, from a descriptor of os.open, or by
another program are not seen; started programs are counted. A packed store's own calls are excluded, since its
threads may make them at any time; opened stores are counted.
"""

import builtins
import io
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from threading import Condition, Thread, current_thread
from threading import enumerate as threads
from time import perf_counter
from types import FunctionType
from typing import Any

from lib_dlhpc.storage.calls import ANSWERED
from lib_dlhpc.storage.patches import swap
from lib_dlhpc.storage.reading import Reader

KINDS = ("list", "stat", "open", "read", "close")
METADATA = ("list", "stat", "open", "close")
_STARTS = ("subprocess.Popen", "os.fork", "os.posix_spawn", "os.system")
_STORE = tuple(f"lib_dlhpc.storage.{name}" for name in ("index", "loading", "partition", "writing"))
_watching: list["Calls"] = []
_hooked = False


@dataclass(frozen=True)
class Counts:
    """Calls by kind; stores opened, requests to them, files asked for and their stored B; programs started."""

    calls: Mapping[str, int]
    stores: int = 0
    requests: int = 0
    files: int = 0
    stored: int = 0
    programs: int = 0

    @property
    def metadata(self) -> int:
        """Calls that a metadata server answers: list, stat, open, close."""
        return sum(self.calls[kind] for kind in METADATA)

    def __sub__(self, other: "Counts") -> "Counts":
        return Counts(
            {kind: self.calls[kind] - other.calls[kind] for kind in KINDS},
            self.stores - other.stores,
            self.requests - other.requests,
            self.files - other.files,
            self.stored - other.stored,
            self.programs - other.programs,
        )


@dataclass(eq=False)
class Calls:
    """Live counts, from any thread. delivered: files that the loader has yielded, set by the caller."""

    root: str
    count: dict[str, int] = field(default_factory=lambda: dict.fromkeys(KINDS, 0))
    seconds: dict[str, float] = field(default_factory=lambda: dict.fromkeys(KINDS, 0.0))
    stores: int = 0
    requests: int = 0
    files: int = 0
    stored: int = 0
    programs: int = 0
    delivered: int = 0
    most_ahead: int = 0  # files requested and not yet delivered
    changed: Condition = field(default_factory=Condition)
    before: set[Thread] = field(default_factory=lambda: {*threads()})  # none of the loader's

    def now(self) -> Counts:
        """Return the counts so far."""
        with self.changed:
            return Counts(
                dict(self.count), self.stores, self.requests, self.files, self.stored, self.programs
            )

    def add(self, kind: str, number: int = 1, seconds: float = 0.0) -> None:
        """Count calls."""
        with self.changed:
            self.count[kind] += number
            self.seconds[kind] += seconds

    def asked(self, files: int, stored: int) -> None:
        """Count one request to a store."""
        with self.changed:
            self.requests += 1
            self.files += files
            self.stored += stored
            self.most_ahead = max(self.most_ahead, self.files - self.delivered)
            self.changed.notify_all()

    def wait_for(self, files: int, patience: float) -> bool:
        """Wait until N files have been requested from a store; return whether it happened within `patience` s.

        While no thread of the loader's runs beside the caller, nothing can happen, and there is no wait.
        """
        alone = {*threads()} <= self.before | {current_thread()}
        with self.changed:
            return self.changed.wait_for(lambda: self.files >= files, 0.0 if alone else patience)

    def within(self, path: Any) -> bool:
        """Return whether a path is the folder or in it, and the caller is not a packed store."""
        if not isinstance(path, str | bytes | os.PathLike) or _called_by_store():
            return False
        full = os.path.abspath(os.fsdecode(path))
        return full == self.root or full.startswith(self.root + os.sep)

    @contextmanager
    def timed(self, kind: str, number: int = 1) -> Iterator[None]:
        """Count and time a call."""
        start = perf_counter()
        try:
            yield
        finally:
            self.add(kind, number, perf_counter() - start)


class CountedFile(io.FileIO):
    """A file open for reading that counts what reaches the system."""

    def __init__(self, path: Any, calls: Calls) -> None:
        self._calls = calls
        with calls.timed("open", 0):  # the audit hook counts opens
            super().__init__(path, "rb")

    def readinto(self, buffer: Any, /) -> Any:
        """Count one read."""
        with self._calls.timed("read"):
            return super().readinto(buffer)

    def readall(self) -> Any:
        """Count one read."""
        with self._calls.timed("read"):
            return super().readall()

    def read(self, size: Any = -1, /) -> Any:
        """Count one read."""
        with self._calls.timed("read"):
            return super().read(size)

    def close(self) -> None:
        """Count one close, the first."""
        if self.closed:
            return
        with self._calls.timed("close"):
            super().close()


@contextmanager
def counted(root: str | os.PathLike[str]) -> Iterator[Calls]:
    """Count the calls on `root` and its contents, by all threads of this process, within the block."""
    global _hooked
    if not _hooked:
        sys.addaudithook(_audit)
        _hooked = True
    calls = Calls(os.path.abspath(root))
    table = _table(calls)
    made, start, read_own = Reader.__init__, Reader.start, Reader.read_own
    swap(table)
    Reader.__init__ = _opened(calls, made)  # type: ignore[method-assign]
    Reader.start, Reader.read_own = _batches(calls, start), _single(calls, read_own)  # type: ignore[method-assign]
    _watching.append(calls)
    try:
        yield calls
    finally:
        _watching.remove(calls)
        Reader.__init__ = made  # type: ignore[method-assign]
        Reader.start, Reader.read_own = start, read_own  # type: ignore[method-assign]
        swap({new: old for old, new in table.items()})


def _audit(event: str, arguments: tuple[Any, ...]) -> None:
    for calls in tuple(_watching):
        if event == "open" and calls.within(arguments[0]):
            calls.add("open")
        elif event in _STARTS:
            calls.programs += 1


def _called_by_store() -> bool:
    """Return whether a packed store is among the callers."""
    frame = sys._getframe(2)
    for _ in range(8):
        if frame.f_globals.get("__name__") in _STORE:
            return True
        if frame.f_back is None:
            return False
        frame = frame.f_back
    return False


def _table(calls: Calls) -> dict[Callable[..., Any], Callable[..., Any]]:
    table = {builtins.open: _open(calls, builtins.open)}
    for kind, names in {
        "stat": ("stat", "lstat", "access"),
        "list": ("listdir", "scandir"),
    }.items():
        for name in names:
            table[getattr(os, name)] = _counting(calls, kind, getattr(os, name))
    for name in ANSWERED:
        asked = getattr(os.path, name, None)
        if asked is not None and not isinstance(asked, FunctionType):  # else it calls os.stat
            table[asked] = _counting(calls, "stat", asked)
    return table


def _counting(calls: Calls, kind: str, original: Callable[..., Any]) -> Callable[..., Any]:
    def counting(*arguments: Any, **options: Any) -> Any:
        path = arguments[0] if arguments else options.get("path", ".")
        if not calls.within(path):
            return original(*arguments, **options)
        with calls.timed(kind):
            return original(*arguments, **options)

    return counting


def _open(calls: Calls, original: Callable[..., Any]) -> Callable[..., Any]:
    def open_(
        file: Any,
        mode: str = "r",
        buffering: int = -1,
        encoding: str | None = None,
        errors: str | None = None,
        newline: str | None = None,
        *rest: Any,
        **options: Any,
    ) -> Any:
        read = mode.replace("t", "") in ("r", "rb")
        if not read or rest or options or not calls.within(file):
            return original(file, mode, buffering, encoding, errors, newline, *rest, **options)
        raw = CountedFile(file, calls)
        if buffering == 0 and "b" in mode:
            return raw
        buffered = io.BufferedReader(raw, buffering if buffering > 1 else io.DEFAULT_BUFFER_SIZE)
        if "b" in mode:
            return buffered
        return io.TextIOWrapper(buffered, encoding, errors, newline)

    return open_


def _opened(calls: Calls, original: Callable[..., Any]) -> Callable[..., Any]:
    def made(self: Reader, *arguments: Any) -> None:
        with calls.changed:
            calls.stores += 1
        original(self, *arguments)

    return made


def _batches(calls: Calls, original: Callable[..., Any]) -> Callable[..., Any]:
    def start(self: Reader, wanted: Any) -> Any:
        if len(wanted):
            calls.asked(len(wanted), int(self.index.columns["stored"][wanted].sum()))
        return original(self, wanted)

    return start


def _single(calls: Calls, original: Callable[..., Any]) -> Callable[..., Any]:
    def read_own(self: Reader, number: int) -> Any:
        found = original(self, number)
        if found is not None:
            calls.asked(1, int(self.index.columns["stored"][number]))
        return found

    return read_own
