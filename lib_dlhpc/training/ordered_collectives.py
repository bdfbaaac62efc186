"""InOrder: collectives one after another, as on a stream of the program; ranks progress the one in flight."""

from collections import deque
from collections.abc import Callable
from typing import NamedTuple, Protocol

from lib_dlhpc.schedules.ring_collectives import InFlight, Rounds


class Request(Protocol):
    """A collective that can be started."""

    def start(self) -> None:
        """Start without blocking."""

    def test(self) -> bool:
        """Make progress; return whether it is complete."""

    def wait(self) -> None:
        """Wait for completion."""


class DeferredCollective:
    """A collective of ring_collectives.py, to be started."""

    def __init__(self, rounds: Callable[[], Rounds]) -> None:
        self._rounds = rounds

    def start(self) -> None:
        self._request = InFlight(self._rounds())

    def test(self) -> bool:
        return self._request.test()

    def wait(self) -> None:
        self._request.wait()


def _nothing() -> None:
    pass


class _Posted(NamedTuple):
    request: Request
    begins: Callable[[], None]
    ends: Callable[[], None]


class InOrder:
    """Collectives over one group, one in flight at a time."""

    def __init__(self) -> None:
        self._posted: deque[_Posted] = deque()  # the first is in flight
        self._count = 0

    @property
    def busy(self) -> bool:
        """Whether there is something to wait for."""
        return bool(self._posted)

    def post(
        self,
        request: Request,
        begins: Callable[[], None] = _nothing,
        ends: Callable[[], None] = _nothing,
    ) -> int:
        """Start after all that was posted before; return the number to wait for.

        begins, ends: called when it is started and when it is complete.
        """
        self._posted.append(_Posted(request, begins, ends))
        self._count += 1
        if len(self._posted) == 1:
            self._start()
        return self._count

    def test(self) -> None:
        """Make progress."""
        while self._posted and self._posted[0].request.test():
            self._end()

    def wait(self, number: int | None = None) -> None:
        """Complete all up to a number, or all."""
        last = self._count if number is None else number
        while self._count - len(self._posted) < last:
            self._posted[0].request.wait()
            self._end()

    def _start(self) -> None:
        self._posted[0].begins()
        self._posted[0].request.start()

    def _end(self) -> None:
        self._posted.popleft().ends()
        if self._posted:
            self._start()
