"""Point-to-point messages between emulated ranks: mpi4py's Send, Recv, Isend, Irecv and Sendrecv.

A send is synchronous, as MPI allows: a program that relies on buffering hangs on some machines and for some sizes.
Here it always raises an error that names who waits for whom. Isend and Irecv return at once.
Received data is valid after Wait; until then the buffer holds NaN.
"""

import copy
from dataclasses import dataclass
from typing import Any

import numpy as np

from lib_dlhpc.labs.mistakes import LabError, Mismatch, array_of, bytes_of
from lib_dlhpc.layers.base.saved import Array

HINT = (
    " A send may block until it is received: MPI often does not block for small messages, but "
    "does for large ones. Isend never blocks; its Wait may."
)


@dataclass(eq=False)
class Message:
    """One posted operation: a send with its data, or a receive with its buffer."""

    source: int
    target: int
    tag: int | None  # None: any tag, only of a receive
    held: Array | None  # the sender's buffer, or the receive buffer
    value: Any = None  # the data at the time of the send
    match: "Message | None" = None
    waited: bool = False
    changed: bool = False  # the send buffer was modified before Wait

    def fits(self, receive: "Message") -> bool:
        """Return whether this send matches a receive."""
        return self.match is None and receive.match is None and receive.tag in (None, self.tag)


class MatchQueues:
    """Unmatched sends and receives; for each pair of ranks the first that fit are matched."""

    def __init__(self) -> None:
        self._open: dict[tuple[int, int, bool], list[Message]] = {}

    def add(self, new: Message, receive: bool) -> None:
        """Match a send or a receive, or queue it until its match is posted."""
        for other in self._open.get((new.source, new.target, not receive), []):
            if (other if receive else new).fits(new if receive else other):
                new.match, other.match = other, new
                self._open[new.source, new.target, not receive].remove(other)
                return
        self._open.setdefault((new.source, new.target, receive), []).append(new)

    def left(self) -> list[Message]:
        """Return the sends that nobody has received."""
        return [each for key, messages in self._open.items() if not key[2] for each in messages]


class PointToPoint:
    """The point-to-point calls of a rank. messages: the messages it has sent."""

    rank: int
    size: int
    moved: int
    _matcher: Any

    def __init__(self) -> None:
        self.messages: list[Message] = []

    def Isend(self, buf: Any, dest: int, tag: int = 0) -> "MessageRequest":
        """Start sending an array."""
        held = array_of(buf)
        return self._send("Isend", held, held.copy(), dest, tag)

    def Send(self, buf: Any, dest: int, tag: int = 0) -> None:
        """Send an array; block until it is received."""
        held = array_of(buf)
        self._send("Send", held, held.copy(), dest, tag).Wait()

    def Irecv(
        self, buf: Any, source: int | None = None, tag: int | None = None
    ) -> "MessageRequest":
        """Start receiving an array."""
        buffer = array_of(buf, "receives into")
        if buffer.dtype.kind == "f" and not _is_null(source):
            buffer[...] = np.nan
        return self._receive("Irecv", buffer, source, tag)

    def Recv(
        self, buf: Any, source: int | None = None, tag: int | None = None, status: Any = None
    ) -> None:
        """Receive an array."""
        self._receive("Recv", array_of(buf, "receives into"), source, tag).Wait()

    def Sendrecv(
        self,
        sendbuf: Any,
        dest: int,
        sendtag: int = 0,
        recvbuf: Any = None,
        source: int | None = None,
        recvtag: int | None = None,
        status: Any = None,
    ) -> None:
        """Send an array and receive another, without deadlock."""
        held, buffer = array_of(sendbuf), array_of(recvbuf, "receives into")
        sent = self._send("Sendrecv", held, held.copy(), dest, sendtag)
        self._receive("Sendrecv", buffer, source, recvtag).Wait()
        sent.Wait()

    def isend(self, obj: Any, dest: int, tag: int = 0) -> "MessageRequest":
        """Start sending an object."""
        return self._send("isend", None, copy.deepcopy(obj), dest, tag)

    def send(self, obj: Any, dest: int, tag: int = 0) -> None:
        """Send an object; block until it is received."""
        self._send("send", None, copy.deepcopy(obj), dest, tag).Wait()

    def irecv(
        self, buf: Any = None, source: int | None = None, tag: int | None = None
    ) -> "MessageRequest":
        """Start receiving an object: wait() returns it."""
        return self._receive("irecv", None, source, tag)

    def recv(
        self, buf: Any = None, source: int | None = None, tag: int | None = None, status: Any = None
    ) -> Any:
        """Receive an object and return it."""
        return self._receive("recv", None, source, tag).wait()

    def sendrecv(
        self,
        sendobj: Any,
        dest: int,
        sendtag: int = 0,
        recvbuf: Any = None,
        source: int | None = None,
        recvtag: int | None = None,
        status: Any = None,
    ) -> Any:
        """Send an object, receive another and return it."""
        sent = self._send("sendrecv", None, copy.deepcopy(sendobj), dest, sendtag)
        received = self._receive("sendrecv", None, source, recvtag).wait()
        sent.wait()
        return received

    def _send(
        self, call: str, held: Array | None, value: Any, dest: int, tag: int
    ) -> "MessageRequest":
        if _is_null(dest):
            return MessageRequest(self, call, None, False)
        self._check(call, dest, "to")
        message = Message(self.rank, int(dest), int(tag), held, value)
        self.messages.append(message)
        self.moved += bytes_of(value)
        self._matcher.post(message, False)
        return MessageRequest(self, call, message, False)

    def _receive(
        self, call: str, buffer: Array | None, source: int | None, tag: int | None
    ) -> "MessageRequest":
        if _is_null(source):
            return MessageRequest(self, call, None, True)
        if source is None or source < 0:
            raise LabError(
                f"comm.{call}: pass source=...; messages from any source arrive in any order."
            )
        self._check(call, source, "from")
        receive = Message(
            int(source), self.rank, None if tag is None or tag < 0 else int(tag), buffer
        )
        self._matcher.post(receive, True)
        return MessageRequest(self, call, receive, True)

    def _check(self, call: str, peer: int, way: str) -> None:
        if peer not in range(self.size):
            raise LabError(
                f"rank {self.rank} calls {call} {way} rank {peer}: valid ranks are 0 to "
                f"{self.size - 1}."
            )


class MessageRequest:
    """A message in flight. Wait for it before you read the receive buffer or write to the send buffer."""

    def __init__(
        self, own: PointToPoint, call: str, message: Message | None, receive: bool
    ) -> None:
        self._own, self._call, self._message, self._is_receive = own, call, message, receive
        self._received: Any = None

    def Wait(self, status: Any = None) -> bool:
        """Wait for completion."""
        message = self._message
        if message is not None and not message.waited:
            call = f"the Wait of {self._call}" if self._call[0] in "Ii" else self._call
            peer = (
                f"from rank {message.source}"
                if self._is_receive
                else f"to rank {message.target}, which does not receive it"
            )
            words = f"{call} {peer}{f' (tag {message.tag})' if message.tag else ''}"
            self._own._matcher.wait(self._own.rank, words, lambda: message.match is not None)
            self._end(message)
        return True

    def Test(self, status: Any = None) -> bool:
        """Return whether it is complete."""
        if self._message is None or self._message.waited:
            return True
        if self._message.match is None:
            return False
        self._end(self._message)
        return True

    def wait(self, status: Any = None) -> Any:
        """Wait for completion; return the received object."""
        self.Wait()
        return self._received

    def test(self, status: Any = None) -> tuple[bool, Any]:
        """Return whether it is complete, and the received object."""
        return self.Test(), self._received

    def _end(self, message: Message) -> None:
        message.waited = True
        if not self._is_receive:
            if message.held is not None:
                message.changed = not np.array_equal(message.held, message.value, equal_nan=True)
            return
        assert message.match is not None
        value, buffer = message.match.value, message.held
        self._own.moved += bytes_of(value)
        if buffer is None or message.match.held is None:
            if (buffer is None) != (message.match.held is None):
                raise Mismatch(
                    f"rank {message.target} calls {self._call} for a message that rank {message.source} sends with a"
                    " call of the other kind: use calls with a capital letter on both sides, or with a lowercase"
                    " letter on both."
                )
            self._received = value
            return
        if buffer.dtype != value.dtype or buffer.size < value.size:
            raise Mismatch(
                f"rank {message.source} sends {value.size} numbers of type {value.dtype}, rank"
                f" {message.target} has room for {buffer.size} of type {buffer.dtype}."
            )
        buffer.reshape(-1)[: value.size] = value.ravel()  # a shorter message is legal in MPI


def _is_null(peer: int | None) -> bool:
    """Return whether `peer` is MPI.PROC_NULL: nothing is sent or received."""
    if peer is None or peer >= 0:
        return False
    from mpi4py import MPI

    return peer == MPI.PROC_NULL
