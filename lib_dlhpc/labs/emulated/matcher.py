"""Message matching between emulated ranks: which calls form one collective, and when no rank can continue.

The n-th calls of all ranks are one collective. Allreduces are serialized, as on one network. A call that can never
match raises Unmet, which names who waits for whom.
"""

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from math import inf
from typing import Any

import numpy as np

from lib_dlhpc.labs.emulated.messages import HINT, MatchQueues, Message
from lib_dlhpc.labs.mistakes import LabError, Mismatch, Unmet, ranks_named, ranks_wait


@dataclass
class Collective:
    """The n-th call of every rank."""

    given: dict[int, tuple[str, Any, float]] = field(default_factory=dict)
    result: Any = None
    ended: float = 0.0  # s


class Matcher:
    """The state of the matching, shared by all ranks. seconds: of an allreduce of a number of bytes."""

    def __init__(self, size: int, seconds: Callable[[int], float]) -> None:
        self.size, self.seconds = size, seconds
        self._change = threading.Condition()
        self._collectives: list[Collective] = []
        self._left: set[int] = set()  # ranks that have returned
        # Blocked ranks: in which call, and whether they may continue.
        self.waiting: dict[int, tuple[str, Callable[[], bool]]] = {}
        self.queues = MatchQueues()
        self._stuck: Unmet | None = None  # the deadlock, if any
        self._free = 0.0  # s, when the network becomes idle

    def give(self, number: int, rank: int, now: float, kind: str, value: Any) -> None:
        """Record a rank's call at its time `now`, in s; the last of all ranks completes the collective."""
        with self._change:
            while len(self._collectives) <= number:
                self._collectives.append(Collective())
            collective = self._collectives[number]
            collective.given[rank] = kind, value, now
            if len(collective.given) == self.size:
                self._settle(collective)
            self._change.notify_all()

    def take(self, number: int, rank: int) -> Collective:
        """Return a collective when all ranks have called it. Raises Unmet if one has returned without calling it."""
        with self._change:
            collective = self._collectives[number]
            while collective.result is None:
                gone = sorted(r for r in self._left if r not in collective.given)
                # Raised only after all other ranks have called or returned, so that the message is deterministic.
                if gone and len(gone) + len(collective.given) == self.size:
                    waiting = sorted(collective.given)
                    raise Unmet(
                        f"{ranks_wait(waiting)} in {collective.given[rank][0]}, call number {number + 1},"
                        f" for {ranks_named(gone)}, which returned without it: MPI would hang "
                        "here. Every rank must make the same calls, even one with nothing to add.",
                        number,
                    )
                where = f"{collective.given[rank][0]}, call number {number + 1}"
                self._block(rank, where, lambda: collective.result is not None)
            if isinstance(collective.result, LabError):
                raise collective.result
            return collective

    def leave(self, rank: int) -> None:
        """Record that a rank has returned."""
        with self._change:
            self._left.add(rank)
            self._look()
            self._change.notify_all()

    def post(self, message: Message, receive: bool) -> None:
        """Match a send or a receive with the first that fits."""
        with self._change:
            self.queues.add(message, receive)
            self._change.notify_all()

    def wait(self, rank: int, words: str, ready: Callable[[], bool]) -> None:
        """Wait until ready(). Raises Unmet on deadlock."""
        with self._change:
            while not ready():
                self._block(rank, words, ready)

    def _block(self, rank: int, words: str, ready: Callable[[], bool]) -> None:
        """Block until something changes."""
        if self._stuck:
            raise self._stuck
        self.waiting[rank] = words, ready
        self._look()
        if not self._stuck:
            self._change.wait()
        del self.waiting[rank]

    def _look(self) -> None:
        """Detect a deadlock: all remaining ranks are blocked."""
        there = self.size - len(self._left)
        if len(self.waiting) < there or any(ready() for _, ready in self.waiting.values()):
            return
        if self.waiting and not self._stuck:
            waits = [f"rank {r} waits in {words}" for r, (words, _) in sorted(self.waiting.items())]
            if self._left:
                waits.append(f"{ranks_named(sorted(self._left))} returned")
            sends = any("does not receive" in words for words, _ in self.waiting.values())
            message = (
                f"{'; '.join(waits)}: no rank can continue, MPI would hang "
                f"here.{HINT if sends else ''}"
            )
            self._stuck = Unmet(message, inf)
            self._change.notify_all()

    def _settle(self, collective: Collective) -> None:
        given = [collective.given[rank] for rank in range(self.size)]
        kinds = [kind for kind, _, _ in given]
        values = [value for _, value, _ in given]
        if len(set(kinds)) > 1:
            other = next(r for r, kind in enumerate(kinds) if kind != kinds[0])
            collective.result = Mismatch(
                f"rank 0 calls {kinds[0]} where rank {other} calls {kinds[other]}: all ranks must make the"
                " same calls in the same order."
            )
        elif kinds[0] == "Allreduce":
            sizes = [value.size for value in values]
            if len(set(sizes)) > 1:
                other = next(r for r, size in enumerate(sizes) if size != sizes[0])
                collective.result = Mismatch(
                    f"rank 0 gives {sizes[0]} numbers to Allreduce where rank {other} gives {sizes[other]}:"
                    " all ranks must give the same count."
                )
                return
            met = max(now for _, _, now in given)
            if sizes[0] == 1:  # a number, such as the loss: no time, as in allreduce
                collective.ended = met
            else:  # one bucket at a time: after all ranks have called and the previous one is complete
                collective.ended = self._free = max(self._free, met) + self.seconds(
                    values[0].nbytes
                )
            collective.result = np.sum([value.ravel() for value in values], axis=0)
        else:
            collective.result = values
