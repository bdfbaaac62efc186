"""A learner's function in a process of its own: calls go to it, and what it calls comes back and is carried out here.

The process is not believed: only plain data comes from it, and only what offered.py lists is called for it.
"""

import socket
from collections.abc import Callable, Iterator
from dataclasses import fields
from pathlib import Path
from time import monotonic
from typing import Any

import numpy as np

from lib_dlhpc.labs.grading.files import Files, Folder, Killed
from lib_dlhpc.labs.grading.inside import wire
from lib_dlhpc.labs.grading.inside.shared import Shared
from lib_dlhpc.labs.grading.offered import OFFERS, Offer, offer_of, plain
from lib_dlhpc.labs.grading.restarts import SteppedTraining
from lib_dlhpc.labs.mistakes import Endless, LabError
from lib_dlhpc.schedules.pipeline import Backward, Forward, Receive, Send

NOUNS = {each.__name__: each for each in (Forward, Backward, Send, Receive)}
FIELDS = {name: len(fields(each)) for name, each in NOUNS.items()}


class TimedOut(Endless):
    """The time for a hand-in is over."""


class Crashed(LabError):
    """A process ended without an answer."""


class Raised(Exception):
    """What a learner's function raised, as a class of the same name."""


class Other:
    """A value of a class that is no plain data; only its type and its text have come."""

    def __init__(self, text: str) -> None:
        self._text = text

    def __repr__(self) -> str:
        return self._text


class Worker:
    """The checker's end of a socket to one process.

    ended: returns how the process ended, in words. files: what it may do with the folders that it is given.
    """

    def __init__(
        self, sock: socket.socket, deadline: float, ended: Callable[[], str], files: Files
    ) -> None:
        self._sock, self._deadline, self._ended, self._files = sock, deadline, ended, files
        self._shared = Shared(1, 1)
        self._objects: dict[int, tuple[Any, Offer]] = {0: (files, OFFERS[Files])}
        self._numbers: dict[int, int] = {}  # id -> number
        self._lasting: set[int] = set()  # arrays of objects, which stay from call to call
        self._errors: list[BaseException] = []
        self._granting = True  # folders that are passed may be used

    def load(self, source: str, file: str) -> dict[str, list[list[Any]]]:
        """Run a hand-in; return the parameters of its functions. Raises what it raises, Crashed, TimedOut."""
        self._send("load", [source, file])
        return dict(self._served("loaded"))

    def call(self, function: str | int, given: tuple[Any, ...], named: dict[str, Any]) -> Any:
        """Return what a function returns. Raises what it raises, Crashed, TimedOut."""
        self._send("call", [function, list(given), named])
        try:
            return self._served("return")
        finally:
            if isinstance(function, str):  # not called back
                self._shared.drop_but(self._lasting)

    def stream(self, function: str, given: tuple[Any, ...], named: dict[str, Any]) -> Iterator[Any]:
        """Yield what a function yields, each when it is asked for. Raises as `call` does."""
        self._send("stream", [function, list(given), named])
        self._served("return")
        while True:
            self._send("next", ["", [], {}])
            found = self._served("return")
            if not isinstance(found, list):
                return
            yield found[0]

    def _served(self, end: str) -> Any:
        """Carry out what the process asks for, until it ends the call."""
        while True:
            kind, what = self._receive()
            if kind == end:
                return what
            try:
                if kind != "raise":
                    number, name, given, named = what
                    target, offer = self._objects[number]
                else:
                    error = self._raised(*what)
            except (ValueError, TypeError, KeyError):
                raise self._crashed() from None
            if kind == "raise":
                raise error
            self._answer(target, offer, str(name), given, named)

    def _answer(self, target: Any, offer: Offer, name: str, given: Any, named: Any) -> None:
        try:
            found = _done(target, offer, name, given, named)
            self._granting = False
            self._send("answer", found)
        except (Crashed, TimedOut, Killed):
            raise
        except Exception as error:
            self._errors.append(error)
            code, words = None, str(error)
            if isinstance(error, OSError) and error.errno:
                where = f": {error.filename}" if error.filename else ""
                code, words = error.errno, f"{error.strerror}{where}"
            self._send("error", [len(self._errors) - 1, type(error).__name__, words, code])
        finally:
            self._granting = True

    def _raised(self, number: Any, name: Any, words: Any, line: Any, text: Any) -> BaseException:
        """Return what the process raised; an error of ours that went through it as it was."""
        if isinstance(number, int) and 0 <= number < len(self._errors):
            return self._errors[number]
        name = name if isinstance(name, str) and name.isidentifier() else "Exception"
        where = f" (line {int(line)}: {str(text)[:200]})" if line else ""
        return type(name[:60], (Raised,), {})(f"{str(words)[:1000]}{where}")

    def _send(self, kind: str, what: Any) -> None:
        try:
            wire.send(self._sock, [kind, what, self._shared.changed(), []], self._encode)
        except wire.Closed:
            raise self._crashed() from None

    def _receive(self) -> tuple[str, Any]:
        self._in_time()  # also where it never lets us wait
        try:
            kind, what, changes, replaced = wire.receive(self._sock, self._decode, self._in_time)
            self._shared.apply(changes)
            for number, name, value in replaced:
                target, offer = self._objects[number]
                if name in offer.arrays:
                    setattr(target, name, value)
        except (wire.Closed, wire.Garbled, ValueError, TypeError, KeyError):
            raise self._crashed() from None
        return str(kind), what

    def _crashed(self) -> Crashed:
        return Crashed(f"Its process {self._ended()}, without an answer.")

    def _in_time(self) -> None:
        if monotonic() > self._deadline:
            raise TimedOut("The time for this hand-in has run out: which loop never ends?")

    def _encode(self, value: Any) -> tuple[str, Any]:
        if isinstance(value, Path | Folder):
            if not self._granting:
                raise TypeError("only arguments of a function may be folders to work in")
            return "path", self._files.grant(Folder(value) if isinstance(value, Path) else value)
        if type(value).__name__ in NOUNS:
            return "noun", [type(value).__name__, list(vars(value).values())]
        if isinstance(value, tuple) and hasattr(value, "_fields"):
            more = {name: getattr(value, name) for name in _properties(type(value))}
            return "record", [type(value).__name__, list(value._fields), list(value), more]
        if isinstance(value, tuple):
            return "tuple", list(value)
        if isinstance(value, Other):
            raise LabError(
                f"{value!r} cannot be passed on: only numbers, text, arrays and lists can."
            )
        offer = offer_of(value)
        if offer is None:
            raise TypeError(f"{type(value).__name__} is not offered to learners")
        number = self._numbers.get(id(value))
        arrays: dict[str, Any] = {}
        if number is None:
            number = self._numbers[id(value)] = len(self._objects)
            self._objects[number] = value, offer
            for name in offer.arrays:
                array = getattr(value, name)
                arrays[name] = (self._shared.add(array), array)
                self._lasting.add(arrays[name][0])
        if isinstance(value, SteppedTraining):
            return "training", [number, value.plain()]
        values = {name: getattr(value, name) for name in offer.values}
        return "object", [number, offer.kind, values, arrays, list(offer.reads)]

    def _decode(self, kind: str, value: Any) -> Any:
        if kind == "list":
            return value
        if kind == "noun":
            name, given = value
            if len(given) != FIELDS[name] or not all(isinstance(each, int | str) for each in given):
                raise ValueError(name)
            return NOUNS[name](*given)
        if kind == "mpi":
            return _constant(value)
        if kind == "function":
            number = int(value)
            return lambda *given, **named: self.call(number, given, named)
        if kind == "other":
            name, text = value
            return type(str(name)[:60], (Other,), {})(str(text)[:200])
        if kind == "object":
            return self._objects[value][0]
        return self._array(kind, value)

    def _array(self, kind: str, value: Any) -> Any:
        """Return an array that the process passes by reference."""
        if kind == "apart":  # not contiguous: neither is ours
            number, array = value
            own = np.empty((*array.shape, 2), array.dtype)[..., 0]
            own[...] = array
            self._shared.take(number, own)
            return own
        number, *rest, start, shape = value
        if kind == "new":
            self._shared.take(number, rest[0])
        elif kind != "part":
            raise ValueError(kind)
        flat = self._shared[number].reshape(-1)
        size = int(np.prod(shape, dtype=int))
        if start < 0 or start + size > flat.size:
            raise ValueError("a part of an array that does not exist")
        return flat[start : start + size].reshape(shape)


def _done(target: Any, offer: Offer, name: str, given: Any, named: Any) -> Any:
    """Return what a call gives, or what an attribute is where `given` is None."""
    if given is None:
        if name not in offer.reads:
            raise AttributeError(f"{offer.kind} has no {name}")
        return plain(getattr(target, name))
    if name not in offer.calls:
        if hasattr(type(target), name) or name in vars(target):
            raise AttributeError(f"{offer.kind} has no {name}")
        getattr(target, name)  # raises with words of its own
        raise AttributeError(f"{offer.kind} has no {name}")  # it did not: a delegate has that name
    arguments = {str(key): value for key, value in (named or {}).items()}
    if offer.kind == "comm":
        _check_plain([*given, *arguments.values()])
    return getattr(target, name)(*given, **arguments)


def _check_plain(values: Any) -> None:
    """Raise TypeError where a message would hold an object of ours: it would cost nothing, and carry all it has."""
    for each in values:
        if isinstance(each, list | tuple):
            _check_plain(each)
        elif isinstance(each, dict):
            _check_plain([*each, *each.values()])
        elif offer_of(each) and not type(each).__module__.startswith("mpi4py"):
            raise TypeError("messages may contain numbers, text, arrays, and lists of these")


def _properties(kind: type) -> list[str]:
    """Return the names of what a class computes from its fields."""
    return [name for name, each in vars(kind).items() if isinstance(each, property)]


def _constant(name: Any) -> Any:
    """Return MPI's constant of a name."""
    from mpi4py import MPI

    if name == "IN_PLACE":
        return MPI.IN_PLACE
    if name not in ("SUM", "MAX", "MIN", "PROD", "PROC_NULL", "ANY_SOURCE", "ANY_TAG"):
        return (
            getattr(MPI, name)
            if name in ("DOUBLE", "FLOAT", "INT", "LONG", "BYTE", "BOOL")
            else None
        )
    return getattr(MPI, name)
