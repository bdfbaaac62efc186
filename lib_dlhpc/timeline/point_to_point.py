"""Point-to-point messages that record themselves: sends, receives and probes, blocking and nonblocking.

Each function makes the method that stands for one of mpi4py's, `call`, which it calls in turn.
"""

from collections.abc import Callable
from time import perf_counter_ns
from typing import Any

from numpy import ndarray

from lib_dlhpc.timeline.recorder import UNKNOWN, Recorder
from lib_dlhpc.timeline.requests import Open, opened, receive, stand_in
from lib_dlhpc.timeline.sizes import size_of

Call = Callable[..., Any]


def number_of(recorder: Recorder, kind: str, name: str) -> int:
    """Return the event of a call; those with and without pickling have the name of MPI's own."""
    return recorder.number("communication", kind, f"MPI_{name.capitalize()}")


def send(call: Call, name: str, mpi: Any, recorder: Recorder) -> Call:
    """A blocking send: one row over the call."""
    event, add, pickled = number_of(recorder, "send", name), recorder.add, name.islower()

    def traced(self: Any, buf: Any = None, dest: int = -1, tag: int = 0, **named: Any) -> Any:
        if named:
            buf = named.pop("obj")
        start = perf_counter_ns()
        result = call(self, buf, dest, tag, **named)
        stop = perf_counter_ns()
        size = UNKNOWN if pickled else buf.nbytes if type(buf) is ndarray else size_of(buf)
        peer = self._ranks[dest] if dest >= 0 else -1
        add(event, start, stop, size, peer, self._number, tag, start)
        return result

    return traced


def isend(call: Call, name: str, mpi: Any, recorder: Recorder) -> Call:
    """A send that does not wait: one row over the call; and see requests.py."""
    event, add, pickled = number_of(recorder, "send", name), recorder.add, name.islower()
    traced_request = mpi.Request

    def traced(self: Any, buf: Any = None, dest: int = -1, tag: int = 0, **named: Any) -> Any:
        if named:
            buf = named.pop("obj")
        start = perf_counter_ns()
        request = call(self, buf, dest, tag, **named)
        stop = perf_counter_ns()
        size = UNKNOWN if pickled else buf.nbytes if type(buf) is ndarray else size_of(buf)
        peer = self._ranks[dest] if dest >= 0 else -1
        add(event, start, stop, size, peer, self._number, tag, start)
        request = traced_request(request)
        request.opened = (
            "send",
            recorder,
            event,
            self._number,
            self._ranks,
            start,
            size,
            peer,
            tag,
        )
        return request

    return traced


def send_init(call: Call, name: str, mpi: Any, recorder: Recorder) -> Call:
    """A persistent send: one row for each start."""
    event = number_of(recorder, "send", "start")

    def traced(self: Any, buf: Any, dest: int, tag: int = 0) -> Any:
        request = mpi.Prequest(call(self, buf, dest, tag))
        size, peer = size_of(buf), self._ranks[dest] if dest >= 0 else -1
        what = ("send", recorder, event, self._number, self._ranks, 0, size, peer, tag)
        request.started = what
        return request

    return traced


def recv(call: Call, name: str, mpi: Any, recorder: Recorder) -> Call:
    """A blocking receive: one row over the call."""
    event, add = number_of(recorder, "receive", name), recorder.add
    any_source, any_tag, new_status = mpi.ANY_SOURCE, mpi.ANY_TAG, mpi.Status

    def traced(
        self: Any, buf: Any = None, source: int = any_source, tag: int = any_tag, status: Any = None
    ) -> Any:
        if status is None:
            status = new_status()
        start = perf_counter_ns()
        result = call(self, buf, source, tag, status)
        stop = perf_counter_ns()
        source = status.source
        size, peer = (status.Get_count(), self._ranks[source]) if source >= 0 else (0, -1)
        add(event, start, stop, size, peer, self._number, status.tag, start)
        return result

    return traced


def irecv(call: Call, name: str, mpi: Any, recorder: Recorder) -> Call:
    """A receive that does not wait: one row when it is waited for."""
    event, traced_request = number_of(recorder, "receive", name), mpi.Request

    def traced(
        self: Any, buf: Any = None, source: int = mpi.ANY_SOURCE, tag: int = mpi.ANY_TAG
    ) -> Any:
        posted = perf_counter_ns()
        request = traced_request(call(self, buf, source, tag))
        request.opened = ("receive", recorder, event, self._number, self._ranks, posted, 0, -1, 0)
        return request

    return traced


def recv_init(call: Call, name: str, mpi: Any, recorder: Recorder) -> Call:
    """A persistent receive: one row for each wait."""
    event = number_of(recorder, "receive", "start")

    def traced(self: Any, buf: Any, source: int = mpi.ANY_SOURCE, tag: int = mpi.ANY_TAG) -> Any:
        request = mpi.Prequest(call(self, buf, source, tag))
        request.started = _awaited(self, event, 0)
        return request

    return traced


def sendrecv(call: Call, name: str, mpi: Any, recorder: Recorder) -> Call:
    """A send and a receive at once: a row of each over the call."""
    event, received = (number_of(recorder, kind, name) for kind in ("send", "receive"))
    add, pickled, any_source, any_tag = recorder.add, name.islower(), mpi.ANY_SOURCE, mpi.ANY_TAG

    def traced(
        self: Any,
        sendbuf: Any = None,
        dest: int = -1,
        sendtag: int = 0,
        recvbuf: Any = None,
        source: int = any_source,
        recvtag: int = any_tag,
        status: Any = None,
        **named: Any,
    ) -> Any:
        if named:
            sendbuf = named.pop("sendobj")
        if status is None:
            status = mpi.Status()
        start = perf_counter_ns()
        result = call(self, sendbuf, dest, sendtag, recvbuf, source, recvtag, status, **named)
        stop = perf_counter_ns()
        size, ranks, number = UNKNOWN if pickled else size_of(sendbuf), self._ranks, self._number
        add(event, start, stop, size, ranks[dest] if dest >= 0 else -1, number, sendtag, start)
        source = status.source
        size, peer = (status.Get_count(), ranks[source]) if source >= 0 else (0, -1)
        add(received, start, stop, size, peer, number, status.tag, start)
        return result

    return traced


def isendrecv(call: Call, name: str, mpi: Any, recorder: Recorder) -> Call:
    """Other exchanges: into the buffer that was sent from, or that do not wait (then see requests.py)."""
    event, received = (number_of(recorder, kind, name) for kind in ("send", "receive"))
    waits = not name.startswith("I")
    words: tuple[str, ...] = ("dest", "sendtag", "recvbuf", "source", "recvtag", "status")
    if name.endswith("replace"):
        words = ("dest", "sendtag", "source", "recvtag", "status")

    def traced(self: Any, data: Any = None, *arguments: Any, **named: Any) -> Any:
        for word in ("buf", "sendbuf"):
            data = named.pop(word, data)
        given = dict(zip(words, arguments, strict=False)) | named
        if waits and given.get("status") is None:
            given["status"] = mpi.Status()
        start = perf_counter_ns()
        result = call(self, data, **given)
        stop = perf_counter_ns()
        dest, tag = given["dest"], given.get("sendtag", 0)
        peer = self._ranks[dest] if dest >= 0 else -1
        recorder.add(event, start, stop, size_of(data), peer, self._number, tag, start)
        what = _awaited(self, received, start)
        if not waits:
            return opened(mpi.Request, result, what)
        receive(what, given["status"], start, stop)
        return result

    return traced


def probe(call: Call, name: str, mpi: Any, recorder: Recorder) -> Call:
    """A wait for a message to arrive that is received later."""
    event = number_of(recorder, "wait", name)

    def traced(
        self: Any, source: int = mpi.ANY_SOURCE, tag: int = mpi.ANY_TAG, status: Any = None
    ) -> Any:
        status = mpi.Status() if status is None else status
        start = perf_counter_ns()
        result = call(self, source, tag, status)
        stop = perf_counter_ns()
        peer = self._ranks[status.source] if status.source >= 0 else -1
        recorder.add(event, start, stop, 0, peer, self._number, status.tag)
        return result

    return traced


def mprobe(call: Call, name: str, mpi: Any, recorder: Recorder) -> Call:
    """The same, but reserve the message: no other call receives it."""
    wait = probe(call, name, mpi, recorder) if name.lower() == "mprobe" else call

    def traced(
        self: Any, source: int = mpi.ANY_SOURCE, tag: int = mpi.ANY_TAG, status: Any = None
    ) -> Any:
        message = wait(self, source, tag, status)
        if message is None:
            return None
        message = mpi.Message(message)
        message.comm, message.order = self, perf_counter_ns()
        return message

    return traced


def traced_message(base: Any, mpi: Any) -> type:
    """Return a class like mpi4py's Message whose instances are recorded when they are received."""

    def of(self: Any, name: str) -> Open | None:
        comm = getattr(self, "comm", None)
        if comm is None:  # not probed on a communicator that is traced
            return None
        return _awaited(comm, number_of(comm._recorder, "receive", name), self.order)

    def blocking(call: Call, self: Any, arguments: tuple[Any, ...], status: Any) -> Any:
        what, status = of(self, "mrecv"), mpi.Status() if status is None else status
        start = perf_counter_ns()
        result = call(self, *arguments, status)
        stop = perf_counter_ns()
        if what is not None:
            receive(what, status, start, stop)
        return result

    def begun(request: Any, what: Open | None) -> Any:
        return request if what is None else opened(mpi.Request, request, what)

    def probed(name: str) -> Any:
        return classmethod(lambda cls, comm, *rest, **named: getattr(comm, name)(*rest, **named))

    body = {
        "__slots__": ("comm", "order"),
        "Recv": lambda self, buf, status=None: blocking(base.Recv, self, (buf,), status),
        "recv": lambda self, status=None: blocking(base.recv, self, (), status),
        "Irecv": lambda self, buf: begun(base.Irecv(self, buf), of(self, "imrecv")),
        "irecv": lambda self: begun(base.irecv(self), of(self, "imrecv")),
    }
    pairs = {"Probe": "Mprobe", "probe": "mprobe", "Iprobe": "Improbe", "iprobe": "improbe"}
    return stand_in(base, body | {name: probed(other) for name, other in pairs.items()})


def _awaited(comm: Any, event: int, posted: int) -> Open:
    """A receive that has been posted."""
    return "receive", comm._recorder, event, comm._number, comm._ranks, posted, 0, -1, 0
