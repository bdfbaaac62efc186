"""A store that records its reads as rows of kind input: which rank waits for a file, and how long."""

import threading
from collections.abc import Callable, Iterable, Iterator
from time import perf_counter_ns
from typing import Any

from lib_dlhpc.timeline.recorder import HERE, Recorder


class TracedReads:
    """A packed store, or anything with its `read`, `read_many` and `read_ahead`; all else is the store's own.

    What the main thread reads is on stream compute, which is idle for it; what other threads read
    beside it is on stream input. A row of read_ahead is what its batch still had to be waited for.
    """

    def __init__(self, store: Any, recorder: Recorder = HERE) -> None:
        self._store, self._recorder = store, recorder

    @property  # type: ignore[misc]  # a store to whoever asks, such as fsspec's file system
    def __class__(self) -> type:
        return type(self._store)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def __enter__(self) -> "TracedReads":
        self._store.__enter__()
        return self

    def __exit__(self, *error: Any) -> Any:
        return self._store.__exit__(*error)

    def read(self, name: str) -> bytes:
        """Return a file's content."""
        data: bytes = self._timed("read", lambda: self._store.read(name), len)
        return data

    def read_many(self, names: Iterable[str]) -> list[bytes]:
        """Return the contents of files."""
        found: list[bytes] = self._timed("read", lambda: self._store.read_many(names), _total)
        return found

    def read_ahead(self, batches: Iterable[Any], ahead: int = 1) -> Iterator[list[bytes]]:
        """Yield the contents of each batch."""
        arriving = self._store.read_ahead(batches, ahead)
        try:
            while True:
                try:
                    batch = self._timed("read ahead", lambda: next(arriving), _total)
                except StopIteration:
                    return
                yield batch
        finally:
            arriving.close()

    def _timed(self, name: str, call: Callable[[], Any], size: Callable[[Any], int]) -> Any:
        start = perf_counter_ns()
        found = call()
        stop = perf_counter_ns()
        main = threading.current_thread() is threading.main_thread()
        event = self._recorder.number("compute" if main else "input", "input", name)
        self._recorder.add(event, start, stop, size(found))
        return found


def trace_reads(store: Any, recorder: Recorder = HERE) -> Any:
    """Return the store with each read recorded: `with trace_reads(open_store(folder)) as store:`."""
    return TracedReads(store, recorder)


def _total(found: list[bytes]) -> int:
    return sum(map(len, found))
