"""Synthetic traces of MPI programs: ranks with exact clocks, so every wait time is known."""

from collections.abc import Callable, Sequence
from typing import Any

from lib_dlhpc.timeline import Timeline, from_rows

LATENCY, BANDWIDTH = 1e-5, 1e9  # s, B/s


class Ranks:
    """Operations are called in order, per rank where it matters; `trace` is the recorded trace."""

    def __init__(self, ranks: int, slowdown: Callable[[int, int], float] = lambda *_: 1.0) -> None:
        """slowdown(source, target): slowdown factor of messages."""
        self.clock = [0.0] * ranks
        self.rows: list[tuple[Any, ...]] = []
        self.slowdown, self.matches = slowdown, 0

    def compute(self, seconds: Sequence[float] | float, rank: int | None = None) -> None:
        """All ranks compute, one number each or one for all; or only `rank`."""
        ranks = range(len(self.clock)) if rank is None else [rank]
        for k in ranks:
            self.clock[k] += seconds[k] if isinstance(seconds, Sequence) else seconds

    def message(self, source: int, target: int, size: int, eager: bool = True) -> None:
        """A send and its receive; neither rank does anything else meanwhile."""
        took = (LATENCY + size / BANDWIDTH) * self.slowdown(source, target)
        sent, came = self.clock[source], self.clock[target]
        if eager:
            left, got = sent + LATENCY / 10, max(came, sent + took)
        else:
            left = got = max(came, sent) + took
        self._row(source, "send", "MPI_Send", sent, left, size, target)
        self._row(target, "receive", "MPI_Recv", came, got, size, source)
        self.clock[source], self.clock[target] = left, got
        self.matches += 1

    def shift(self, size: int, far: int = 1) -> None:
        """All send to the rank `far` ahead, then all receive from behind."""
        ranks = len(self.clock)
        sent = list(self.clock)
        first = self.matches
        for rank in range(ranks):
            self._row(
                rank,
                "send",
                "MPI_Send",
                sent[rank],
                sent[rank] + LATENCY / 10,
                size,
                (rank + far) % ranks,
            )
            self.matches += 1
        for rank in range(ranks):
            source = (rank - far) % ranks
            self.matches = first + source
            came = sent[rank] + LATENCY / 10
            took = (LATENCY + size / BANDWIDTH) * self.slowdown(source, rank)
            got = max(came, sent[source] + took)
            self._row(rank, "receive", "MPI_Recv", came, got, size, source)
            self.clock[rank] = got
        self.matches = first + ranks

    def together(self, name: str = "MPI_Allreduce", size: int = 8, root: int = -1) -> None:
        """A collective: n-to-n, or by its name from or to a root."""
        came = list(self.clock)
        took = LATENCY + size / BANDWIDTH
        for rank, begin in enumerate(came):
            if name == "MPI_Bcast":
                end = max(begin, came[root]) + took
            elif name == "MPI_Reduce":
                end = (max(came) if rank == root else begin) + took
            else:
                end = max(came) + took
            self._row(rank, "collective", name, begin, end, size, root)
            self.clock[rank] = end
        self.matches += 1

    def region(self, rank: int, name: str, start: float) -> None:
        """What `rank` did since `start` was `name`."""
        self.rows.append((rank, "compute", "region", name, start, self.clock[rank]))

    def trace(self) -> Timeline:
        """What was recorded."""
        return from_rows(self.rows, len(self.clock), "measured").sorted()

    def _row(
        self, rank: int, kind: str, name: str, start: float, stop: float, size: int, peer: int
    ) -> None:
        row = (rank, "communication", kind, name, start, stop, size, peer, 0, self.matches)
        self.rows.append(row)
