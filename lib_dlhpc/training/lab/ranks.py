"""Emulated ranks: threads of one process that talk as mpi4py's communicators do, and mistakes that get words.

    results = emulate(4, lambda comm: comm.allreduce(comm.rank))

Where MPI would hang, an error says who waits for whom: ranks meet in the order of their calls, so a call
that a rank has returned without making can never be made. Sums are taken in the order of the ranks, so the
same program gives the same bytes. A result is there only after Wait; until then the buffer holds NaN.
"""

import ctypes
import sysconfig
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from math import inf
from pathlib import Path
from time import monotonic
from traceback import extract_tb
from typing import Any, Protocol

import numpy as np

from lib_dlhpc.training.lab.letters import HINT, Boxes, Correspondent, Letter
from lib_dlhpc.training.lab.mistakes import (
    Endless,
    LabError,
    Mismatch,
    Unmet,
    array_of,
    bytes_of,
    is_in_place,
    ranks_named,
    ranks_wait,
)
from lib_dlhpc.training.layers.kept import Array

PATIENCE = 10.0  # s that ranks may take together: a step is done in a fraction of one
POLL = 1e-6  # s of a rank's clock for asking in vain whether a sum is there
KNOWN = (
    "Allreduce, Iallreduce, Bcast, Barrier, allreduce, allgather, gather, bcast, barrier; Send, Recv, Isend,"
    " Irecv, Sendrecv, send, recv, isend, irecv, sendrecv"
)


class _Stopped(BaseException):
    """A rank has run for too long, or its caller was interrupted."""


class Witness(Protocol):
    """Who knows which gradients are there: see watch.py."""

    complete: int  # gradients[complete:] are this step's
    running: bool  # backward


@dataclass
class Post:
    """One sum of arrays that a rank has begun."""

    send: Array  # what was given, as the rank has it in memory
    sent: Array  # its values at that moment
    begun: float  # s of the rank's clock
    ended: float = np.nan  # s; no number until it is waited for
    waited: bool = False
    changed: bool = False  # what was given was written to before the sum was waited for
    complete: int = 0  # gradients[complete:] were this step's when it began
    inside: bool = False  # begun while backward went on
    stood: tuple[float, float] = (0.0, 0.0)  # s between which the rank stood still for it
    stood_inside: bool = False  # and did so while backward went on

    def seen(self, witness: Witness | None) -> None:
        """Note what is complete as it begins."""
        if witness is not None:
            self.complete, self.inside = witness.complete, witness.running

    def end(self, ended: float, before: float, after: float, witness: Witness | None) -> None:
        """Note that the rank has waited for it."""
        self.waited, self.ended, self.stood = True, ended, (before, after)
        self.stood_inside = witness is not None and witness.running and after > before


@dataclass
class _Meeting:
    """The n-th call of every rank."""

    given: dict[int, tuple[str, Any, float]] = field(default_factory=dict)
    result: Any = None
    ended: float = 0.0  # s


class Rank(Correspondent):
    """One emulated rank. `now` is its own clock, which stands still but for `spend` and for sums.

    posts: the sums of arrays that it has begun. moved: B that went into its calls and came out of them.
    """

    def __init__(self, rank: int, together: "_Together") -> None:
        super().__init__()
        self.rank, self.size, self._together = rank, together.size, together
        self.now, self.moved = 0.0, 0
        self.posts: list[Post] = []
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
        """Begin a sum over all ranks; `send` is an array, or MPI.IN_PLACE to use `receive` for both."""
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
                f"rank {self.rank} sends from where it receives: MPI wants two arrays, or MPI.IN_PLACE for"
                " the first."
            )
        post = Post(source, source.copy(), self.now)
        post.seen(self.witness)
        self.posts.append(post)
        self.moved += 2 * source.nbytes
        number = self._meet("Allreduce", post.sent)
        if receive.dtype.kind == "f":
            receive[...] = np.nan
        return Request(self, number, post, receive, in_place)

    def Allreduce(self, send: Any, receive: Any, op: Any = None) -> None:
        """Put the sum over all ranks into `receive`."""
        self.Iallreduce(send, receive, op).Wait()

    def Bcast(self, buffer: Any, root: int = 0) -> None:
        """Copy the root's array to all ranks."""
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
        raise LabError(f"comm.{name}: emulated ranks do not know it; they know {KNOWN}.")

    def _meet(self, kind: str, value: Any) -> int:
        """Make the next call; return its number."""
        number, self._calls = self._calls, self._calls + 1
        self._together.give(number, self, kind, value)
        return number

    def _gathered(self, kind: str, value: Any) -> list[Any]:
        """Return what all ranks gave to a call. Each gets its own copy, as from a message."""
        held = np.array(value) if isinstance(value, np.ndarray) else value
        result: list[Any] = self._together.take(self._meet(kind, held), self).result
        return [np.array(v) if isinstance(v, np.ndarray) else v for v in result]


class Request:
    """A sum under way. Wait for it before you read the result, or write to what you sent."""

    def __init__(self, own: Rank, number: int, post: Post, receive: Array, in_place: bool) -> None:
        self._own, self._number, self._post, self._receive = own, number, post, receive
        self._in_place = in_place

    def Wait(self, status: Any = None) -> bool:
        """Wait until the sum is there."""
        if not self._post.waited:
            meeting = self._own._together.take(self._number, self._own)
            before, self._own.now = self._own.now, max(self._own.now, meeting.ended)
            self._end(meeting, before)
        return True

    def Test(self, status: Any = None) -> bool:
        """Return whether the sum is there, by the clock of this rank."""
        if not self._post.waited:
            meeting = self._own._together.take(self._number, self._own)
            if meeting.ended > self._own.now:
                self._own.now += POLL  # or a loop that asks until it is there would never end
                return False
            self._end(meeting, self._own.now)
        return True

    wait, test = Wait, Test

    def _end(self, meeting: _Meeting, before: float) -> None:
        post, real = self._post, self._receive.dtype.kind == "f"
        was = np.full_like(post.sent, np.nan) if self._in_place and real else post.sent
        post.changed = not np.array_equal(post.send, was, equal_nan=real)
        self._receive[...] = meeting.result.reshape(self._receive.shape)
        post.end(meeting.ended, before, self._own.now, self._own.witness)


class _Together:
    """Where ranks meet: the n-th calls of all ranks are one meeting, and sums come one after another."""

    def __init__(self, size: int, seconds: Callable[[int], float]) -> None:
        self.size, self.seconds = size, seconds
        self._change = threading.Condition()
        self._meetings: list[_Meeting] = []
        self._left: set[int] = set()  # ranks that have returned
        # Ranks that stand still until others come: where, and whether they may go on.
        self.waiting: dict[int, tuple[str, Callable[[], bool]]] = {}
        self.boxes = Boxes()
        self._stuck: Unmet | None = None  # nobody can go on
        self._free = 0.0  # s from which on the network is free

    def give(self, number: int, rank: Rank, kind: str, value: Any) -> None:
        with self._change:
            while len(self._meetings) <= number:
                self._meetings.append(_Meeting())
            meeting = self._meetings[number]
            meeting.given[rank.rank] = kind, value, rank.now
            if len(meeting.given) == self.size:
                self._settle(meeting)
            self._change.notify_all()

    def take(self, number: int, rank: Rank) -> _Meeting:
        """Return a meeting when all have come. Raises Unmet where one has returned without coming."""
        with self._change:
            meeting = self._meetings[number]
            while meeting.result is None:
                gone = sorted(r for r in self._left if r not in meeting.given)
                # Said when all others have come or gone, so that the same words come every time.
                if gone and len(gone) + len(meeting.given) == self.size:
                    waiting = sorted(meeting.given)
                    raise Unmet(
                        f"{ranks_wait(waiting)} in {meeting.given[rank.rank][0]}, call number {number + 1},"
                        f" for {ranks_named(gone)}, which returned without it: MPI would hang here. Every rank"
                        " must make the same calls, also one with nothing to add.",
                        number,
                    )
                where = f"{meeting.given[rank.rank][0]}, call number {number + 1}"
                self._stand(rank.rank, where, lambda: meeting.result is not None)
            if isinstance(meeting.result, LabError):
                raise meeting.result
            return meeting

    def leave(self, rank: int) -> None:
        with self._change:
            self._left.add(rank)
            self._look()
            self._change.notify_all()

    def post(self, letter: Letter, wish: bool) -> None:
        """Match a letter, or the wish for one, with the first that fits."""
        with self._change:
            self.boxes.add(letter, wish)
            self._change.notify_all()

    def wait(self, rank: int, words: str, ready: Callable[[], bool]) -> None:
        """Wait until ready(). Raises Unmet when nobody can go on."""
        with self._change:
            while not ready():
                self._stand(rank, words, ready)

    def _stand(self, rank: int, words: str, ready: Callable[[], bool]) -> None:
        """Stand still until something changes."""
        if self._stuck:
            raise self._stuck
        self.waiting[rank] = words, ready
        self._look()
        if not self._stuck:
            self._change.wait()
        del self.waiting[rank]

    def _look(self) -> None:
        """Note when all who are still there stand still for ever."""
        there = self.size - len(self._left)
        if len(self.waiting) < there or any(ready() for _, ready in self.waiting.values()):
            return
        if self.waiting and not self._stuck:
            waits = [f"rank {r} waits in {words}" for r, (words, _) in sorted(self.waiting.items())]
            if self._left:
                waits.append(f"{ranks_named(sorted(self._left))} returned")
            sends = any("does not receive" in words for words, _ in self.waiting.values())
            told = (
                f"{'; '.join(waits)}: nobody can go on, MPI would hang here.{HINT if sends else ''}"
            )
            self._stuck = Unmet(told, inf)
            self._change.notify_all()

    def _settle(self, meeting: _Meeting) -> None:
        given = [meeting.given[rank] for rank in range(self.size)]
        kinds = [kind for kind, _, _ in given]
        values = [value for _, value, _ in given]
        if len(set(kinds)) > 1:
            other = next(r for r, kind in enumerate(kinds) if kind != kinds[0])
            meeting.result = Mismatch(
                f"rank 0 calls {kinds[0]} where rank {other} calls {kinds[other]}: all ranks must make the"
                " same calls in the same order."
            )
        elif kinds[0] == "Allreduce":
            sizes = [value.size for value in values]
            if len(set(sizes)) > 1:
                other = next(r for r, size in enumerate(sizes) if size != sizes[0])
                meeting.result = Mismatch(
                    f"rank 0 gives {sizes[0]} numbers to Allreduce where rank {other} gives {sizes[other]}:"
                    " all ranks must give equally many."
                )
                return
            met = max(now for _, _, now in given)
            if sizes[0] == 1:  # a number, such as the loss: no time, as in allreduce
                meeting.ended = met
            else:  # one bucket at a time: when all ranks are there and the one before is through
                meeting.ended = self._free = max(self._free, met) + self.seconds(values[0].nbytes)
            meeting.result = np.sum([value.ravel() for value in values], axis=0)
        else:
            meeting.result = values


def emulate(
    ranks: int,
    program: Callable[[Any], Any],
    seconds: Callable[[int], float] = lambda size: 0.0,
    patience: float = PATIENCE,
) -> list[Any]:
    """Run program(comm) on every rank, each a thread; return what each returns.

    seconds: that a sum of so many bytes takes. patience: s until ranks that still compute are stopped.
    Raises LabError that names the first rank that stopped with an error of its own, or who waits for calls
    that will not come; Endless, who does not end.
    """
    together = _Together(ranks, seconds)
    results: list[Any] = [None] * ranks
    errors: dict[int, BaseException] = {}

    def run(rank: int) -> None:
        own = Rank(rank, together)
        try:
            with np.errstate(
                all="ignore"
            ):  # a wrong program may run away; a thread starts with its own
                results[rank] = program(own)
        except BaseException as error:  # sys.exit() as well
            errors[rank] = error
        finally:
            together.leave(rank)

    threads = [threading.Thread(target=run, args=(rank,), daemon=True) for rank in range(ranks)]
    for thread in threads:
        thread.start()
    try:
        end = monotonic() + patience
        for thread in threads:
            thread.join(max(end - monotonic(), 0))
        endless = [r for r, t in enumerate(threads) if t.is_alive() and r not in together.waiting]
    finally:  # after a keyboard interrupt as well
        _stop(threads)
    if endless:
        raise Endless(
            f"{ranks_named(endless)} still compute{'s' * (len(endless) == 1)} after {patience:g} s: which loop"
            " does not end?"
        )
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
    for letter in together.boxes.left():
        raise LabError(
            f"rank {letter.source} has sent to rank {letter.target} what nobody receives (tag {letter.tag})."
        )
    return results


def _stop(threads: list[threading.Thread]) -> None:
    """Raise _Stopped in threads that still run. One inside a long call of C ends when that returns."""
    alive = [thread for thread in threads if thread.is_alive()]
    for thread in alive:
        number = ctypes.c_ulong(thread.ident or 0)
        ctypes.pythonapi.PyThreadState_SetAsyncExc(number, ctypes.py_object(_Stopped))
    for thread in alive:
        thread.join(1.0)


def _where(error: BaseException) -> str:
    """Return the line of the learner's own file or cell that an error comes from."""
    paths = sysconfig.get_paths()
    foreign = (str(Path(__file__).parents[2]), paths["stdlib"], paths["purelib"], paths["platlib"])
    own = [f for f in extract_tb(error.__traceback__) if not f.filename.startswith(foreign)]
    return f" (line {own[-1].lineno}: {own[-1].line})" if own and own[-1].line else ""


def _hint(error: BaseException) -> str:
    """Return what to do where a function of mpi4py's own is given an emulated request."""
    if isinstance(error, TypeError) and "mpi4py" in str(error):
        return ". Emulated requests are waited for one by one: request.Wait()."
    return ""


def _only_sums(op: Any) -> None:
    """MPI.SUM, or nothing, which means it; other operations are not emulated."""
    if op is None:
        return
    from mpi4py import MPI

    if op != MPI.SUM:
        raise LabError("emulated ranks only sum: leave out the operation, or give MPI.SUM.")
