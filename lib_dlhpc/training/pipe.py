"""Messages between the stages of a pipeline: sent without waiting, received ahead.

What a stage gives in one microbatch travels as one message, in memory that nobody touches until it has
arrived. A receive is posted before the work that comes before it, so that the message can come meanwhile.
"""

from collections import deque
from collections.abc import Mapping
from math import prod
from typing import Any, TypeAlias

import numpy as np

from lib_dlhpc.schedules.pipeline import Receive, Send
from lib_dlhpc.training.layers.kept import Array, Shapes
from lib_dlhpc.training.record import Recorder

Arrays: TypeAlias = dict[str, Array]


class Pipe:
    """This rank's end of the messages of a pipeline group."""

    def __init__(self, comm: Any, ranks: tuple[int, ...], dtype: Any, recorder: Recorder) -> None:
        """ranks: of the group, as the recorder shall name them."""
        self.comm, self.ranks, self.dtype, self.recorder = comm, ranks, dtype, recorder
        self._expected: dict[Receive, tuple[Any, Array, Shapes]] = {}
        self._under_way: deque[tuple[Any, Array, str, float, int]] = deque()

    def send(self, letter: Send, arrays: Mapping[str, Array]) -> None:
        """Send copies of the arrays, in their order."""
        self._settle(wait=False)
        if not any(array.size for array in arrays.values()):
            return
        flat = np.concatenate([array.ravel() for array in arrays.values()])
        name = f"{letter.what} {letter.microbatch}"
        request = self.comm.Isend(flat, letter.peer, _tag(letter))
        self._under_way.append((request, flat, name, self.recorder.now(), letter.peer))

    def expect(self, letter: Receive, shapes: Shapes) -> None:
        """Be ready for arrays of these shapes; a second call changes nothing."""
        if letter in self._expected:
            return
        flat = np.empty(sum(prod(shape) for shape in shapes.values()), self.dtype)
        request = self.comm.Irecv(flat, letter.peer, _tag(letter)) if flat.size else None
        self._expected[letter] = request, flat, shapes

    def receive(self, letter: Receive) -> Arrays:
        """Wait for what is expected, and return it."""
        request, flat, shapes = self._expected.pop(letter)
        start = self.recorder.now()
        if request is not None:
            request.Wait()
        self.recorder.add(
            "wait", f"wait for {letter.what} {letter.microbatch}", start, self.recorder.now()
        )
        arrays, first = {}, 0
        for name, shape in shapes.items():
            arrays[name] = flat[first : first + prod(shape)].reshape(shape)
            first += prod(shape)
        return arrays

    def finish(self) -> None:
        """Wait until all that was sent has left."""
        start = self.recorder.now()
        self._settle(wait=True)
        self.recorder.add("wait", "wait for what was sent", start, self.recorder.now())

    def _settle(self, wait: bool) -> None:
        while self._under_way:
            request, flat, name, start, peer = self._under_way[0]
            if wait:
                request.Wait()
            elif not request.Test():
                return
            self._under_way.popleft()
            self.recorder.message(name, start, self.recorder.now(), flat.nbytes, self.ranks[peer])


def _tag(letter: Send | Receive) -> int:
    """Tell messages of different stages and ways apart; those of one keep their order."""
    return 2 * letter.stage + (letter.what == "gradient")
