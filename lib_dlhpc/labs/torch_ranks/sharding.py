"""What a process of PyTorch runs of lab 6: a learner's ZeRO on flat tensors, FSDP, and the bytes that a rank holds.

Bytes are counted at the update, when weights, gradients and momentum are all there: the storages of all tensors of the
process, each once, whatever views there are of it.
"""

import gc
from collections.abc import Callable, Sequence
from itertools import pairwise
from time import sleep
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.distributed.tensor import DTensor

from lib_dlhpc.labs.emulated.data_parallel_step import Task
from lib_dlhpc.labs.mistakes import LabError
from lib_dlhpc.labs.torch_ranks.held import MOMENTUM, Held, Reading
from lib_dlhpc.labs.torch_ranks.networks import perceptron
from lib_dlhpc.labs.torch_ranks.programs import cross_entropy, network_of, samples_of, widths_of
from lib_dlhpc.labs.torch_ranks.recorder import Recorder
from lib_dlhpc.layers.base.saved import Array

READINGS, PAUSE = 20, 0.1  # at the most; s between two


class Meter:
    """Counts the bytes of tensors that were not there when it was made."""

    def __init__(self) -> None:
        self._before = [
            each.untyped_storage() for each in _tensors()
        ]  # kept, so that no address is used twice

    def leave_out(self, tensors: Sequence[torch.Tensor]) -> None:
        """Do not count these."""
        self._before += [each.untyped_storage() for each in tensors]

    def read(self, enough: float) -> Reading:
        """Return the bytes, and the first slice that keeps a larger storage.

        gloo's threads let go of a tensor some time after a collective: more than `enough` bytes are counted again.
        """
        for _ in range(READINGS - 1):
            if (reading := self._read())[0] <= enough:
                return reading
            sleep(PAUSE)
        return self._read()

    def _read(self) -> Reading:
        known = {each.data_ptr() for each in self._before}
        found: dict[int, int] = {}
        least: dict[int, torch.Tensor] = {}
        for each in _tensors():
            storage = each.untyped_storage()
            if storage.data_ptr() not in known and storage.nbytes():
                found[storage.data_ptr()] = storage.nbytes()
                smallest = least.setdefault(storage.data_ptr(), each)
                if each.numel() < smallest.numel():
                    least[storage.data_ptr()] = each
        views = [(each.numel(), found[at] // each.itemsize) for at, each in least.items()]
        return sum(found.values()), next((view for view in views if view[0] < view[1]), None)


def sharded(
    start: Callable[..., Any],
    step: Callable[..., Any],
    zero: int,
    enough: float,
    task: Task,
    group: Any,
    recorder: Recorder,
) -> Held:
    """Return what the learner's ZeRO of a level does. Raises LabError where `update` is not called once a step."""
    widths, meter = widths_of(task), Meter()
    updated: list[Array] = []
    read: list[Reading] = []

    def update(weights: torch.Tensor, gradients: torch.Tensor, momentum: torch.Tensor) -> None:
        if not weights.shape == gradients.shape == momentum.shape:
            shapes = ", ".join(str(tuple(each.shape)) for each in (weights, gradients, momentum))
            raise LabError(f"update needs three tensors of one shape; it was given {shapes}.")
        if len(updated) == task.steps - 1:
            read.append(meter.read(enough))
        momentum.mul_(MOMENTUM).add_(gradients)
        weights.sub_(momentum, alpha=task.rate)
        updated.append(weights.detach().numpy().copy())

    with recorder:
        held = start(zero, torch.from_numpy(task.network().weights.copy()), group)
    before = recorder.moved
    for number, (x, y) in enumerate(samples_of(task, group), 1):
        meter.leave_out([x, y])
        gradient = _gradient_of(widths, x, y, sum(task.shares))
        with recorder:
            step(zero, held, gradient, update, group)
        if len(updated) != number:
            raise LabError(
                f"update was called {len(updated) - number + 1} times in a step; call it once,"
                " with everything that is updated here."
            )
    return Held(np.array(updated), *read[-1], (recorder.moved - before) / task.steps)


def _gradient_of(
    widths: Sequence[int], x: torch.Tensor, y: torch.Tensor, samples: int
) -> Callable[[torch.Tensor], torch.Tensor]:
    """Return what computes the flat gradient of this rank's samples, for all weights, flat."""
    network = perceptron(
        widths, np.zeros(sum((a + 1) * b for a, b in pairwise(widths))), nn.ReLU
    ).to("meta")

    def gradient(weights: torch.Tensor) -> torch.Tensor:
        sizes = [own.numel() for own in network.parameters()]
        if weights.shape != (sum(sizes),):
            raise LabError(
                f"gradient needs all {sum(sizes):,} weights, flat; it was given {tuple(weights.shape)}."
            )
        flat = weights.detach().requires_grad_()
        parts = zip(network.named_parameters(), flat.split(sizes), strict=True)
        own = {
            name: part.view(p.shape[::-1]).T if p.dim() > 1 else part for (name, p), part in parts
        }
        outputs = torch.func.functional_call(network, own, (x,))
        return torch.autograd.grad(cross_entropy(outputs, y, samples), flat)[0]

    return gradient


def fsdp(
    shard: Callable[..., Any], enough: float, task: Task, group: Any, recorder: Recorder
) -> Held:
    """Return what a network does that the learner's function has sharded; each rank has equally many samples."""
    meter = Meter()
    network = shard(network_of(task), group)
    optimizer = torch.optim.SGD(network.parameters(), lr=task.rate, momentum=MOMENTUM)
    weights: list[Array] = []
    read: Reading = 0, None
    for x, y in samples_of(task, group):
        meter.leave_out([x, y])
        with recorder:
            optimizer.zero_grad()
            cross_entropy(network(x), y, len(x)).backward()
            optimizer.step()
            if len(weights) == task.steps - 1:
                read = meter.read(enough)  # p.grad is there until zero_grad
        weights.append(_whole(network))
    return Held(np.array(weights), *read, recorder.moved / task.steps)


def _whole(network: nn.Module) -> Array:
    """Return all weights, gathered."""
    parts = [p.full_tensor() if isinstance(p, DTensor) else p for p in network.parameters()]
    return np.concatenate([part.detach().numpy().T.ravel() for part in parts])


def _tensors() -> list[torch.Tensor]:
    """Return the tensors of this process that have memory of their own."""
    gc.collect()
    plain = (torch.Tensor, nn.Parameter)
    found = [each for each in gc.get_objects() if type(each) in plain]
    return [each for each in found if each.device.type == "cpu" and each.layout == torch.strided]
