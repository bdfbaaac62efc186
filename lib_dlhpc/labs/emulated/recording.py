"""A network and a communicator that record what a step does, and when: the evidence of the overlap lab.

The clock is the communicator's. An emulated rank has its own, advanced by the modeled time of each layer, so the
record is the same on every machine; real ranks use wall-clock time.
"""

from collections.abc import Callable
from time import perf_counter
from typing import Any

import numpy as np

from lib_dlhpc.labs.emulated.ranks import Post
from lib_dlhpc.labs.mistakes import array_of, is_in_place
from lib_dlhpc.layers.base.saved import Array
from lib_dlhpc.spec.model import Model
from lib_dlhpc.timeline.table import Event
from lib_dlhpc.training.network import Network


class WatchedNetwork(Network):
    """A network that records when backward completes which gradients, for one step.

    forward_seconds: of the pass; backward_seconds: of each layer; both advance an emulated rank's clock.
    """

    def __init__(
        self,
        model: Model,
        seed: int,
        comm: Any,
        forward_seconds: float = 0.0,
        backward_seconds: Array | None = None,
    ) -> None:
        super().__init__(model, np.float64, seed)
        self.comm = comm
        self.complete = self.gradients.size  # gradients[complete:] are this step's
        self.running = False  # backward
        self.forward_pieces: list[tuple[float, float]] = []
        self.pieces: list[tuple[float, float]] = []  # of backward, from bucket to bucket
        self._forward_seconds = forward_seconds
        layers = len(self.layers)
        self._seconds = np.zeros(layers) if backward_seconds is None else backward_seconds
        comm.witness = self

    def forward(self, x: Array, training: bool = True) -> Array:
        """Run Network.forward and advance the clock."""
        begun = self.comm.now
        result = super().forward(x, training)
        self.comm.spend(self._forward_seconds)
        self.forward_pieces.append((begun, self.comm.now))
        return result

    def backward(self, dy: Array, done: Callable[[int], None] = lambda start: None) -> None:
        """Run Network.backward; record what is complete before calling `done`."""
        self.running, self.complete = True, self.gradients.size
        since = self.comm.now

        def completed(start: int) -> None:
            nonlocal since
            self.complete = start
            self.pieces.append((since, self.comm.now))
            done(start)
            since = self.comm.now

        super().backward(dy, completed)
        self.pieces.append((since, self.comm.now))
        self.running, self.complete = False, 0

    def _back(self, index: int, *of: Any) -> None:
        super()._back(index, *of)
        self.comm.spend(float(self._seconds[index]))


class Noted:
    """A real communicator with the allreduce log and the clock of an emulated one."""

    def __init__(self, comm: Any) -> None:
        self._comm, self.rank, self.size = comm, comm.rank, comm.size
        self.posts: list[Post] = []
        self.witness: Any = None

    @property
    def now(self) -> float:
        """Return the seconds of this rank's clock."""
        return perf_counter()

    def spend(self, seconds: float) -> None:
        """Do nothing: real work takes real time."""

    def Iallreduce(self, send: Any, receive: Any, *op: Any, **named: Any) -> "_NotedRequest":
        """Start an allreduce."""
        source = array_of(receive if is_in_place(send) else send)
        post = Post(source, source.copy(), self.now)
        post.seen(self.witness)
        self.posts.append(post)
        return _NotedRequest(self, post, self._comm.Iallreduce(send, receive, *op, **named))

    def Allreduce(self, send: Any, receive: Any, *op: Any, **named: Any) -> None:
        """Put the sum over all ranks into `receive`."""
        self.Iallreduce(send, receive, *op, **named).Wait()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._comm, name)


class _NotedRequest:
    def __init__(self, own: Noted, post: Post, request: Any) -> None:
        self._own, self._post, self._request = own, post, request

    def Wait(self, status: Any = None) -> bool:
        before = self._own.now
        self._request.Wait()
        self._post.end(self._own.now, before, self._own.now, self._own.witness)
        return True

    def Test(self, status: Any = None) -> bool:
        if not self._request.Test():
            return False
        now = self._own.now
        self._post.end(now, now, now, self._own.witness)
        return True

    wait, test = Wait, Test


def place(whole: Array, piece: Array) -> tuple[int, int] | None:
    """Return the range of elements of `whole`, a contiguous array, that `piece` views; None if none."""
    offset = piece.__array_interface__["data"][0] - whole.__array_interface__["data"][0]
    if not (piece.size and 0 <= offset < whole.nbytes and np.shares_memory(whole, piece)):
        return None
    start = offset // whole.itemsize
    return start, start + piece.size


def step_rows(network: WatchedNetwork, comm: Any, update: float = 0.0) -> list[Event]:
    """Return what one rank did in its step as rows of a Timeline; update: s of the update that follows.

    An allreduce starts when the previous one is complete: the network runs one at a time.
    """
    rank, rows, free = comm.rank, [], 0.0
    for start, stop in network.forward_pieces:
        rows.append(Event(rank, "compute", "forward", "forward", start, stop))
    count = len(network.pieces)
    for number, (start, stop) in enumerate(network.pieces, 1):
        name = f"backward {number}" if number < count else "backward to the input"
        if stop > start:
            rows.append(Event(rank, "compute", "backward", name, start, stop))
    for number, post in enumerate(comm.posts, 1):
        before, after = post.stood
        if after > before:
            rows.append(Event(rank, "compute", "wait", "wait for the exchange", before, after))
        if post.waited and post.send.size > 1:  # not the loss
            name, begun = f"bucket {number}", min(max(post.begun, free), post.ended)
            free, size = post.ended, post.sent.nbytes
            rows.append(Event(rank, "communication", "communication", name, begun, free, size))
    end = max((row.stop for row in rows), default=0.0)
    if update:
        rows.append(Event(rank, "compute", "update", "update", end, end + update))
    return rows


def seen(network: WatchedNetwork, comm: Any) -> tuple[list[Post], list[tuple[int, int] | None]]:
    """Return a rank's allreduces, and the range of gradients of each."""
    return comm.posts, [place(network.gradients, post.send) for post in comm.posts]
