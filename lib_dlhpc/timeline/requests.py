"""mpi4py requests that record themselves on completion: one row over the Wait that completed them.

A receive and a collective are named by the call that started them. A send is recorded as the time for which its rank
was blocked: one row of kind wait a call, and none where the call also waited for other requests.
"""

from collections.abc import Callable, Iterable
from time import perf_counter_ns
from typing import Any, TypeAlias

from lib_dlhpc.timeline.recorder import Recorder

# What a request will be a row of: "send", "receive", "cancelled" (if it can still be), or "collective"; whose and
# which event; the number of its communicator and the rank of each of that one's ranks; then order, bytes, peer and
# tag. A tuple, for one with names takes five times as long to make, and there is one for each message.
Open: TypeAlias = tuple[str, Recorder, int, int, tuple[int, ...], int, int, int, int]


def traced_request(base: Any, mpi: Any) -> type:
    """Return a class like mpi4py's Request or Prequest whose instances know what they are `opened` for."""
    body: dict[str, Any] = {"__slots__": ("opened", "started")}
    for name in ("Wait", "wait", "Test", "test"):
        body[name] = _one(getattr(base, name), name, mpi)
    body["Cancel"] = _cancel(base.Cancel)
    for name in ("Waitall", "waitall", "Testall", "testall"):
        body[name] = classmethod(_all(getattr(base, name), name))
    for name in ("Waitany", "waitany", "Testany", "testany"):
        body[name] = classmethod(_any(getattr(base, name), name, mpi))
    for name in ("Waitsome", "waitsome", "Testsome", "testsome"):
        body[name] = classmethod(_some(getattr(base, name), name))
    if hasattr(base, "Start"):
        body["Start"] = _start(base.Start)
        body["Startall"] = classmethod(_startall)
    return stand_in(base, body)


def stand_in(base: type, body: dict[str, Any]) -> type:
    """Return a subclass that may take its base's place: what is of the base's type is of its own."""

    class Meta(type):
        def __instancecheck__(cls, instance: object) -> bool:
            return isinstance(instance, base)

        def __subclasscheck__(cls, other: type) -> bool:
            return issubclass(other, base)

    return Meta(base.__name__, (base,), {"__module__": base.__module__, **body})


def opened(cls: type, request: Any, what: Open) -> Any:
    """Return the request as one of a traced class."""
    request = cls(request)
    request.opened = what
    return request


def _done(requests: Iterable[tuple[Any, Any]], call: str, start: int, stop: int) -> None:
    """Take down requests that a call has ended; each comes with its status."""
    sends: list[Open] = []
    others = False
    for request, status in requests:
        what: Open | None = getattr(request, "opened", None)
        if what is None:
            continue
        request.opened = None
        kind = what[0]
        if kind == "send":
            sends.append(what)
            continue
        others = True
        if kind == "collective":
            _, recorder, event, comm, _, order, size, peer, _ = what
            recorder.add(event, start, stop, size, peer, comm, 0, order)
        elif kind == "receive" or not status.Is_cancelled():
            receive(what, status, start, stop)
    if sends and not others:
        _waited(sends, call, start, stop)


def _waited(sends: list[Open], call: str, start: int, stop: int) -> None:
    """Record that a rank was blocked by its own sends."""
    _, recorder, _, comm, *_ = sends[0]
    event = recorder.number("communication", "wait", f"MPI_{call.capitalize()}")
    size, peers = sum(max(send[6], 0) for send in sends), {send[7] for send in sends}
    recorder.add(event, start, stop, size, peers.pop() if len(peers) == 1 else -1, comm)


def receive(what: Open, status: Any, start: int, stop: int) -> None:
    """Record what has been received, with source and size from its status."""
    _, recorder, event, comm, world, order, *_ = what
    source = status.source
    size, peer = (status.Get_count(), world[source]) if source >= 0 else (0, -1)
    recorder.add(event, start, stop, size, peer, comm, status.tag, order)


def _one(call: Callable[..., Any], name: str, mpi: Any) -> Callable[..., Any]:
    tests = name.lower() == "test"

    def one(self: Any, status: Any = None) -> Any:
        what: Open | None = getattr(self, "opened", None)
        if what is None:
            return call(self, status)
        if status is None:
            status = mpi.Status()
        start = perf_counter_ns()
        result = call(self, status)
        stop = perf_counter_ns()
        if not tests or (result[0] if name == "test" else result):
            if what[0] == "receive":
                self.opened = None
                receive(what, status, start, stop)
            else:
                _done([(self, status)], name, start, stop)
        return result

    return one


def _all(call: Callable[..., Any], name: str) -> Callable[..., Any]:
    tests = name.lower() == "testall"
    spare: list[list[Any]] = []  # unrequested statuses are reused: new ones take time

    def all_of_them(cls: type, requests: Any, statuses: Any = None) -> Any:
        found = statuses if statuses is not None else spare.pop() if spare else []
        start = perf_counter_ns()
        result = call(requests, found)
        stop = perf_counter_ns()
        if not tests or (result[0] if name == "testall" else result):
            _done(zip(requests, found), name, start, stop)  # noqa: B905 - spare ones may be more
        if statuses is None:
            spare.append(found)
        return result

    return all_of_them


def _any(call: Callable[..., Any], name: str, mpi: Any) -> Callable[..., Any]:
    def any_of_them(cls: type, requests: Any, status: Any = None) -> Any:
        if status is None:
            status = mpi.Status()
        start = perf_counter_ns()
        result = call(requests, status)
        stop = perf_counter_ns()
        index = result if name == "Waitany" else result[0]
        if 0 <= index < len(requests):  # MPI.UNDEFINED: none was active, or none is done
            _done([(requests[index], status)], name, start, stop)
        return result

    return any_of_them


def _some(call: Callable[..., Any], name: str) -> Callable[..., Any]:
    def some_of_them(cls: type, requests: Any, statuses: Any = None) -> Any:
        if statuses is None:
            statuses = []
        start = perf_counter_ns()
        result = call(requests, statuses)
        stop = perf_counter_ns()
        indices = result if name[0].isupper() else result[0]
        done = [requests[index] for index in indices or ()]
        _done(zip(done, statuses, strict=False), name, start, stop)
        return result

    return some_of_them


def _cancel(call: Callable[..., Any]) -> Callable[..., Any]:
    """A receive that is cancelled may have been received already; its status is asked then, and only then."""

    def cancel(self: Any) -> None:
        what: Open | None = getattr(self, "opened", None)
        if what is not None and what[0] == "receive":
            self.opened = ("cancelled", *what[1:])
        call(self)

    return cancel


def _start(call: Callable[..., Any]) -> Callable[..., Any]:
    def start_one(self: Any) -> Any:
        begin = perf_counter_ns()
        result = call(self)
        _started(self, begin, perf_counter_ns())
        return result

    return start_one


def _startall(cls: type, requests: Any) -> None:
    for request in requests:
        request.Start()


def _started(request: Any, start: int, stop: int) -> None:
    """A persistent request is in flight: a send is recorded now, anything else when it is done."""
    what: Open | None = getattr(request, "started", None)
    if what is None:
        return
    kind, recorder, event, comm, world, order, size, peer, tag = what
    if kind == "collective":  # matches by which it is, and by how often it has been started
        order += 1 << 32
        request.started = (kind, recorder, event, comm, world, order, size, peer, tag)
        request.opened = request.started
        return
    request.opened = (kind, recorder, event, comm, world, start, size, peer, tag)
    if kind == "send":
        recorder.add(event, start, stop, size, peer, comm, tag, start)
