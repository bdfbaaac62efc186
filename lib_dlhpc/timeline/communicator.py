"""An mpi4py communicator that records every call, as a PMPI tool does for programs in C.

It is a communicator of the same type, on the same handle, so it goes wherever one is expected. What has
no row passes through: one-sided windows, files, intercommunicators, calls of C libraries. mpi4py itself is
not imported here: it comes with the communicator.
"""

import sys
from collections.abc import Callable
from itertools import count
from typing import Any

from lib_dlhpc.errors import SpecError
from lib_dlhpc.timeline.clocks import offset
from lib_dlhpc.timeline.collectives import collectives, made
from lib_dlhpc.timeline.point_to_point import (
    Call,
    irecv,
    isend,
    isendrecv,
    mprobe,
    probe,
    recv,
    recv_init,
    send,
    send_init,
    sendrecv,
    traced_message,
)
from lib_dlhpc.timeline.recorder import HERE, WORLD, Recorder
from lib_dlhpc.timeline.requests import traced_request

METHODS: tuple[tuple[Callable[[Call, str, Any, Recorder], Call], str], ...] = (
    (send, "Send Bsend Ssend Rsend send bsend ssend"),
    (isend, "Isend Ibsend Issend Irsend isend ibsend issend"),
    (send_init, "Send_init Bsend_init Ssend_init Rsend_init"),
    (recv, "Recv recv"),
    (irecv, "Irecv irecv"),
    (recv_init, "Recv_init"),
    (probe, "Probe probe"),
    (mprobe, "Mprobe mprobe Improbe improbe"),
    (sendrecv, "Sendrecv sendrecv"),
    (isendrecv, "Sendrecv_replace Isendrecv Isendrecv_replace"),
)
MAKERS = {
    "Dup": "Comm_dup",
    "Dup_with_info": "Comm_dup",
    "Clone": "Comm_dup",
    "Split": "Comm_split",
    "Split_type": "Comm_split_type",
    "Create": "Comm_create",
    "Create_cart": "Cart_create",
    "Create_graph": "Graph_create",
    "Sub": "Cart_sub",
    "Create_dist_graph": "Dist_graph_create",
    "Create_dist_graph_adjacent": "Dist_graph_create_adjacent",
}
_CLASSES: dict[tuple[type, Recorder], type] = {}


def trace_comm(comm: Any, recorder: Recorder = HERE) -> Any:
    """Return the communicator with every call recorded; all its ranks call this together.

    The ranks of the first one are the ranks of the timeline, and agree on their clocks here; later ones
    must be among them, or SpecError is raised. Communicators made from it are recorded too. From then on
    MPI.Request, MPI.Prequest and MPI.Message are classes that record, for MPI.Request.Waitall and its like.
    """
    if hasattr(comm, "_recorder"):
        return comm
    first = recorder.world is None
    if first:
        recorder.world = comm.Get_group()
        recorder.clock(offset(comm))
    ranks = _ranks(comm, recorder)
    if min(ranks) < 0:
        raise SpecError("The communicator has ranks that the first one that was traced has not.")
    again = sum(key.startswith(f"{ranks} ") for key in recorder.comms)
    return _wrap(comm, recorder, WORLD if first else f"{ranks} {again}", ranks)


def _wrap(comm: Any, recorder: Recorder, key: str, ranks: tuple[int, ...]) -> Any:
    traced = comm
    if not hasattr(comm, "_recorder"):  # what Dup returns is of its parent's class
        cls = _CLASSES.get((type(comm), recorder))
        if cls is None:
            mpi = _module(comm)
            _install(mpi)
            cls = _CLASSES[type(comm), recorder] = _traced(type(comm), mpi, recorder)
        traced = cls(comm)
    traced._ranks, traced._key = ranks, key
    traced._number = recorder.communicator(key)
    traced._next_call, traced._made, traced._groups = count().__next__, count(), {}
    return traced


def _ranks(comm: Any, recorder: Recorder) -> tuple[int, ...]:
    return tuple(comm.Get_group().Translate_ranks(None, recorder.world))


def _module(comm: Any) -> Any:
    """The module that communicators of this type come from, and requests and statuses with them."""
    for cls in type(comm).__mro__:
        module = sys.modules.get(cls.__module__)
        if hasattr(module, "Status"):
            return module
    raise SpecError(f"{type(comm).__name__} is not a communicator of mpi4py.")


def _install(mpi: Any) -> None:
    """Let MPI.Request and its like be classes that record."""
    if not hasattr(mpi.Request, "opened"):
        mpi.Prequest = traced_request(mpi.Prequest, mpi)
        mpi.Request = traced_request(mpi.Request, mpi)
        mpi.Message = traced_message(mpi.Message, mpi)


def _traced(base: type, mpi: Any, recorder: Recorder) -> type:
    """Return the class of communicators of this type that are recorded."""
    body: dict[str, Any] = {"_recorder": recorder, "__module__": base.__module__}
    for method, names in METHODS:
        for name in names.split():
            body[name] = method(getattr(base, name), name, mpi, recorder)
    body |= collectives(base, mpi, recorder)
    for name, word in MAKERS.items():
        if hasattr(base, name):
            body[name] = made(getattr(base, name), word, recorder, _child)
    for name in ("Idup", "Idup_with_info"):
        body[name] = _idup(getattr(base, name))
    body["Create_group"] = _create_group(base)
    return type(base.__name__, (base,), body)


def _child(parent: Any, comm: Any) -> Any:
    """Let a new communicator be recorded too; all its ranks find the same name for it."""
    nth = next(parent._made)
    if not comm:  # COMM_NULL: this rank is in none
        return comm
    ranks = _ranks(comm, parent._recorder)
    return _wrap(comm, parent._recorder, f"{parent._key}/{nth} of {ranks[0]}", ranks)


def _idup(call: Call) -> Call:
    """A duplicate that must not be asked for its group before its request is done; it is its parent's."""

    def idup(self: Any, *arguments: Any, **named: Any) -> Any:
        self._next_call()
        comm, request = call(self, *arguments, **named)
        key = f"{self._key}/{next(self._made)} of {self._ranks[0]}"
        return _wrap(comm, self._recorder, key, self._ranks), request

    return idup


def _create_group(base: Any) -> Call:
    """Only the members of the group call this: its name counts what they alone have made."""

    def create_group(self: Any, group: Any, tag: int = 0) -> Any:
        comm = base.Create_group(self, group, tag)
        if not comm:
            return comm
        ranks = _ranks(comm, self._recorder)
        nth = self._groups[ranks, tag] = self._groups.get((ranks, tag), -1) + 1
        key = f"{self._key}/group {ranks} tag {tag} {nth}"
        return _wrap(comm, self._recorder, key, ranks)

    return create_group
