"""Deadlock: which ranks wait for which peers. Cancellation of a simulation that takes too long."""

from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeAlias

# progress(simulated seconds, messages delivered); return False to cancel, anything else to go on.
Progress: TypeAlias = Callable[[float, int], object]
SHOWN = 8


class Wait(NamedTuple):
    """A rank that waits for each of its peers, to receive or to send.

    round: its number, or words for what the rank is at where there are no rounds.
    """

    rank: int
    round: int | str
    peers: tuple[int, ...]

    def __str__(self) -> str:
        who = "rank" if len(self.peers) == 1 else "ranks"
        where = f"round {self.round}" if isinstance(self.round, int) else self.round
        return f"rank {self.rank}, {where}, waits for {who} {_listed(self.peers)}"


class DeadlockError(RuntimeError):
    """The simulation is deadlocked: no event is left, yet ranks wait.

    waits: who waits for whom, in the order of ranks. time: s. stopped: ranks that failed.
    """

    def __init__(self, time: float, waits: Sequence[Wait], stopped: Sequence[int] = ()) -> None:
        self.time, self.stopped = time, tuple(sorted(stopped))
        self.waits = tuple(sorted(waits, key=lambda wait: wait.rank))
        super().__init__(_explain(time, self.waits, self.stopped))


class Cancelled(RuntimeError):
    """The progress callback asked to stop. time: s that had been simulated."""

    def __init__(self, time: float, messages: int) -> None:
        self.time, self.messages = time, messages
        super().__init__(f"Cancelled at {time:g} s of simulated time, after {messages} messages.")


def _explain(time: float, waits: tuple[Wait, ...], stopped: tuple[int, ...]) -> str:
    lines = [f"Nothing can move after {time:g} s:"]
    ring = cycle(waits)
    if ring:
        lines.append("a cycle of ranks, each waiting for the next: " + " -> ".join(map(str, ring)))
    waiting = {wait.rank for wait in waits}
    idle = {peer for wait in waits for peer in wait.peers} - waiting - set(stopped)
    if stopped:
        lines.append(f"stopped: {'rank' if len(stopped) == 1 else 'ranks'} {_listed(stopped)}")
    if idle:
        lines.append(f"finished, with nothing more to send or receive: {_listed(sorted(idle))}")
    lines += [str(wait) for wait in waits[:SHOWN]]
    if len(waits) > SHOWN:
        lines.append(f"and {len(waits) - SHOWN} more ranks")
    return "\n  ".join(lines)


def cycle(waits: Sequence[Wait]) -> tuple[int, ...]:
    """Return ranks that wait for each other in a circle, the first repeated at the end; () if none do."""
    peers = {wait.rank: wait.peers for wait in waits}
    done: set[int] = set()
    for start in peers:
        path: list[int] = []
        open_ = [iter((start,))]
        while open_:
            rank = next(open_[-1], None)
            if rank is None:
                open_.pop()
                if path:
                    done.add(path.pop())
            elif rank in path:
                return (*path[path.index(rank) :], rank)
            elif rank in peers and rank not in done:
                path.append(rank)
                open_.append(iter(peers[rank]))
    return ()


def _listed(ranks: Sequence[int]) -> str:
    more = f" and {len(ranks) - SHOWN} more" if len(ranks) > SHOWN else ""
    return ", ".join(map(str, ranks[:SHOWN])) + more
