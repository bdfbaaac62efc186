"""What a process of PyTorch runs of a lab: the learner's function on this rank's part of a task.

Each is program(*functions, *arguments, group, recorder); those of lab 6 are in sharding.py. Results are numbers and
numpy arrays.
"""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.profiler import ProfilerActivity, profile, schedule

from lib_dlhpc.labs.emulated.data_parallel_step import Task
from lib_dlhpc.labs.emulated.pipeline_step import Staged, StagedTask
from lib_dlhpc.labs.torch_ranks.networks import perceptron, weights_of
from lib_dlhpc.labs.torch_ranks.passes import Passes
from lib_dlhpc.labs.torch_ranks.recorder import Recorder
from lib_dlhpc.layers.base.saved import Array


def cross_entropy(outputs: torch.Tensor, labels: torch.Tensor, samples: int) -> torch.Tensor:
    """Return the cross-entropy, a sum over the samples at hand divided by `samples`."""
    return nn.functional.cross_entropy(outputs, labels, reduction="sum") / samples


def data_parallel(
    step: Callable[..., Any], task: Task, ddp: bool, group: Any, recorder: Recorder
) -> tuple[Array, list[Any], int]:
    """Return the weights after each step, the losses, and B moved: see emulated.data_parallel_step.part.

    ddp: the step is given a network that DistributedDataParallel wraps; what that sends at the start is not counted.
    """
    network = network_of(task)
    given: nn.Module = DistributedDataParallel(network, process_group=group) if ddp else network
    weights, losses = [], []
    for x, y in samples_of(task, group):
        with recorder:
            losses.append(as_number(step(given, cross_entropy, x, y, group, task.rate)))
        weights.append(weights_of(network))
    return np.array(weights), losses, recorder.moved


def traced(
    step: Callable[..., Any], task: Task, ddp: bool, folder: Path, group: Any, recorder: Recorder
) -> None:
    """Write the steps but the first, as torch.profiler (Kineto) records them, to FOLDER/rankR.json."""
    network = network_of(task)
    given: nn.Module = DistributedDataParallel(network, process_group=group) if ddp else network
    plan = schedule(wait=0, warmup=1, active=task.steps - 1, repeat=1)
    with profile(activities=[ProfilerActivity.CPU], record_shapes=True, schedule=plan) as trace:
        for x, y in samples_of(task, group):
            step(given, cross_entropy, x, y, group, task.rate)
            trace.step()
    trace.export_chrome_trace(str(folder / f"rank{group.rank()}.json"))


def widths_of(task: Task) -> list[int]:
    """Return the widths of a task's network, from inputs to outputs."""
    dense = [layer for layer in task.experiment.model.layers if layer.kind == "dense"]
    return [dense[0].input_shape[-1], *(layer.attributes["features"] for layer in dense)]


def network_of(task: Task) -> nn.Sequential:
    """Return the network of a task with its initial weights."""
    return perceptron(widths_of(task), task.network().weights, nn.ReLU)


def samples_of(task: Task, group: Any) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """Yield the samples and labels of this rank, step after step."""
    own = task.own(group.rank())
    for x, y in task.batches():
        yield torch.from_numpy(x[own].copy()), torch.from_numpy(y[own].astype(np.int64))


def overlap(
    attach: Callable[..., Any], bucket: int, task: Task, group: Any, recorder: Recorder
) -> tuple[Array, list[Any], int]:
    """Return the weights after each step, the events of the last one in order, and how many gradients there are.

    Events are ("ready", numbers of a tensor), ("launch", numbers of a collective), ("wait", 0), ("backward ends", 0).
    """
    network, events, weights = network_of(task), recorder.events, []
    for p in network.parameters():
        p.register_post_accumulate_grad_hook(lambda p: events.append(("ready", p.numel())))
    finish = attach(network, group, bucket)
    for x, y in samples_of(task, group):
        events.clear()
        with recorder:
            network.zero_grad()
            cross_entropy(network(x), y, sum(task.shares)).backward()
            events.append(("backward ends", 0))
            finish()
        with torch.no_grad():
            for p in network.parameters():
                p -= task.rate * p.grad
        weights.append(weights_of(network))
    return np.array(weights), list(events), sum(p.numel() for p in network.parameters())


def pipeline(step: Callable[..., Any], task: StagedTask, group: Any, recorder: Recorder) -> Staged:
    """Return what the learner's step does on the stage of this rank: see emulated.pipeline_step.one_stage."""
    own, rank = task.stage(group.rank()), group.rank()
    widths = task.widths[task.cut[rank] : task.cut[rank + 1] + 1]
    stage = perceptron(widths, own.weights, nn.Tanh, last=not own.last)
    stage.inputs = widths[0]
    seen, weights, losses = Passes(stage), [], []
    for x, y in task.batches():
        seen.done.clear()
        samples = [torch.from_numpy(part.copy()) for part in x]
        labels = [torch.from_numpy(part.astype(np.int64)) for part in y]
        with recorder:
            value = step(stage, samples, labels, cross_entropy, group, task.rate)
        losses.append(as_number(value))
        weights.append(weights_of(stage))
    return Staged(np.array(weights), losses, seen.done, seen.overwritten, recorder.unwaited, 0)


def as_number(value: Any) -> Any:
    """Return a tensor as numpy's; anything else as it is, or in words where no other process could read it."""
    if isinstance(value, torch.Tensor):
        return value.detach().numpy().copy()
    return value if isinstance(value, int | float | np.ndarray | np.generic | None) else repr(value)
