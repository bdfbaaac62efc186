"""Events of a rank, recorded with low overhead during training, then gathered as a Timeline."""

from collections.abc import Iterator
from contextlib import contextmanager
from time import perf_counter
from typing import Any, TypeAlias

from lib_dlhpc.timeline import Timeline, clocks, from_rows
from lib_dlhpc.training.core_waits import CoreWait

MOST_STEPS = 200  # of a run that are recorded: enough to analyze, little to store


# An event of one rank: stream, kind, name, start and stop in seconds of its own clock, B, and the destination,
# -1 for several. A plain tuple: a named tuple takes five times as long to create.
Row: TypeAlias = tuple[str, str, str, float, float, int, int]


class Recorder:
    """Records the events of one rank."""

    def __init__(self) -> None:
        self.rows: list[Row] = []
        self.on = True
        self.sent = 0  # B that this rank has sent, recorded or not
        self._begun: dict[str, tuple[float, int]] = {}
        self._work: tuple[str, str] | None = None  # kind and name of the current activity
        self._since, self._filled = 0.0, 0
        self._left_out = 0.0
        self.core_wait = CoreWait()

    def now(self) -> float:
        """Return the seconds of this rank's clock without the excluded time."""
        return perf_counter() - self._left_out

    def leave_out(self, seconds: float) -> None:
        """Exclude time that is not part of training; the same seconds on all ranks."""
        self._left_out += seconds
        self.core_wait.leave_out()

    def add(self, kind: str, name: str, start: float, stop: float, stream: str = "compute") -> None:
        """Record an activity or a wait of this rank."""
        if self.on and stop > start:
            self.rows.append((stream, kind, name, start, stop, 0, -1))
            if kind == "update":
                self.core_wait.step_ends()
            elif kind == "checkpoint":
                self.core_wait.leave_out()

    def begin(self, name: str, size: int) -> None:
        """Record the start of a collective that others overlap."""
        self._begun[name] = (self.now(), size)

    def end(self, name: str) -> None:
        """Record its end."""
        start, size = self._begun.pop(name)
        self.message(name, start, self.now(), size)

    def message(self, name: str, start: float, stop: float, size: int, peer: int = -1) -> None:
        """Record communication of `size` B, to `peer` if it has one destination."""
        self.sent += size
        if self.on:
            self.rows.append(("communication", "communication", name, start, stop, size, peer))

    @contextmanager
    def phase(self, name: str, size: int = 0) -> Iterator[None]:
        """Record the block as communication of `size` B."""
        self.begin(name, size)
        yield
        self.end(name)

    def working(self, kind: str, name: str) -> "Recorder":
        """Record the work within the block that this opens, without its waits for other ranks."""
        self._work, self._since, self._filled = (kind, name), self.now(), 0
        return self

    def __enter__(self) -> None:  # a generator would take three times as long
        pass

    def __exit__(self, *_: object) -> None:
        (kind, name), self._work = self._work or ("", ""), None
        name += " to the input" if self._filled else ""
        self.add(kind, name, self._since, self.now())

    def fills(self) -> None:
        """The current activity has filled a bucket: what it has done for that is a row of its own."""
        if self._work is not None:
            (kind, name), now = self._work, self.now()
            self._filled += 1
            self.add(kind, f"{name} {self._filled}", self._since, now)
            self._since = now

    @contextmanager
    def waits(self, name: str) -> Iterator[None]:
        """Record the block as a wait, and the work before and after it apart."""
        start = self.now()
        if self._work is not None:
            self.add(*self._work, self._since, start)
        yield
        self._since = self.now()
        self.add("wait", f"wait for {name}", start, self._since)

    @contextmanager
    def communicates(self, name: str, size: int, peer: int = -1) -> Iterator[None]:
        """Record the block as a wait and as communication."""
        start = self.now()
        with self.waits(name):
            yield
        self.message(name, start, self._since, size, peer)


def offset(comm: Any, rounds: int = 20) -> float:
    """Return the offset of rank 0's clock from this rank's, in s: 0 if below the measurement error."""
    return clocks.offset(comm, rounds) / 1e9


def gather(recorder: Recorder, comm: Any, shift: float) -> Timeline | None:
    """Return the Timeline of all ranks on rank 0, None elsewhere; time 0 is the first event of any rank."""
    rows = [
        (comm.rank, stream, kind, name, start + shift, stop + shift, size, peer)
        for stream, kind, name, start, stop, size, peer in recorder.rows
    ]
    parts = comm.gather(rows)
    if comm.rank:
        return None
    everything = [row for part in parts for row in part]
    zero = min((row[4] for row in everything), default=0.0)
    moved = [(*row[:4], row[4] - zero, row[5] - zero, *row[6:]) for row in everything]
    return from_rows(moved, comm.size, "measured").sorted()
