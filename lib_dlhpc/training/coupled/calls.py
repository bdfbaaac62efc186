"""Calls: a Recorder that also records MPI calls; a send and its matching receive share a number."""

from typing import Any, TypeAlias

from lib_dlhpc.timeline import Timeline, from_rows, join
from lib_dlhpc.training.record import Recorder, gather

# kind, name, start, stop, B, peer, match
Call: TypeAlias = tuple[str, str, float, float, int, int, int]


class Calls(Recorder):
    """The rows of one rank, simulating or training."""

    def __init__(self, rank: int, ranks: int) -> None:
        super().__init__()
        self.rank, self.ranks = rank, ranks
        self.calls: list[Call] = []
        self.first = float("inf")  # s at which the first row begins

    def add(self, kind: str, name: str, start: float, stop: float, stream: str = "compute") -> None:
        """Record an activity or a wait of this rank."""
        super().add(kind, name, start, stop, stream)
        if self.on and stop > start:
            self.first = min(self.first, start)

    def record_send(
        self, name: str, start: float, size: int, peer: int, tag: int, number: int
    ) -> None:
        """Record a send that began at `start` and has just returned, the `number`-th to this peer with this tag."""
        match = ((number * self.ranks + self.rank) * self.ranks + peer) * 4 + tag
        self._call("send", name, start, size, peer, match)

    def record_receive(
        self, name: str, start: float, size: int, peer: int, tag: int, number: int
    ) -> None:
        """Record a receive that has just completed."""
        match = ((number * self.ranks + peer) * self.ranks + self.rank) * 4 + tag
        self._call("receive", name, start, size, peer, match)

    def _call(self, kind: str, name: str, start: float, size: int, peer: int, match: int) -> None:
        if peer != self.rank:
            self.calls.append((kind, name, start, self.now(), size, peer, match))


def gathered(calls: Calls, comm: Any, shift: float) -> Timeline | None:
    """Return the Timeline of all ranks on rank 0, None elsewhere; time 0 is the first event of any rank."""
    worked = gather(calls, comm, shift)
    by = shift - min(comm.allgather(calls.first + shift))
    rows = [
        (
            comm.rank,
            "communication",
            *row[:2],
            max(row[2] + by, 0.0),
            max(row[3] + by, 0.0),
            row[4],
            row[5],
            0,
            row[6],
        )
        for row in calls.calls
    ]
    parts = comm.gather(rows)
    if worked is None:
        return None
    called = from_rows([row for part in parts for row in part], comm.size, worked.source)
    return join([worked, called]).sorted()
