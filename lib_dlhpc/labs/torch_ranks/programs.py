"""What a process of PyTorch runs of a lab: the learner's function on this rank's part of a task.

Each is program(*functions, *arguments, group, recorder). Results are numbers and numpy arrays.
"""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from torch.profiler import ProfilerActivity, profile, schedule

from lib_dlhpc.labs.emulated import pipeline_step
from lib_dlhpc.labs.emulated.data_parallel_step import Task
from lib_dlhpc.labs.emulated.pipeline_step import StagedTask
from lib_dlhpc.labs.torch_ranks.held import Held
from lib_dlhpc.labs.torch_ranks.rank.steps import DataParallel, Fsdp, Overlap, Sharded, Staged
from lib_dlhpc.labs.torch_ranks.recorder import Recorder
from lib_dlhpc.layers.base.saved import Array


def data_parallel(
    step: Callable[..., Any], task: Task, ddp: bool, group: Any, recorder: Recorder
) -> tuple[Array, list[Any], int]:
    """Return the weights after each step, the losses, and B moved: see emulated.data_parallel_step.part.

    ddp: the step is given a network that DistributedDataParallel wraps; what that sends at the start is not counted.
    """
    run = DataParallel(step, group, task.widths, task.network().weights, ddp)
    weights, losses = [], []
    for x, y in samples_of(task, group):
        with recorder:
            losses.append(run.step(x, y, task.rate))
        weights.append(run.weights())
    return np.array(weights), losses, recorder.moved


def traced(
    step: Callable[..., Any], task: Task, ddp: bool, folder: Path, group: Any, recorder: Recorder
) -> None:
    """Write the steps but the first, as torch.profiler (Kineto) records them, to FOLDER/rankR.json."""
    run = DataParallel(step, group, task.widths, task.network().weights, ddp)
    plan = schedule(wait=0, warmup=1, active=task.steps - 1, repeat=1)
    with profile(activities=[ProfilerActivity.CPU], record_shapes=True, schedule=plan) as trace:
        for x, y in samples_of(task, group):
            run.step(x, y, task.rate)
            trace.step()
    trace.export_chrome_trace(str(folder / f"rank{group.rank()}.json"))


def samples_of(task: Task, group: Any) -> Iterator[tuple[Array, Array]]:
    """Yield the samples and labels of this rank, step after step."""
    own = task.own(group.rank())
    for x, y in task.batches():
        yield x[own], y[own]


def overlap(
    attach: Callable[..., Any], bucket: int, task: Task, group: Any, recorder: Recorder
) -> tuple[Array, list[Any], int]:
    """Return the weights after each step, the events of the last one in order, and how many gradients there are.

    Events are ("ready", numbers of a tensor), ("launch", numbers of a collective), ("wait", 0), ("backward ends", 0).
    """
    events, start, weights = recorder.events, task.network().weights, []
    run = Overlap(
        attach,
        group,
        task.widths,
        start,
        bucket,
        lambda size: events.append(("ready", size)),
        lambda: events.append(("backward ends", 0)),
    )
    for x, y in samples_of(task, group):
        events.clear()
        with recorder:
            run.step(x, y, sum(task.shares), task.rate)
        weights.append(run.weights())
    return np.array(weights), list(events), start.size


def pipeline(
    step: Callable[..., Any], task: StagedTask, group: Any, recorder: Recorder
) -> pipeline_step.Staged:
    """Return what the learner's step does on the stage of this rank: see emulated.pipeline_step.one_stage."""
    own = task.stage(group.rank())
    run = Staged(step, group, task.widths_of(group.rank()), own.weights, own.last)
    weights, losses = [], []
    for x, y in task.batches():
        with recorder:
            losses.append(run.step(x, y, task.rate))
        weights.append(run.weights())
    return pipeline_step.Staged(np.array(weights), losses, *run.record(), recorder.unwaited, 0)


def sharded(
    start: Callable[..., Any],
    step: Callable[..., Any],
    zero: int,
    enough: float,
    task: Task,
    group: Any,
    recorder: Recorder,
) -> Held:
    """Return what the learner's ZeRO of a level does."""
    with recorder:
        run = Sharded(start, step, group, task.widths, task.network().weights, zero)
    before, weights = recorder.moved, []
    for number, (x, y) in enumerate(samples_of(task, group), 1):
        with recorder:
            last = enough if number == task.steps else None
            run.step(x, y, sum(task.shares), task.rate, last)
        weights.append(run.weights())
    return Held(np.array(weights), *run.record(), (recorder.moved - before) / task.steps)


def fsdp(
    shard: Callable[..., Any], enough: float, task: Task, group: Any, recorder: Recorder
) -> Held:
    """Return what a network does that the learner's function has sharded."""
    run = Fsdp(shard, group, task.widths, task.network().weights, task.rate)
    weights = []
    for number, (x, y) in enumerate(samples_of(task, group), 1):
        with recorder:
            run.step(x, y, enough if number == task.steps else None)
        weights.append(run.weights())
    return Held(np.array(weights), *run.record(), recorder.moved / task.steps)
