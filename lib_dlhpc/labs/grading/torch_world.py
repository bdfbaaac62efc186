"""Hand-ins in PyTorch: their tensors are in processes of their own, and emulated ranks are the network between them.

A process is given its own samples, one step after the other, and gives back weights. What it sends and waits for passes
through here, and is counted here; the passes of a stage and the bytes that are held can only be seen where they are.
"""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from lib_dlhpc.labs.emulated.data_parallel_step import Task
from lib_dlhpc.labs.emulated.pipeline_step import Staged, StagedTask
from lib_dlhpc.labs.emulated.ranks import Rank, emulate
from lib_dlhpc.labs.grading.hand_in import HandIn
from lib_dlhpc.labs.mistakes import LabError
from lib_dlhpc.labs.torch_ranks.held import Held
from lib_dlhpc.layers.base.saved import Array

Call = Callable[..., Any]


class CheckedWorld:
    """Runs a hand-in as torch_ranks.World does, each rank of each run in a process of its own."""

    def __init__(self, hand_in: HandIn) -> None:
        self._start, self._call = (hand_in.program(each) for each in ("torch start", "torch call"))

    def run(
        self, ranks: int, program: str, file: str, names: tuple[str, ...], *arguments: Any
    ) -> list[Any]:
        """Return what each rank returns: see World.run. Raises LabError: see `emulate`."""

        def one(comm: Rank) -> Any:
            process = Process(comm, self._start, self._call)
            return PROGRAMS[program](process, list(names), *arguments)

        return emulate(ranks, one)


class Process:
    """The process of a rank; what it gives back is plain data, of which nothing is believed but its numbers."""

    def __init__(self, comm: Rank, start: Call, call: Call) -> None:
        self.comm, self._start, self._call = comm, start, call

    def start(self, kind: str, names: list[str], *given: Any) -> None:
        """Make a run of a kind: see torch_ranks/rank/graded.py."""
        self._start(kind, self.comm, names, *given)

    def step(self, *given: Any) -> Any:
        """Take a step; return what it returns."""
        return self._call("step", *given)

    def weights(self, size: int = 0) -> Array:
        """Return the weights after a step. size: their number, if it is known. Raises LabError."""
        found = self._call("weights")
        flat = isinstance(found, np.ndarray) and found.dtype == np.float64 and found.ndim == 1
        if not flat or size not in (0, found.size):
            raise LabError(f"rank {self.comm.rank} has no readable weights after the step")
        return np.array(found)

    def record(self) -> Any:
        """Return what the run has recorded."""
        return self._call("record")


def _data_parallel(
    own: Process, names: list[str], task: Task, ddp: bool
) -> tuple[Array, list[Any], int]:
    start, weights, losses = task.network().weights, [], []
    own.start("data_parallel", names, task.widths, start, ddp)
    before = own.comm.moved
    for x, y in _samples(task, own):
        losses.append(own.step(x, y, task.rate))
        weights.append(own.weights(start.size))
    return np.array(weights), losses, own.comm.moved - before


def _overlap(
    own: Process, names: list[str], bucket: int, task: Task
) -> tuple[Array, list[Any], int]:
    start, weights, seen = task.network().weights, [], Events(own.comm)
    own.start("overlap", names, task.widths, start, bucket, seen.ready, seen.ended)
    for x, y in _samples(task, own):
        seen.clear()
        own.step(x, y, sum(task.shares), task.rate)
        seen.look()
        weights.append(own.weights(start.size))
    return np.array(weights), seen.events, start.size


class Events:
    """What happens on a rank, in order: see torch_ranks.programs.overlap."""

    def __init__(self, comm: Rank) -> None:
        self.events: list[tuple[str, int]] = []
        self._comm, self._launched, self._waited = comm, 0, 0

    def clear(self) -> None:
        """Begin a step."""
        self.look()
        self.events.clear()

    def look(self) -> None:
        """Record which allreduces were started and waited for since the last look."""
        posts = self._comm.posts
        self.events += [("launch", each.sent.size) for each in posts[self._launched :]]
        waited = sum(each.waited for each in posts)
        self.events += [("wait", 0)] * (waited - self._waited)
        self._launched, self._waited = len(posts), waited

    def ready(self, size: int) -> None:
        """A gradient is complete."""
        self.look()
        self.events.append(("ready", int(size)))

    def ended(self) -> None:
        """Backward ends."""
        self.look()
        self.events.append(("backward ends", 0))


def _pipeline(own: Process, names: list[str], task: StagedTask) -> Staged:
    rank, weights, losses = own.comm.rank, [], []
    stage = task.stage(rank)
    own.start("pipeline", names, list(task.widths_of(rank)), stage.weights, stage.last)
    for x, y in task.batches():
        losses.append(own.step(x, y, task.rate))
        weights.append(own.weights(stage.weights.size))
    done, overwritten = own.record()
    passes = [(str(kind), int(microbatch)) for kind, microbatch in done]
    unwaited = sum(not each.waited for each in own.comm.messages)
    return Staged(np.array(weights), losses, passes, list(map(int, overwritten)), unwaited, 0)


def _sharded(own: Process, names: list[str], zero: int, enough: float, task: Task) -> Held:
    own.start("sharded", names, task.widths, task.network().weights, zero)
    return _held(own, task, sum(task.shares), task.rate)


def _fsdp(own: Process, names: list[str], enough: float, task: Task) -> Held:
    own.start("fsdp", names, task.widths, task.network().weights, task.rate)
    return _held(own, task)


def _held(own: Process, task: Task, *given: Any) -> Held:
    """Return what a rank holds at the update of the last step: no thread of gloo's lets go of a tensor later."""
    weights, moved = [], 0
    for number, (x, y) in enumerate(_samples(task, own), 1):
        before = own.comm.moved
        own.step(x, y, *given, np.inf if number == task.steps else None)
        moved += own.comm.moved - before
        weights.append(own.weights())
    size, view = own.record()
    view = None if view is None else (int(view[0]), int(view[1]))
    return Held(np.array(weights), int(size), view, moved / task.steps)


def _samples(task: Task, own: Process) -> Iterator[tuple[Array, Array]]:
    """Yield the samples and labels of a rank, step after step."""
    mine = task.own(own.comm.rank)
    for x, y in task.batches():
        yield x[mine], y[mine]


PROGRAMS: dict[str, Callable[..., Any]] = {
    "data_parallel": _data_parallel,
    "overlap": _overlap,
    "pipeline": _pipeline,
    "sharded": _sharded,
    "fsdp": _fsdp,
}
