"""Calls: a Recorder that takes down MPI calls as well, each message's send and receive under one number."""

from typing import Any, TypeAlias

from lib_dlhpc.timeline import Timeline, from_rows
from lib_dlhpc.train.record import Recorder

Row: TypeAlias = tuple[str, str, str, float, float, int, int, int, int]  # Event without its rank


class Calls(Recorder):
    """The rows of one rank, of all ranks that simulate or train."""

    def __init__(self, rank: int, ranks: int) -> None:
        super().__init__()
        self.rank, self.ranks = rank, ranks
        self.calls: list[Row] = []

    def gave(self, name: str, start: float, size: int, peer: int, tag: int, number: int) -> None:
        """Take down a send that began at `start` and has just returned; its `number` among those like it."""
        match = self._match(self.rank, peer, tag, number)
        self._call("send", name, start, size, peer, match)

    def got(self, name: str, start: float, size: int, peer: int, tag: int, number: int) -> None:
        """Take down a receive that has just ended."""
        match = self._match(peer, self.rank, tag, number)
        self._call("receive", name, start, size, peer, match)

    def _call(self, kind: str, name: str, start: float, size: int, peer: int, match: int) -> None:
        if peer != self.rank:
            row = ("communication", kind, name, start, self.now(), size, peer, 0, match)
            self.calls.append(row)

    def _match(self, source: int, target: int, tag: int, number: int) -> int:
        return ((number * self.ranks + source) * self.ranks + target) * 4 + tag


def gathered(calls: Calls, comm: Any, shift: float, begun: float) -> Timeline | None:
    """Return the Timeline of all ranks on rank 0, None elsewhere; time 0 is `begun`, on this rank's clock."""
    zero = min(comm.allgather(begun + shift))
    rows: list[Row] = [(*row, 0, -1) for row in calls.rows] + calls.calls
    parts = comm.gather([_moved(comm.rank, row, shift - zero) for row in rows])
    if comm.rank:
        return None
    return from_rows([row for part in parts for row in part], comm.size, "measured").sorted()


def _moved(rank: int, row: Row, by: float) -> tuple[Any, ...]:
    stream, kind, name, start, stop, *others = row
    return rank, stream, kind, name, max(start + by, 0.0), max(stop + by, 0.0), *others
