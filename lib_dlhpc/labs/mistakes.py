"""Errors of parallel programs with explanations, and the meaning of mpi4py buffer arguments."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from lib_dlhpc.layers.base.saved import Array


class LabError(RuntimeError):
    """An error of a parallel program, explained."""


class Unmet(LabError):
    """A deadlock: ranks wait for a call that some rank never makes; `call` is its number, from 0."""

    def __init__(self, words: str, call: float) -> None:
        super().__init__(words)
        self.call = call


class Mismatch(LabError):
    """Ranks make calls that do not match."""


class Endless(LabError):
    """Ranks still compute at the timeout."""


@contextmanager
def explained(name: str, *known: type[Exception]) -> Iterator[None]:
    """Raise LabError, with the name of what was called, for errors of a learner's code; those that are known pass."""
    try:
        yield
    except Exception as error:
        if isinstance(error, (LabError, *known)):
            raise  # it says what is wrong
        raise LabError(f"{name} stopped with {type(error).__name__}: {error}") from None


def is_in_place(send: Any) -> bool:
    """Return whether `send` is MPI.IN_PLACE or None."""
    from mpi4py import MPI

    return send is None or isinstance(send, type(MPI.IN_PLACE))


def array_of(value: Any, does: str = "sends") -> Array:
    """Return the array of an mpi4py buffer argument: array, [array, type], [array, count, type].

    Raises Mismatch if it is no array, or not contiguous.
    """
    array, count = value, None
    if isinstance(value, list | tuple) and value:
        array, count = value[0], next((each for each in value[1:] if isinstance(each, int)), None)
    if not isinstance(array, np.ndarray):
        raise Mismatch(
            f"a rank {does} a {type(value).__name__}: calls with a capital letter move numpy arrays, those"
            " with a lowercase letter any Python object."
        )
    if not array.flags.c_contiguous:
        raise Mismatch(
            f"a rank {does} an array that is not contiguous: MPI needs contiguous memory."
        )
    return array if count is None else array.reshape(-1)[:count]


def bytes_of(value: Any) -> int:
    """Return the bytes that a value moves, whatever it is packed in; other objects count as one number."""
    if isinstance(value, list | tuple):
        return sum(map(bytes_of, value))
    if isinstance(value, dict):
        return sum(map(bytes_of, [*value, *value.values()]))
    if isinstance(value, str | bytes | bytearray):
        return len(value)
    if isinstance(value, int):
        return max(8, (value.bit_length() + 7) // 8)
    return int(value.nbytes) if isinstance(value, np.ndarray) else 8


def ranks_named(numbers: list[int]) -> str:
    """Return "rank 1", "ranks 1, 2"."""
    return f"rank{'s' * (len(numbers) > 1)} {', '.join(map(str, numbers))}"


def ranks_wait(numbers: list[int]) -> str:
    """Return "rank 1 waits", "ranks 1, 2 wait"."""
    return f"{ranks_named(numbers)} wait{'s' * (len(numbers) == 1)}"
