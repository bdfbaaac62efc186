"""A learner's functions in a lab, step by step: each class is one rank's part of a task, on numbers and numpy arrays.

`step` is what exchanges; `weights` are this rank's after it.
"""

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.distributed.tensor import DTensor
from torch.nn.parallel import DistributedDataParallel

from . import MOMENTUM
from .meter import Meter, Reading
from .networks import Array, perceptron, weights_of
from .passes import Passes


class Misused(Exception):
    """What a learner's function is given was called in another way than the lab says."""


class DataParallel:
    """Lab 1: step(network, loss, x, y, group, rate). ddp: DistributedDataParallel wraps the network."""

    def __init__(
        self, step: Callable[..., Any], group: Any, widths: Sequence[int], weights: Array, ddp: bool
    ) -> None:
        self._step, self._group = step, group
        self._network = perceptron(widths, weights, nn.ReLU)
        self._given: nn.Module = self._network
        if ddp:
            self._given = DistributedDataParallel(self._network, process_group=group)

    def step(self, x: Array, y: Array, rate: float) -> Any:
        """Return the loss of a step on this rank's samples."""
        given = samples(x), labels(y)
        return as_number(self._step(self._given, cross_entropy, *given, self._group, rate))

    def weights(self) -> Array:
        """Return all weights."""
        return weights_of(self._network)


class Overlap:
    """Lab 2: attach(network, group, bucket) returns finish(). ready: called with the numbers of a complete gradient;
    ended: when backward ends.
    """

    def __init__(
        self,
        attach: Callable[..., Any],
        group: Any,
        widths: Sequence[int],
        weights: Array,
        bucket: int,
        ready: Callable[[int], None],
        ended: Callable[[], None],
    ) -> None:
        self._network, self._ended = perceptron(widths, weights, nn.ReLU), ended
        for p in self._network.parameters():
            p.register_post_accumulate_grad_hook(lambda p: ready(p.numel()))
        self._finish = attach(self._network, group, bucket)

    def step(self, x: Array, y: Array, samples_of_all: int, rate: float) -> None:
        """Take a step on this rank's samples."""
        self._network.zero_grad()
        cross_entropy(self._network(samples(x)), labels(y), samples_of_all).backward()
        self._ended()
        self._finish()
        with torch.no_grad():
            for p in self._network.parameters():
                p -= rate * p.grad

    def weights(self) -> Array:
        """Return all weights."""
        return weights_of(self._network)


class Staged:
    """Lab 4: step(stage, x, y, loss, group, rate), with lists of microbatches. last: whether no stage follows."""

    def __init__(
        self,
        step: Callable[..., Any],
        group: Any,
        widths: Sequence[int],
        weights: Array,
        last: bool,
    ) -> None:
        self._step, self._group = step, group
        self._stage = perceptron(widths, weights, nn.Tanh, last=not last)
        self._stage.inputs = widths[0]
        self._seen = Passes(self._stage)

    def step(self, x: Sequence[Array], y: Sequence[Array], rate: float) -> Any:
        """Return the loss of a step, which the last rank knows."""
        self._seen.done.clear()
        given = [samples(each) for each in x], [labels(each) for each in y]
        return as_number(self._step(self._stage, *given, cross_entropy, self._group, rate))

    def weights(self) -> Array:
        """Return the weights of the stage."""
        return weights_of(self._stage)

    def record(self) -> tuple[list[tuple[str, int]], list[int]]:
        """Return the passes of the last step, and the microbatches that were overwritten: see Passes."""
        return list(self._seen.done), list(self._seen.overwritten)


class Sharded:
    """Lab 6: start(zero, weights, group), step(zero, held, gradient, update, group)."""

    def __init__(
        self,
        start: Callable[..., Any],
        step: Callable[..., Any],
        group: Any,
        widths: Sequence[int],
        weights: Array,
        zero: int,
    ) -> None:
        self._step, self._group, self._zero, self._widths = step, group, zero, widths
        self._meter, self._updated = Meter(), list[Array]()
        self._read: Reading = 0, None
        self._held = start(zero, torch.from_numpy(weights.copy()), group)

    def step(
        self, x: Array, y: Array, samples_of_all: int, rate: float, enough: float | None
    ) -> None:
        """Take a step. enough: bytes that may be held at its update, which are then counted. Raises Misused."""
        given = samples(x), labels(y)
        self._meter.leave_out(given)
        self._updated.clear()

        def update(weights: torch.Tensor, gradients: torch.Tensor, momentum: torch.Tensor) -> None:
            if not weights.shape == gradients.shape == momentum.shape:
                shapes = ", ".join(
                    str(tuple(each.shape)) for each in (weights, gradients, momentum)
                )
                raise Misused(f"update needs three tensors of one shape; it was given {shapes}.")
            if enough is not None:
                self._read = self._meter.read(enough)
            momentum.mul_(MOMENTUM).add_(gradients)
            weights.sub_(momentum, alpha=rate)
            self._updated.append(weights.detach().numpy().copy())

        gradient = _gradient_of(self._widths, *given, samples_of_all)
        self._step(self._zero, self._held, gradient, update, self._group)
        if len(self._updated) != 1:
            raise Misused(
                f"update was called {len(self._updated)} times in a step; call it once, with everything that is"
                " updated here."
            )

    def weights(self) -> Array:
        """Return the weights that this rank has updated."""
        return self._updated[0]

    def record(self) -> Reading:
        """Return what was held at the last update."""
        return self._read


class Fsdp:
    """Lab 6: shard(network, group). Each rank has equally many samples."""

    def __init__(
        self,
        shard: Callable[..., Any],
        group: Any,
        widths: Sequence[int],
        weights: Array,
        rate: float,
    ) -> None:
        self._meter = Meter()
        self._network = shard(perceptron(widths, weights, nn.ReLU), group)
        own = self._network.parameters()
        self._optimizer = torch.optim.SGD(own, lr=rate, momentum=MOMENTUM)
        self._read: Reading = 0, None

    def step(self, x: Array, y: Array, enough: float | None) -> None:
        """Take a step. enough: as in Sharded."""
        given = samples(x), labels(y)
        self._meter.leave_out(given)
        self._optimizer.zero_grad()
        cross_entropy(self._network(given[0]), given[1], len(x)).backward()
        self._optimizer.step()
        if enough is not None:
            self._read = self._meter.read(enough)  # p.grad is there until zero_grad

    def weights(self) -> Array:
        """Return all weights, gathered."""
        own = self._network.parameters()
        parts = [p.full_tensor() if isinstance(p, DTensor) else p for p in own]
        return np.concatenate([part.detach().numpy().T.ravel() for part in parts])

    def record(self) -> Reading:
        """Return what was held after the last update."""
        return self._read


def samples(x: Array) -> torch.Tensor:
    """Return samples as a tensor of its own."""
    return torch.from_numpy(x.copy())


def labels(y: Array) -> torch.Tensor:
    """Return labels as a tensor of its own."""
    return torch.from_numpy(y.astype(np.int64))


def cross_entropy(outputs: torch.Tensor, labels: torch.Tensor, samples: int) -> torch.Tensor:
    """Return the cross-entropy, a sum over the samples at hand divided by `samples`."""
    return nn.functional.cross_entropy(outputs, labels, reduction="sum") / samples


def as_number(value: Any) -> Any:
    """Return a tensor as numpy's; anything else as it is, or in words where no other process could read it."""
    if isinstance(value, torch.Tensor):
        return value.detach().numpy().copy()
    return value if isinstance(value, int | float | np.ndarray | np.generic | None) else repr(value)


def _gradient_of(
    widths: Sequence[int], x: torch.Tensor, y: torch.Tensor, samples: int
) -> Callable[[torch.Tensor], torch.Tensor]:
    """Return what computes the flat gradient of this rank's samples, for all weights, flat."""
    size = sum((a + 1) * b for a, b in pairwise(widths))
    network = perceptron(widths, np.zeros(size), nn.ReLU).to("meta")

    def gradient(weights: torch.Tensor) -> torch.Tensor:
        sizes = [own.numel() for own in network.parameters()]
        if weights.shape != (sum(sizes),):
            raise Misused(
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
