"""Messages between the stages of a pipeline: nonblocking sends, receives posted ahead.

All outputs of a stage for one microbatch travel as one message, in a buffer that is untouched until delivery.
A receive is posted before the preceding computation, so that both overlap.
"""

from collections import deque
from collections.abc import Mapping
from math import prod
from typing import Any, TypeAlias

import numpy as np

from lib_dlhpc.layers.base.saved import Array, Shapes
from lib_dlhpc.schedules.pipeline import Receive, Send
from lib_dlhpc.training.record import Recorder

Arrays: TypeAlias = dict[str, Array]


class Pipe:
    """This rank's end of the messages of a pipeline group."""

    def __init__(self, comm: Any, ranks: tuple[int, ...], dtype: Any, recorder: Recorder) -> None:
        """ranks: world ranks of the group, as the recorder names them."""
        self.comm, self.ranks, self.dtype, self.recorder = comm, ranks, dtype, recorder
        self._expected: dict[Receive, tuple[Any, Array, Shapes]] = {}
        self._in_flight: deque[tuple[Any, Array, str, float, int]] = deque()

    def send(self, message: Send, arrays: Mapping[str, Array]) -> None:
        """Start sending copies of the arrays, packed in their order."""
        self._settle(wait=False)
        if not any(array.size for array in arrays.values()):
            return
        flat = np.concatenate([array.ravel() for array in arrays.values()])
        name = f"{message.what} {message.microbatch}"
        request = self.comm.Isend(flat, message.peer, _tag(message))
        self._in_flight.append((request, flat, name, self.recorder.now(), message.peer))

    def expect(self, message: Receive, shapes: Shapes) -> None:
        """Post the receive of arrays of these shapes, once."""
        if message in self._expected:
            return
        flat = np.empty(sum(prod(shape) for shape in shapes.values()), self.dtype)
        request = self.comm.Irecv(flat, message.peer, _tag(message)) if flat.size else None
        self._expected[message] = request, flat, shapes

    def receive(self, message: Receive) -> Arrays:
        """Wait for a posted receive and return its arrays."""
        request, flat, shapes = self._expected.pop(message)
        start = self.recorder.now()
        if request is not None:
            request.Wait()
        self.recorder.add(
            "wait", f"wait for {message.what} {message.microbatch}", start, self.recorder.now()
        )
        arrays, first = {}, 0
        for name, shape in shapes.items():
            arrays[name] = flat[first : first + prod(shape)].reshape(shape)
            first += prod(shape)
        return arrays

    def finish(self) -> None:
        """Wait until all sends are complete."""
        if self._in_flight:
            start = self.recorder.now()
            self._settle(wait=True)
            self.recorder.add("wait", "wait for what was sent", start, self.recorder.now())

    def _settle(self, wait: bool) -> None:
        while self._in_flight:
            request, flat, name, start, peer = self._in_flight[0]
            if wait:
                request.Wait()
            elif not request.Test():
                return
            self._in_flight.popleft()
            self.recorder.message(name, start, self.recorder.now(), flat.nbytes, self.ranks[peer])


def _tag(message: Send | Receive) -> int:
    """Return a tag that distinguishes stages and directions; messages of one tag keep their order."""
    return 2 * message.stage + (message.what == "gradient")
