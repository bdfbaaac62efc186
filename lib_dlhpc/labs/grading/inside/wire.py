"""Messages over a socket: plain data as JSON, arrays as raw bytes behind it. Nothing in them is ever executed.

Plain data: None, bool, int, float, str, bytes, numpy arrays and scalars of numbers, and lists, tuples and dicts of
these. Each kind that JSON lacks is a dict of one entry, whose key is its kind: {"tuple": [...]}, {"array": 3}.
"""

import json
import socket
import struct
from collections.abc import Callable
from typing import Any

import numpy as np

MOST = 1 << 26  # B of a message
MOST_TEXT = 1 << 23  # B of its JSON, which takes more memory than that
KINDS = "biufc"  # of numpy's types: numbers and truth values
HEAD = struct.Struct("!II")  # bytes of JSON, bytes of arrays
TAKEN = 10.0  # s in which a message must have been read
POLL = 0.05  # s; between two of them a thread that waits can be ended


class Closed(Exception):
    """The other end is gone."""


class Garbled(Exception):
    """What has come is no message."""


class Tail:
    """The bytes of the arrays of a message, each of which is of one array, in their order."""

    def __init__(self, data: bytearray) -> None:
        self._data, self._taken = data, 0

    def take(self, place: int, size: int) -> bytearray:
        """Return the bytes of the next array. Raises ValueError where they are another's, or missing."""
        if place != self._taken or place + size > len(self._data):
            raise ValueError("an array without bytes of its own")
        self._taken += size
        return self._data[place : place + size]


def send(sock: socket.socket, message: Any, encode: Callable[[Any], Any]) -> None:
    """Send a message. encode: what a value that is no plain data becomes. Raises Closed, or ValueError if too large."""
    arrays: list[bytes] = []
    text = json.dumps(packed(message, arrays, encode)).encode()
    tail = b"".join(arrays)
    if len(text) > MOST_TEXT or len(text) + len(tail) > MOST:
        raise ValueError(f"A message of {len(text) + len(tail)} bytes; at most {MOST} are allowed.")
    try:
        sock.settimeout(TAKEN)
        sock.sendall(HEAD.pack(len(text), len(tail)) + text + tail)
    except OSError:
        raise Closed from None


def receive(
    sock: socket.socket, decode: Callable[[str, Any], Any], alive: Callable[[], None] | None = None
) -> Any:
    """Return the next message. decode: the value of a kind that is not known here; alive: called while waiting.

    Raises Closed, Garbled, and what `alive` and `decode` raise.
    """
    text_size, tail_size = HEAD.unpack(_exactly(sock, HEAD.size, alive))
    if text_size > MOST_TEXT or text_size + tail_size > MOST:
        raise Garbled(f"a message of {text_size + tail_size} bytes")
    text = _exactly(sock, text_size, alive)
    tail = _exactly(sock, tail_size, alive)
    try:
        return unpacked(json.loads(text), Tail(tail), decode)
    except (ValueError, TypeError, KeyError, RecursionError, OverflowError) as error:
        raise Garbled(f"{type(error).__name__}: {error}"[:200]) from None


def _exactly(sock: socket.socket, size: int, alive: Callable[[], None] | None) -> bytearray:
    """Return that many bytes."""
    sock.settimeout(POLL if alive else None)
    found = bytearray()
    while len(found) < size:
        try:
            part = sock.recv(min(size - len(found), 1 << 20))
        except TimeoutError:
            part = None
        except OSError:
            part = b""
        if part == b"":
            raise Closed
        if part:
            found += part
        if alive:  # also of one who sends byte by byte
            alive()
    return found


def packed(value: Any, arrays: list[bytes], encode: Callable[[Any], Any]) -> Any:
    """Return a value as JSON has it; the bytes of arrays are appended to `arrays`."""
    if value is None or type(value) in (bool, int, float, str):
        return value
    if type(value) is list:
        return [packed(each, arrays, encode) for each in value]
    if type(value) is tuple:
        return {"tuple": [packed(each, arrays, encode) for each in value]}
    if type(value) is dict:
        pairs = [[packed(k, arrays, encode), packed(v, arrays, encode)] for k, v in value.items()]
        return {"dict": pairs}
    if type(value) is bytes:
        return {"bytes": _array(np.frombuffer(value, np.uint8), arrays)}
    if isinstance(value, np.generic) and value.dtype.kind in KINDS:
        return {"scalar": _array(np.asarray(value), arrays)}
    if type(value) is np.ndarray and value.dtype.kind in KINDS:
        return {"array": _array(value, arrays)}
    kind, inner = encode(value)
    return {kind: packed(inner, arrays, encode)}


def _array(value: Any, arrays: list[bytes]) -> list[Any]:
    """Return place, type and shape of an array whose bytes are appended."""
    place = sum(map(len, arrays))
    arrays.append(value.tobytes())
    return [place, value.dtype.str, list(value.shape)]


def unpacked(value: Any, tail: Tail, decode: Callable[[str, Any], Any]) -> Any:
    """Return the value that `packed` was given. Raises ValueError and the like for what it did not make."""
    if isinstance(value, list):
        return [unpacked(each, tail, decode) for each in value]
    if not isinstance(value, dict):
        return value
    ((kind, inner),) = value.items()
    if kind in ("array", "scalar", "bytes"):
        found = _unpacked_array(inner, tail)
        return {"array": found, "scalar": found[()]}.get(kind, found.tobytes())
    items = unpacked(inner, tail, decode)
    if kind == "tuple":
        return tuple(items)
    if kind == "dict":
        return dict(items)
    return decode(kind, items)


def _unpacked_array(where: Any, tail: Tail) -> Any:
    place, name, shape = where
    dtype = np.dtype(str(name))
    if dtype.kind not in KINDS or not all(type(each) is int and each >= 0 for each in shape):
        raise ValueError(f"an array of type {str(name)[:20]} and shape {str(shape)[:40]}")
    size = dtype.itemsize
    for each in shape:
        size *= each
    return np.frombuffer(tail.take(place, size), dtype).reshape(shape)
