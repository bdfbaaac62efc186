"""A lab's run on processes of PyTorch, in the form that the checks have from emulated ranks."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from lib_dlhpc.labs.emulated.data_parallel_step import EmulatedRun, Task
from lib_dlhpc.labs.emulated.pipeline_step import Staged, StagedTask
from lib_dlhpc.labs.torch_ranks.held import Held
from lib_dlhpc.labs.torch_ranks.world import World
from lib_dlhpc.schedules.pipeline import Backward, Forward, Pipeline, Receive, Send


def data_parallel(world: World, file: str, ddp: bool = False) -> Callable[[str, Task], EmulatedRun]:
    """Return what runs a function of the learner's file, by its name, as `run_emulated` does. Raises LabError there.

    ddp: its network is wrapped in DistributedDataParallel.
    """

    def run(name: str, task: Task) -> EmulatedRun:
        results = world.run(len(task.shares), "data_parallel", file, (name,), task, ddp)
        weights, losses, moved = zip(*results, strict=True)
        return EmulatedRun(np.array(weights), list(losses), moved)

    return run


def trace_steps(world: World, file: str, name: str, task: Task, ddp: bool, folder: Path) -> Path:
    """Write what torch.profiler records of the steps of a task, one file a rank, to a folder; return it."""
    folder.mkdir(parents=True, exist_ok=True)
    world.run(len(task.shares), "traced", file, (name,), task, ddp, folder.resolve())
    return folder


def overlap(world: World, file: str, name: str, bucket: int, task: Task) -> list[Any]:
    """Return weights, events and number of gradients of each rank, with the learner's buckets. Raises LabError."""
    return world.run(len(task.shares), "overlap", file, (name,), bucket, task)


def pipeline(world: World, file: str, name: str, task: StagedTask) -> tuple[list[Staged], Pipeline]:
    """Return what each rank of a pipeline did, and the passes in the order in which it did them. Raises LabError."""
    runs = world.run(task.ranks, "pipeline", file, (name,), task)
    streams = tuple(tuple(_performed(each.done, r, task.ranks)) for r, each in enumerate(runs))
    return runs, Pipeline("performed", task.ranks, task.microbatches, 1, streams)


def _performed(done: list[tuple[str, int]], rank: int, ranks: int) -> Iterator[Any]:
    """Yield the passes of a rank, each with the messages that it needs and gives."""
    for kind, i in done:
        ahead = kind == "forward"
        what, source, target = (
            ("activation", rank - 1, rank + 1) if ahead else ("gradient", rank + 1, rank - 1)
        )
        if 0 <= source < ranks:
            yield Receive(what, i, source, source)
        yield Forward(i, 0) if ahead else Backward(i, 0)
        if 0 <= target < ranks:
            yield Send(what, i, rank, target)


def sharded(
    world: World, file: str, names: tuple[str, str], zero: int, enough: float, task: Task
) -> list[Held]:
    """Return what each rank does with the learner's `start` and `step` of a level of ZeRO. Raises LabError.

    enough: bytes that are not too many.
    """
    return world.run(len(task.shares), "sharded", file, names, zero, enough, task)


def fsdp(world: World, file: str, name: str, enough: float, task: Task) -> list[Held]:
    """Return what each rank does with a network that the learner's function has sharded. Raises LabError."""
    return world.run(len(task.shares), "fsdp", file, (name,), enough, task)


def titled(title: str, findings: list[Any]) -> list[Any]:
    """Return the findings with a title before each law."""
    return [each._replace(law=f"{title}: {each.law}") for each in findings]
