"""Mistakes of programs of several ranks, as errors with words; what mpi4py's buffers mean."""

from typing import Any

import numpy as np

from lib_dlhpc.training.layers.kept import Array


class LabError(RuntimeError):
    """What a program of several ranks did wrong, in words."""


class Unmet(LabError):
    """Ranks wait for a call that some rank will never make; `call` is its number, from 0."""

    def __init__(self, words: str, call: float) -> None:
        super().__init__(words)
        self.call = call


class Mismatch(LabError):
    """Ranks meet in calls that do not belong together."""


class Endless(LabError):
    """Ranks that still compute when nobody wants to wait any longer."""


def is_in_place(send: Any) -> bool:
    """Return whether `send` says that the array to receive into is the one to send."""
    from mpi4py import MPI

    return send is None or isinstance(send, type(MPI.IN_PLACE))


def array_of(value: Any, does: str = "sends") -> Array:
    """Return the array that mpi4py's buffer means: array, [array, type], [array, count, type].

    Raises Mismatch where it is none, or not in one piece.
    """
    array, count = value, None
    if isinstance(value, list | tuple) and value:
        array, count = value[0], next((each for each in value[1:] if isinstance(each, int)), None)
    if not isinstance(array, np.ndarray):
        raise Mismatch(
            f"a rank {does} a {type(value).__name__}: calls with a capital letter move numpy arrays, those"
            " with a small one any Python object."
        )
    if not array.flags.c_contiguous:
        raise Mismatch(f"a rank {does} an array that is not in one piece: MPI moves one piece.")
    return array if count is None else array.reshape(-1)[:count]


def bytes_of(value: Any) -> int:
    """Return the bytes that a value moves; what is no array counts as one number."""
    if isinstance(value, list | tuple):
        return sum(map(bytes_of, value))
    return int(value.nbytes) if isinstance(value, np.ndarray) else 8


def ranks_named(numbers: list[int]) -> str:
    """Return "rank 1", "ranks 1, 2"."""
    return f"rank{'s' * (len(numbers) > 1)} {', '.join(map(str, numbers))}"


def ranks_wait(numbers: list[int]) -> str:
    """Return "rank 1 waits", "ranks 1, 2 wait"."""
    return f"{ranks_named(numbers)} wait{'s' * (len(numbers) == 1)}"
