"""One process for one rank of one run: a hand-in is loaded, its functions are called, their calls go to the checker.

From the checker: ["load", [source, name]], ["call", [function, arguments, named]], ["stream", the
same], ["next", the same], ["answer", value],
["error", [number, type, words, errno]]. To it: ["loaded", {name: defaults}], ["do", [object, name, arguments, named]],
["return", value], ["raise", [number, type, words, line, text]]. Two entries follow: arrays that have changed, and
attributes that stand for another array than before.
"""

import builtins
import inspect
import socket
from collections import namedtuple
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, cast

import numpy as np

from . import wire
from .files import Training, training_of
from .shared import Shared, root
from .stubs import NOUNS, Named, Stub, noun_of
from .tiles import ChipStub

HAND_IN = "hand_in"  # the learner's module
LONGEST = 20_000  # of what a generator yields


class Held:
    """An array that is passed by reference."""

    def __init__(self, array: Any) -> None:
        self.array = array


class Session:
    """The learner's end of a socket. programs: ours, each of which is given the hand-in's functions by name."""

    def __init__(
        self, sock: socket.socket, programs: Mapping[str, Callable[..., Any]] | None = None
    ) -> None:
        self._programs = dict(programs or {})
        self._sock, self._shared = sock, Shared(-1, -1)
        self._stubs: dict[int, Stub] = {}
        self._arrays: dict[int, dict[str, Any]] = {}  # of stubs, by name: what was given
        self._functions: list[Callable[..., Any]] = []
        self._stream: Iterator[Any] = iter(())
        self._names: dict[str, Any] = {}
        self._lines: list[str] = []
        self._file = ""

    def serve(self) -> None:
        """Load and call, until the other end is gone."""
        while True:
            kind, what = self._receive()
            self._carry_out(kind, what)

    def do(self, number: int, name: str, given: Any, named: Any) -> Any:
        """Have the checker call a method of an object, or read an attribute where `given` is None."""
        by_reference = None if given is None else [_held(each) for each in given]
        others = None if named is None else {key: _held(each) for key, each in named.items()}
        self._send("do", [number, name, by_reference, others])
        while True:
            kind, what = self._receive()
            if kind == "answer":
                return what
            if kind == "error":
                raise _error_of(*what)
            self._carry_out(kind, what)  # it calls back

    def _carry_out(self, kind: str, what: Any) -> None:
        try:
            if kind == "load":
                self._send("loaded", self._load(*what))
                return
            self._send("return", self._result(kind, *what))
        except wire.Closed:
            raise
        except BaseException as error:  # SystemExit as well
            self._send("raise", self._described(error))
        if isinstance(what[0], str):  # not called back
            self._functions.clear()
            kept = {id(each) for arrays in self._arrays.values() for each in arrays.values()}
            self._shared.drop_but({n for n in self._shared if id(self._shared[n]) in kept})

    def _result(self, kind: str, target: Any, given: Any, named: Any) -> Any:
        if kind == "next":
            return next(([each] for each in self._stream), None)
        try:
            result = self._function(target)(*given, **named)
        finally:
            for chip in (each for each in given if isinstance(each, ChipStub)):
                chip.flush()
        if kind == "stream":
            self._stream = iter(result)
            return None
        if isinstance(result, Iterator):
            return list(islice(result, LONGEST))
        trained = [each.state() for each in given if isinstance(each, Training)]
        return trained[0] if trained else result

    def _function(self, target: Any) -> Callable[..., Any]:
        if target in self._programs:
            return partial(self._programs[target], self._names)
        found = self._functions[target] if isinstance(target, int) else self._names[target]
        return cast("Callable[..., Any]", found)

    def _load(self, source: str, file: str) -> dict[str, Any]:
        """Run a hand-in; return the parameters of its functions, each with its default."""
        self._file, self._lines = file, source.splitlines()
        self._names = {"__name__": HAND_IN, "__builtins__": builtins}
        exec(compile(source, file, "exec"), self._names)
        functions = {name: each for name, each in self._names.items() if callable(each)}
        return {name: _parameters(each) for name, each in functions.items()}

    def _described(self, error: BaseException) -> list[Any]:
        number, trace = getattr(error, "checker_number", None), error.__traceback__
        line = getattr(error, "lineno", 0) if isinstance(error, SyntaxError) else 0
        while trace is not None:
            if trace.tb_frame.f_code.co_filename == self._file:
                line = trace.tb_lineno
            trace = trace.tb_next
        text = self._lines[line - 1].strip() if 0 < line <= len(self._lines) else ""
        return [number, type(error).__name__, str(error)[:1000], line, text]

    def _send(self, kind: str, what: Any) -> None:
        replaced = []
        for number, arrays in self._arrays.items():
            for name, array in arrays.items():
                now = vars(self._stubs[number]).get(name)
                if now is not array:
                    arrays[name] = now
                    replaced.append([number, name, now])
        wire.send(self._sock, [kind, what, self._shared.changed(), replaced], self._encode)

    def _receive(self) -> tuple[str, Any]:
        kind, what, changes, _ = wire.receive(self._sock, self._decode)
        self._shared.apply(changes)
        return kind, what

    def _encode(self, value: Any) -> tuple[str, Any]:
        if isinstance(value, Held):
            return self._shared_array(value.array)
        if isinstance(value, Stub):
            return "object", value._number
        if isinstance(value, Named):
            return "mpi", value.name
        if isinstance(value, tuple(NOUNS.values())):
            return "noun", list(noun_of(value))
        if isinstance(value, np.ndarray) and value.dtype.kind in wire.KINDS:
            return "list", np.asarray(value)
        if isinstance(value, tuple):
            return "tuple", list(value)
        if isinstance(value, bytes | bytearray | memoryview):
            return "list", bytes(value)
        for kind in (bool, int, float, str):
            if isinstance(value, kind):  # of a class of its own
                return "list", kind(value)
        if isinstance(value, range | Iterator):
            return "list", list(islice(value, LONGEST))
        if callable(value):
            self._functions.append(value)
            return "function", len(self._functions) - 1
        return "other", [type(value).__name__, repr(value)[:200]]

    def _shared_array(self, array: Any) -> tuple[str, Any]:
        """Return where in which shared array it is; share it first if it is in none."""
        if not array.flags.c_contiguous:
            return "apart", [self._shared.add(array), array]
        found = self._shared.view(array)
        if found is not None:
            return "part", [*found, list(array.shape)]
        whole = root(array)
        self._shared.add(whole)
        number, start = self._shared.view(array) or (0, 0)
        return "new", [number, whole, start, list(array.shape)]

    def _decode(self, kind: str, value: Any) -> Any:
        if kind == "record":
            name, fields, values, more = value
            return type(name, (namedtuple(name, fields),), more)(*values)
        if kind == "noun":
            name, fields = value
            return NOUNS[name](*fields)
        if kind == "path":
            return Path(value)
        if kind == "training":
            return training_of(self, *value)
        if kind == "other":
            raise ValueError(value)
        number, name, values, arrays, reads = value
        make = ChipStub if name == "chip" else Stub
        stub = self._stubs.get(number) or make(self, number, name, reads)
        if number not in self._stubs:
            self._stubs[number], self._arrays[number] = stub, {}
            for attribute, (place, array) in arrays.items():
                self._shared.take(place, array)
                self._arrays[number][attribute] = array
                setattr(stub, attribute, array)
        vars(stub).update(values)
        return stub


def _held(value: Any) -> Any:
    """Return an argument with its arrays by reference: mpi4py takes [array, type] too."""
    if isinstance(value, np.ndarray) and value.dtype.kind in wire.KINDS:
        return Held(np.asarray(value))
    if isinstance(value, list | tuple) and any(isinstance(each, Named) for each in value):
        return [_held(each) for each in value]
    return value


def _error_of(number: int, name: str, words: str, code: int | None) -> BaseException:
    """Return an error of the checker's process: of its type, if Python has it."""
    base = getattr(builtins, name, None)
    if not (isinstance(base, type) and issubclass(base, Exception)):
        base = type(name, (RuntimeError,), {})
    try:
        error: Any = base(code, words) if code else base(words)
    except TypeError:  # such as UnicodeDecodeError, which takes more
        error = RuntimeError(words)
    error.checker_number = number
    return error


def _parameters(function: Any) -> list[Any]:
    """Return [name, default] of each parameter; the default is None where there is none, or it is no number."""
    try:
        found = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return []
    plain = (bool, int, float)
    return [[each.name, each.default if type(each.default) in plain else None] for each in found]
