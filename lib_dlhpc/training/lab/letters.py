"""Letters: messages from one emulated rank to another, as mpi4py's Send, Recv, Isend, Irecv and Sendrecv.

A send waits until it is received, as MPI's may: a program that needs it to return at once hangs on some
machines and with some sizes, here always, and is told who waits for whom. Isend and Irecv return at once.
What arrives is there after Wait; until then the buffer holds NaN.
"""

import copy
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from lib_dlhpc.training.lab.mistakes import LabError, Mismatch, array_of, bytes_of
from lib_dlhpc.training.layers.kept import Array

HINT = (
    " A send may wait until it is received: for small messages MPI often does not, for large ones it does."
    " Isend never waits; its Wait does."
)


@dataclass(eq=False)
class Letter:
    """One message, or the wish for one: what a rank has given, or where it wants it."""

    source: int
    target: int
    tag: int | None  # None: any, only of a wish
    held: Array | None  # what was given, as the rank has it in memory; of a wish: the room for it
    value: Any = None  # as it was when it set out
    match: "Letter | None" = None
    waited: bool = False
    changed: bool = False  # what was given was written to before it was waited for

    def fits(self, wish: "Letter") -> bool:
        """Return whether this is what `wish` wants."""
        return self.match is None and wish.match is None and wish.tag in (None, self.tag)


class Post(Protocol):
    """The post office that all ranks share; see ranks.py."""

    def post(self, letter: Letter, wish: bool) -> None:
        """Match it with the first that fits."""

    def wait(self, rank: int, words: str, ready: Callable[[], bool]) -> None:
        """Wait until ready(). Raises Unmet when nobody can go on."""


class Boxes:
    """The letters and wishes without a match; of each pair of ranks the first that fit belong together."""

    def __init__(self) -> None:
        self._open: dict[tuple[int, int, bool], list[Letter]] = {}

    def add(self, new: Letter, wish: bool) -> None:
        """Match a letter or a wish, or keep it until its match comes."""
        for other in self._open.get((new.source, new.target, not wish), []):
            if (other if wish else new).fits(new if wish else other):
                new.match, other.match = other, new
                self._open[new.source, new.target, not wish].remove(other)
                return
        self._open.setdefault((new.source, new.target, wish), []).append(new)

    def left(self) -> list[Letter]:
        """Return the letters that nobody has received."""
        return [each for key, letters in self._open.items() if not key[2] for each in letters]


class Correspondent:
    """The calls of a rank that concern one other rank. letters: what it has sent."""

    rank: int
    size: int
    moved: int
    _together: Any

    def __init__(self) -> None:
        self.letters: list[Letter] = []

    def Isend(self, buf: Any, dest: int, tag: int = 0) -> "LetterRequest":
        """Begin to send an array."""
        held = array_of(buf)
        return self._send("Isend", held, held.copy(), dest, tag)

    def Send(self, buf: Any, dest: int, tag: int = 0) -> None:
        """Send an array; wait until it is received."""
        held = array_of(buf)
        self._send("Send", held, held.copy(), dest, tag).Wait()

    def Irecv(self, buf: Any, source: int | None = None, tag: int | None = None) -> "LetterRequest":
        """Begin to receive an array."""
        room = array_of(buf, "receives into")
        if room.dtype.kind == "f" and not _nobody(source):
            room[...] = np.nan
        return self._receive("Irecv", room, source, tag)

    def Recv(
        self, buf: Any, source: int | None = None, tag: int | None = None, status: Any = None
    ) -> None:
        """Receive an array."""
        self._receive("Recv", array_of(buf, "receives into"), source, tag).Wait()

    def Sendrecv(
        self, sendbuf: Any, dest: int, sendtag: int = 0, recvbuf: Any = None,
        source: int | None = None, recvtag: int | None = None, status: Any = None,
    ) -> None:  # fmt: skip
        """Send an array and receive another, whichever goes first."""
        held, room = array_of(sendbuf), array_of(recvbuf, "receives into")
        sent = self._send("Sendrecv", held, held.copy(), dest, sendtag)
        self._receive("Sendrecv", room, source, recvtag).Wait()
        sent.Wait()

    def isend(self, obj: Any, dest: int, tag: int = 0) -> "LetterRequest":
        """Begin to send an object."""
        return self._send("isend", None, copy.deepcopy(obj), dest, tag)

    def send(self, obj: Any, dest: int, tag: int = 0) -> None:
        """Send an object; wait until it is received."""
        self._send("send", None, copy.deepcopy(obj), dest, tag).Wait()

    def irecv(
        self, buf: Any = None, source: int | None = None, tag: int | None = None
    ) -> "LetterRequest":
        """Begin to receive an object: wait() returns it."""
        return self._receive("irecv", None, source, tag)

    def recv(
        self, buf: Any = None, source: int | None = None, tag: int | None = None, status: Any = None
    ) -> Any:
        """Return an object that is received."""
        return self._receive("recv", None, source, tag).wait()

    def sendrecv(
        self, sendobj: Any, dest: int, sendtag: int = 0, recvbuf: Any = None,
        source: int | None = None, recvtag: int | None = None, status: Any = None,
    ) -> Any:  # fmt: skip
        """Send an object and return another that is received."""
        sent = self._send("sendrecv", None, copy.deepcopy(sendobj), dest, sendtag)
        received = self._receive("sendrecv", None, source, recvtag).wait()
        sent.wait()
        return received

    def _send(
        self, call: str, held: Array | None, value: Any, dest: int, tag: int
    ) -> "LetterRequest":
        if _nobody(dest):
            return LetterRequest(self, call, None, False)
        self._check(call, dest, "to")
        letter = Letter(self.rank, int(dest), int(tag), held, value)
        self.letters.append(letter)
        self.moved += bytes_of(value)
        self._together.post(letter, False)
        return LetterRequest(self, call, letter, False)

    def _receive(
        self, call: str, room: Array | None, source: int | None, tag: int | None
    ) -> "LetterRequest":
        if _nobody(source):
            return LetterRequest(self, call, None, True)
        if source is None or source < 0:
            raise LabError(
                f"comm.{call}: say from whom, source=...; what comes from anybody comes in any order."
            )
        self._check(call, source, "from")
        wish = Letter(int(source), self.rank, None if tag is None or tag < 0 else int(tag), room)
        self._together.post(wish, True)
        return LetterRequest(self, call, wish, True)

    def _check(self, call: str, peer: int, way: str) -> None:
        if peer not in range(self.size):
            raise LabError(
                f"rank {self.rank} calls {call} {way} rank {peer}: there are ranks 0 to {self.size - 1}."
            )


class LetterRequest:
    """A letter under way. Wait for it before you read what arrives, or write to what you sent."""

    def __init__(self, own: Correspondent, call: str, letter: Letter | None, wish: bool) -> None:
        self._own, self._call, self._letter, self._wish = own, call, letter, wish
        self._received: Any = None

    def Wait(self, status: Any = None) -> bool:
        """Wait until it is there."""
        letter = self._letter
        if letter is not None and not letter.waited:
            call = f"the Wait of {self._call}" if self._call[0] in "Ii" else self._call
            peer = (
                f"from rank {letter.source}"
                if self._wish
                else f"to rank {letter.target}, which does not receive it"
            )
            words = f"{call} {peer}{f' (tag {letter.tag})' if letter.tag else ''}"
            self._own._together.wait(self._own.rank, words, lambda: letter.match is not None)
            self._end(letter)
        return True

    def Test(self, status: Any = None) -> bool:
        """Return whether it is there."""
        if self._letter is None or self._letter.waited:
            return True
        if self._letter.match is None:
            return False
        self._end(self._letter)
        return True

    def wait(self, status: Any = None) -> Any:
        """Wait until it is there; return the object that is received."""
        self.Wait()
        return self._received

    def test(self, status: Any = None) -> tuple[bool, Any]:
        """Return whether it is there, and the object that is received."""
        return self.Test(), self._received

    def _end(self, letter: Letter) -> None:
        letter.waited = True
        if not self._wish:
            if letter.held is not None:
                letter.changed = not np.array_equal(letter.held, letter.value, equal_nan=True)
            return
        assert letter.match is not None
        value, room = letter.match.value, letter.held
        self._own.moved += bytes_of(value)
        if room is None or letter.match.held is None:
            if (room is None) != (letter.match.held is None):
                raise Mismatch(
                    f"rank {letter.target} calls {self._call} for what rank {letter.source} sends with a call"
                    " of the other kind: both with a capital letter, or both with a small one."
                )
            self._received = value
            return
        if room.dtype != value.dtype or room.size < value.size:
            raise Mismatch(
                f"rank {letter.source} sends {value.size} numbers of type {value.dtype}, rank"
                f" {letter.target} has room for {room.size} of type {room.dtype}."
            )
        room.reshape(-1)[: value.size] = (
            value.ravel()
        )  # less than there is room for is legal in MPI


def _nobody(peer: int | None) -> bool:
    """Return whether it is MPI.PROC_NULL: nothing is sent, nothing received."""
    if peer is None or peer >= 0:
        return False
    from mpi4py import MPI

    return peer == MPI.PROC_NULL
