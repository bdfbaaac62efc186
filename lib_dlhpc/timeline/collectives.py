"""Collectives that record themselves; the calls of all ranks with one count are one collective."""

from collections.abc import Callable
from time import perf_counter_ns
from typing import Any

from numpy import ndarray

from lib_dlhpc.timeline.point_to_point import Call, number_of
from lib_dlhpc.timeline.recorder import Recorder
from lib_dlhpc.timeline.requests import opened
from lib_dlhpc.timeline.sizes import size_of

# Where the root stands among the arguments; None: there is no root.
BUFFERS: dict[str, int | None] = {
    "Barrier": None,
    "Bcast": 1,
    "Reduce": 3,
    "Allreduce": None,
    "Gather": 2,
    "Gatherv": 2,
    "Scatter": 2,
    "Scatterv": 2,
    "Allgather": None,
    "Allgatherv": None,
    "Alltoall": None,
    "Alltoallv": None,
    "Alltoallw": None,
    "Reduce_scatter": None,
    "Reduce_scatter_block": None,
    "Scan": None,
    "Exscan": None,
}
PICKLED: dict[str, int | None] = {
    "barrier": None,
    "bcast": 1,
    "reduce": 2,
    "allreduce": None,
    "gather": 1,
    "scatter": 1,
    "allgather": None,
    "alltoall": None,
    "scan": None,
    "exscan": None,
}
# Ranks wait for their neighbors alone: calls of all ranks are not one, and match nothing.
NEIGHBORS: dict[str, int | None] = dict.fromkeys(
    (
        "Neighbor_allgather",
        "Neighbor_allgatherv",
        "Neighbor_alltoall",
        "Neighbor_alltoallv",
        "Neighbor_alltoallw",
        "neighbor_allgather",
        "neighbor_alltoall",
    )
)
APART = -1  # the order of a call that matches nothing


def collectives(base: type, mpi: Any, recorder: Recorder) -> dict[str, Call]:
    """Return the methods for all collectives of a type of communicator."""
    body: dict[str, Call] = {}
    for name, root in (BUFFERS | PICKLED | NEIGHBORS).items():
        alone = name in NEIGHBORS
        if hasattr(base, name):
            body[name] = _blocking(getattr(base, name), name, root, alone, recorder)
        begun, persistent = f"I{name.lower()}", f"{name}_init"
        if name[0].isupper() and hasattr(base, begun):
            body[begun] = _begun(getattr(base, begun), begun, root, alone, mpi, recorder)
        if hasattr(base, persistent):
            body[persistent] = _begun(
                getattr(base, persistent), persistent, root, alone, mpi, recorder
            )
    return body


def made(call: Call, name: str, recorder: Recorder, wrap: Callable[[Any, Any], Any]) -> Call:
    """Return the method for a call of all ranks that makes a communicator, which `wrap` lets be recorded."""
    event = number_of(recorder, "collective", name)

    def make(self: Any, *arguments: Any, **named: Any) -> Any:
        order = self._next_call()
        start = perf_counter_ns()
        comm = call(self, *arguments, **named)
        stop = perf_counter_ns()
        recorder.add(event, start, stop, 0, -1, self._number, 0, order)
        return wrap(self, comm)

    return make


def _blocking(call: Call, name: str, root: int | None, alone: bool, recorder: Recorder) -> Call:
    event, add = number_of(recorder, "collective", name), recorder.add
    size_in = _pickled if name.islower() else _contribution

    def traced(self: Any, *arguments: Any, **named: Any) -> Any:
        order = APART if alone else self._next_call()
        start = perf_counter_ns()
        result = call(self, *arguments, **named) if named else call(self, *arguments)
        stop = perf_counter_ns()
        peer = -1 if root is None else _root(self, root, arguments, named)
        data = arguments[0] if arguments else None
        size = data.nbytes if type(data) is ndarray else size_in(arguments, named)
        add(event, start, stop, size, peer, self._number, 0, order)
        return result

    return traced


def _begun(
    call: Call, name: str, root: int | None, alone: bool, mpi: Any, recorder: Recorder
) -> Call:
    event, persistent = number_of(recorder, "collective", name), name.endswith("_init")

    def traced(self: Any, *arguments: Any, **named: Any) -> Any:
        order = APART if alone else self._next_call()
        request = call(self, *arguments, **named)
        peer = -1 if root is None else _root(self, root, arguments, named)
        size = _contribution(arguments, named)
        what = ("collective", recorder, event, self._number, self._ranks, order, size, peer, 0)
        if not persistent:
            return opened(mpi.Request, request, what)
        request = mpi.Prequest(request)
        request.started = what
        return request

    return traced


def _root(comm: Any, place: int, arguments: tuple[Any, ...], named: dict[str, Any]) -> int:
    root = arguments[place] if len(arguments) > place else named.get("root", 0)
    return int(comm._ranks[root])


def _contribution(arguments: tuple[Any, ...], named: dict[str, Any]) -> int:
    """Return the bytes that a rank gives, or where it gives none, takes."""
    if named:
        buffers = [named[name] for name in ("buf", "sendbuf", "recvbuf") if name in named]
        arguments = (*arguments[: 2 - len(buffers)], *buffers)
    for data in arguments[:2]:
        size = size_of(data)
        if size:
            return size
    return 0


def _pickled(arguments: tuple[Any, ...], named: dict[str, Any]) -> int:
    """Return the bytes of a buffer object; the pickled size of others is unknown."""
    data = arguments[0] if arguments else named.get("sendobj", named.get("obj"))
    return int(getattr(data, "nbytes", 0))
