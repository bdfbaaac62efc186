"""Emulated ranks: threads of one process with mpi4py's communicator interface, and explained errors.

    results = emulate(4, lambda comm: comm.allreduce(comm.rank))

Where MPI would hang, an error names who waits for whom: collectives match in the order of the calls, so a call
that a rank has returned without making will never match. Sums are taken in rank order, so the same program gives
the same bytes. A result is valid after Wait; until then the buffer holds NaN.
"""

import sysconfig
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from traceback import extract_tb
from typing import Any, Protocol

import numpy as np

from lib_dlhpc.labs.emulated.matcher import Collective, Matcher
from lib_dlhpc.labs.emulated.messages import PointToPoint
from lib_dlhpc.labs.endless import join, stop
from lib_dlhpc.labs.mistakes import (
    Endless,
    LabError,
    Mismatch,
    Unmet,
    array_of,
    bytes_of,
    is_in_place,
    ranks_named,
)
from lib_dlhpc.layers.base.saved import Array

PATIENCE = 10.0  # s of this process's CPU, timeout of a program: a step takes a fraction of one
POLL = 1e-6  # s of a rank's clock for an unsuccessful Test
KNOWN = (
    "Allreduce, Iallreduce, Allgather, Reduce_scatter_block, Bcast, Barrier, allreduce, allgather, gather, bcast,"
    " barrier; Send, Recv, Isend, Irecv, Sendrecv, send, recv, isend, irecv, sendrecv"
)


class Witness(Protocol):
    """An observer of which gradients are complete: see recording.py."""

    complete: int  # gradients[complete:] are this step's
    running: bool  # backward


@dataclass
class Post:
    """One allreduce that a rank has started."""

    send: Array  # the rank's send buffer
    sent: Array  # its values at that moment
    begun: float  # s of the rank's clock
    ended: float = np.nan  # s; NaN until Wait
    waited: bool = False
    changed: bool = False  # the send buffer was modified before Wait
    complete: int = 0  # gradients[complete:] were this step's when it began
    inside: bool = False  # started during backward
    stood: tuple[float, float] = (0.0, 0.0)  # start and end of the rank's wait for it, s
    stood_inside: bool = False  # the wait was during backward

    def seen(self, witness: Witness | None) -> None:
        """Record which gradients are complete at the start."""
        if witness is not None:
            self.complete, self.inside = witness.complete, witness.running

    def end(self, ended: float, before: float, after: float, witness: Witness | None) -> None:
        """Record that the rank has waited for it."""
        self.waited, self.ended, self.stood = True, ended, (before, after)
        self.stood_inside = witness is not None and witness.running and after > before


class Rank(PointToPoint):
    """One emulated rank. `now` is its own clock, advanced only by `spend` and by allreduces.

    posts: the allreduces that it has started. moved: B in and out of its calls. log: its other collectives in order,
    each with the B of what all ranks gave.
    """

    def __init__(self, rank: int, matcher: Matcher) -> None:
        super().__init__()
        self.rank, self.size, self._matcher = rank, matcher.size, matcher
        self.now, self.moved = 0.0, 0
        self.posts: list[Post] = []
        self.log: list[tuple[str, int]] = []
        self.witness: Witness | None = None
        self._calls = 0

    def Get_rank(self) -> int:
        """Return the number of this rank."""
        return self.rank

    def Get_size(self) -> int:
        """Return how many ranks there are."""
        return self.size

    def spend(self, seconds: float) -> None:
        """Compute for that long."""
        self.now += seconds

    def Iallreduce(self, send: Any, receive: Any, op: Any = None) -> "Request":
        """Start an allreduce; `send` is an array, or MPI.IN_PLACE to use `receive` for both."""
        _only_sums(op)
        in_place = is_in_place(send)
        receive = array_of(receive, "receives into")
        source = receive if in_place else array_of(send, "sends")
        if (source.size, source.dtype) != (receive.size, receive.dtype):
            raise Mismatch(
                f"rank {self.rank} sends {source.size} numbers of type {source.dtype} and receives"
                f" {receive.size} of type {receive.dtype}: both need the same."
            )
        if not in_place and np.shares_memory(source, receive):
            raise Mismatch(
                f"rank {self.rank} sends from the array into which it receives: MPI needs two arrays, or"
                " MPI.IN_PLACE as the first."
            )
        post = Post(source, source.copy(), self.now)
        post.seen(self.witness)
        self.posts.append(post)
        self.moved += 2 * source.nbytes
        number = self._next_call("Allreduce", post.sent)
        if receive.dtype.kind == "f":
            receive[...] = np.nan
        return Request(self, number, post, receive, in_place)

    def Allreduce(self, send: Any, receive: Any, op: Any = None) -> None:
        """Put the sum over all ranks into `receive`."""
        self.Iallreduce(send, receive, op).Wait()

    def Allgather(self, send: Any, receive: Any) -> None:
        """Put the arrays of all ranks, which are equally long, one after the other into `receive`."""
        own, receive = array_of(send, "sends"), array_of(receive, "receives into")
        self._check_sizes("Allgather", own, receive, self.size * own.size, receive.size)
        self.moved += own.nbytes + receive.nbytes
        values = self._gathered("Allgather", own)
        self._check_alike("Allgather", values)
        receive[...] = np.concatenate([each.ravel() for each in values]).reshape(receive.shape)

    def Reduce_scatter_block(self, send: Any, receive: Any, op: Any = None) -> None:
        """Sum the arrays of all ranks; put this rank's block of the sum, one of equally long ones, into `receive`."""
        _only_sums(op)
        own, receive = array_of(send, "sends"), array_of(receive, "receives into")
        self._check_sizes("Reduce_scatter_block", own, receive, own.size, self.size * receive.size)
        self.moved += own.nbytes + receive.nbytes
        values = self._gathered("Reduce_scatter_block", own)
        self._check_alike("Reduce_scatter_block", values)
        total = np.sum([each.ravel() for each in values], axis=0)
        block = slice(self.rank * receive.size, (self.rank + 1) * receive.size)
        receive[...] = total[block].reshape(receive.shape)

    def Bcast(self, buffer: Any, root: int = 0) -> None:
        """Broadcast the root's array."""
        array = array_of(buffer, "broadcasts")
        self.moved += array.nbytes
        array[...] = self._gathered("Bcast", array if self.rank == root else None)[root]

    def Barrier(self) -> None:
        """Wait for all ranks."""
        self._gathered("Barrier", None)

    def allreduce(self, value: Any, op: Any = None) -> Any:
        """Return the sum of all ranks' values."""
        _only_sums(op)
        self.moved += 2 * bytes_of(value)
        values = self._gathered("allreduce", value)
        total = values[0]
        for each in values[1:]:
            total = total + each
        return total

    def allgather(self, value: Any) -> list[Any]:
        """Return the values of all ranks."""
        values = self._gathered("allgather", value)
        self.moved += bytes_of(value) + sum(map(bytes_of, values))
        return values

    def gather(self, value: Any, root: int = 0) -> list[Any] | None:
        """Return the values of all ranks to the root, None to others."""
        values = self._gathered("gather", value)
        self.moved += bytes_of(value) + sum(map(bytes_of, values)) * (self.rank == root)
        return values if self.rank == root else None

    def bcast(self, value: Any, root: int = 0) -> Any:
        """Return the root's value to all ranks."""
        result = self._gathered("bcast", value)[root]
        self.moved += bytes_of(result)
        return result

    barrier = Barrier

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        raise LabError(f"comm.{name}: emulated ranks do not support it; they support {KNOWN}.")

    def _check_sizes(self, call: str, send: Array, receive: Array, whole: int, room: int) -> None:
        """Raise Mismatch unless all parts together fill the whole, and both arrays are of one type."""
        if (whole, send.dtype) != (room, receive.dtype):
            raise Mismatch(
                f"rank {self.rank} gives {call} {send.size} numbers of type {send.dtype} to send and {receive.size} of"
                f" type {receive.dtype} to receive into: with {self.size} ranks, the whole array has {self.size} times"
                " as many numbers as one rank's part."
            )

    def _check_alike(self, call: str, values: list[Array]) -> None:
        """Raise Mismatch unless all ranks give as many numbers."""
        sizes = [each.size for each in values]
        if len(set(sizes)) > 1:
            other = next(r for r, size in enumerate(sizes) if size != sizes[0])
            raise Mismatch(
                f"rank 0 gives {sizes[0]} numbers to {call} where rank {other} gives {sizes[other]}:"
                " all ranks must give the same count."
            )

    def _next_call(self, kind: str, value: Any) -> int:
        """Make the next call; return its number."""
        number, self._calls = self._calls, self._calls + 1
        self._matcher.give(number, self.rank, self.now, kind, value)
        return number

    def _gathered(self, kind: str, value: Any) -> list[Any]:
        """Return the arguments of all ranks to a call. Each gets its own copy, as from a message."""
        held = np.array(value) if isinstance(value, np.ndarray) else value
        result: list[Any] = self._matcher.take(self._next_call(kind, held), self.rank).result
        self.log.append((kind, sum(map(bytes_of, result))))
        return [np.array(v) if isinstance(v, np.ndarray) else v for v in result]


class Request:
    """An allreduce in flight. Wait for it before you read the result or write to the send buffer."""

    def __init__(self, own: Rank, number: int, post: Post, receive: Array, in_place: bool) -> None:
        self._own, self._number, self._post, self._receive = own, number, post, receive
        self._in_place = in_place

    def Wait(self, status: Any = None) -> bool:
        """Wait for the allreduce."""
        if not self._post.waited:
            collective = self._own._matcher.take(self._number, self._own.rank)
            before, self._own.now = self._own.now, max(self._own.now, collective.ended)
            self._end(collective, before)
        return True

    def Test(self, status: Any = None) -> bool:
        """Return whether the allreduce is complete, by the clock of this rank."""
        if not self._post.waited:
            collective = self._own._matcher.take(self._number, self._own.rank)
            if collective.ended > self._own.now:
                self._own.now += POLL  # or a polling loop would never end
                return False
            self._end(collective, self._own.now)
        return True

    wait, test = Wait, Test

    def _end(self, collective: Collective, before: float) -> None:
        post, real = self._post, self._receive.dtype.kind == "f"
        was = np.full_like(post.sent, np.nan) if self._in_place and real else post.sent
        post.changed = not np.array_equal(post.send, was, equal_nan=real)
        self._receive[...] = collective.result.reshape(self._receive.shape)
        post.end(collective.ended, before, self._own.now, self._own.witness)


def emulate(
    ranks: int,
    program: Callable[[Any], Any],
    seconds: Callable[[int], float] = lambda size: 0.0,
    patience: float = PATIENCE,
) -> list[Any]:
    """Run program(comm) on every rank, each in a thread; return their results.

    seconds: of an allreduce of a number of bytes. patience: CPU seconds until ranks that still compute are stopped.
    Raises LabError that names the first rank that failed with its own error, or who waits for calls that are
    never made; Endless, who does not end.
    """
    matcher = Matcher(ranks, seconds)
    results: list[Any] = [None] * ranks
    errors: dict[int, BaseException] = {}

    def run(rank: int) -> None:
        own = Rank(rank, matcher)
        try:
            with np.errstate(all="ignore"):  # a wrong program may diverge; errstate is per thread
                results[rank] = program(own)
        except BaseException as error:  # sys.exit() as well
            errors[rank] = error
        finally:
            matcher.leave(rank)

    threads = [threading.Thread(target=run, args=(rank,), daemon=True) for rank in range(ranks)]
    for thread in threads:
        thread.start()
    try:
        join(threads, patience)
        endless = [r for r, t in enumerate(threads) if t.is_alive() and r not in matcher.waiting]
    finally:  # after a keyboard interrupt as well
        stop(threads)
    if endless:
        raise Endless(
            f"{ranks_named(endless)} still compute{'s' * (len(endless) == 1)} after {patience:g} s: which loop never"
            " ends, or makes one call per number?"
        )
    _raise_first(errors)
    for message in matcher.queues.left():
        raise LabError(
            f"rank {message.source} sent rank {message.target} a message that is never received (tag {message.tag})."
        )
    return results


def _raise_first(errors: dict[int, BaseException]) -> None:
    """Raise the error of the first rank that failed on its own, else the earliest deadlock."""
    unmet = [error for error in errors.values() if isinstance(error, Unmet)]
    if unmet and len(unmet) == len(errors):
        raise min(unmet, key=lambda error: error.call)
    first = {rank: error for rank, error in errors.items() if not isinstance(error, Unmet)}
    for rank in sorted(first):
        error = first[rank]
        if isinstance(error, LabError):
            raise error
        raise LabError(
            f"rank {rank} stopped with {type(error).__name__}: {error}{_where(error)}{_hint(error)}"
        ) from error


def _where(error: BaseException) -> str:
    """Return the line of the learner's own file or cell that an error comes from."""
    paths = sysconfig.get_paths()
    foreign = (str(Path(__file__).parents[2]), paths["stdlib"], paths["purelib"], paths["platlib"])
    own = [f for f in extract_tb(error.__traceback__) if not f.filename.startswith(foreign)]
    return f" (line {own[-1].lineno}: {own[-1].line})" if own and own[-1].line else ""


def _hint(error: BaseException) -> str:
    """Return a hint if a function of mpi4py was called with an emulated request."""
    if isinstance(error, TypeError) and "mpi4py" in str(error):
        return ". Wait for emulated requests one by one: request.Wait()."
    return ""


def _only_sums(op: Any) -> None:
    """Raise LabError unless the operation is MPI.SUM or None, its default."""
    if op is None:
        return
    from mpi4py import MPI

    if op != MPI.SUM:
        raise LabError("emulated ranks only sum: leave out the operation, or pass MPI.SUM.")
