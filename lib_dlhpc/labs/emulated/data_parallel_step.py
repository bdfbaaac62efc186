"""A learner's training step, run on emulated ranks and compared with the same step on one rank.

A step is `step(network, loss, x, y, comm, rate)`: x and y are the samples of this rank; it updates
network.weights by plain gradient descent on the mean loss over the samples of all ranks, and returns that
loss. loss is lib_dlhpc.training.loss.softmax_cross_entropy.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from lib_dlhpc.labs.emulated.ranks import emulate
from lib_dlhpc.labs.mistakes import LabError
from lib_dlhpc.layers.base.saved import Array
from lib_dlhpc.spec.experiment import Experiment, read_experiment
from lib_dlhpc.training.data import load
from lib_dlhpc.training.loss import softmax_cross_entropy
from lib_dlhpc.training.network import Network

Step: TypeAlias = Callable[..., Any]
NEAR = 1e-10  # relative, in float64
SINGLE = 1e-6  # what rounding to float32 may cost
SINGLE_WORDS = "Right to about seven digits: which array is in single precision?"


@dataclass(frozen=True)
class Task:
    """The task: initial weights, global batches and their partition over ranks."""

    experiment: Experiment  # model and data
    seed: int
    shares: tuple[int, ...]  # samples of each rank
    rate: float
    steps: int = 3

    @property
    def widths(self) -> list[int]:
        """Return the widths of the network, from inputs to outputs."""
        dense = [layer for layer in self.experiment.model.layers if layer.kind == "dense"]
        return [dense[0].input_shape[-1], *(layer.attributes["features"] for layer in dense)]

    def network(self) -> Network:
        """Return the network with its initial weights."""
        return Network(self.experiment.model, np.float64, self.seed)

    def batches(self) -> Iterator[tuple[Array, Array]]:
        """Yield the global batches."""
        data, size = load(self.experiment, np.float64), sum(self.shares)
        order = np.random.default_rng(self.seed).permutation(len(data.x))
        for start in range(0, self.steps * size, size):
            chosen = order[start : start + size]
            yield data.x[chosen], data.y[chosen]

    def own(self, rank: int) -> slice:
        """Return a rank's samples of a global batch."""
        start = sum(self.shares[:rank])
        return slice(start, start + self.shares[rank])


@dataclass(frozen=True, eq=False)
class EmulatedRun:
    """The result of a task. weights: (ranks, steps, weights). losses: (ranks, steps), as returned."""

    weights: Array
    losses: list[list[Any]]
    moved: tuple[int, ...]  # B in and out of each rank's calls


def task_of(
    widths: Sequence[int], seed: int, shares: Sequence[int], rate: float, steps: int = 3
) -> Task:
    """Return the task of a perceptron on digits."""
    experiment = read_experiment(
        {
            "model": {"family": "mlp", "widths": list(widths)},
            "dataset": {"name": "digits"},
            "machine": {"name": "laptop"},
        }
    )
    return Task(experiment, seed, tuple(shares), rate, steps)


def one_rank(task: Task) -> tuple[Array, list[float]]:
    """Return the weights after each step, and the losses, of one rank that has all samples."""
    network, weights, losses = task.network(), [], []
    for x, y in task.batches():
        value, dy = softmax_cross_entropy(network.forward(x), y, len(x))
        network.backward(dy)
        network.weights -= task.rate * network.gradients
        weights.append(network.weights.copy())
        losses.append(value)
    return np.array(weights), losses


def part(step: Step, task: Task, comm: Any) -> tuple[Array, list[Any]]:
    """Return what `one_rank` returns, for one rank of `comm` and the learner's step.

    Raises LabError if the step replaces the network's arrays.
    """
    network, own, weights, losses = task.network(), task.own(comm.rank), [], []
    held = network.weights, network.gradients
    for x, y in task.batches():
        mine = x[own].copy(), y[own].copy()
        losses.append(step(network, softmax_cross_entropy, *mine, comm, task.rate))
        for name, array in zip(("weights", "gradients"), held, strict=True):
            if getattr(network, name) is not array:
                raise LabError(
                    f"network.{name} is a different array than before the step. The layers still "
                    "use the old one: change the numbers in it, not the name."
                )
        weights.append(network.weights.copy())
    return np.array(weights), losses


def run_emulated(step: Step, task: Task) -> EmulatedRun:
    """Run the learner's step on emulated ranks, one for each share. Raises LabError: see `emulate`."""

    def program(comm: Any) -> tuple[Array, list[Any], int]:
        weights, losses = part(step, task, comm)
        return weights, losses, comm.moved

    weights, losses, moved = zip(*emulate(len(task.shares), program), strict=True)
    return EmulatedRun(np.array(weights), list(losses), moved)


def off(weights: Array, expected: Array) -> float:
    """Return the largest difference over the largest weight; infinite if any is not finite."""
    difference = float(np.max(np.abs(weights - expected)) / np.max(np.abs(expected)))
    return difference if np.isfinite(difference) else np.inf


def travels(task: Task, emulated: EmulatedRun) -> float:
    """Return how often as many bytes as the gradients have go into and out of the busiest rank in a step."""
    return float(max(emulated.moved) / (2 * task.steps * task.network().gradients.nbytes))


def way_off(task: Task, weights: Array) -> str:
    """Return which known mistake explains the steps of all ranks; empty if none.

    weights: (ranks, steps, weights).
    """
    expected, _ = one_rank(task)
    if off(weights[:, 0], expected[0]) <= NEAR:
        return (
            "The first step is right, but a later one is not. What is left over from one step to "
            "the next?"
        )
    if not np.isfinite(weights[:, 0]).all():
        return "The weights are no longer numbers: was a sum read before it had arrived?"
    if max(off(each, expected[0]) for each in weights[:, 0]) <= SINGLE:
        return SINGLE_WORDS
    start = task.network().weights
    moved, right = start - weights[:, 0], start - expected[0]
    for words, wrong in _known_ways(task):
        if np.max(np.abs(moved - wrong)) <= 1e-8 * np.max(np.abs(wrong)):
            return words
    if not moved.any():
        return "The weights did not change at all."
    times = float(np.vdot(moved[0], right) / np.vdot(right, right))
    if np.max(np.abs(moved - times * right)) <= 1e-8 * np.max(np.abs(moved)):
        return f"The direction is right, but the length is {times:.4g} times the correct one."
    return ""


def loss_off(task: Task, rank: int, value: float) -> str:
    """Return which other number than the loss of the first step a rank has returned; empty if unknown."""
    x, y = next(task.batches())
    network, means = task.network(), []
    for each, share in enumerate(task.shares):
        own = task.own(each)
        means.append(softmax_cross_entropy(network.forward(x[own]), y[own], share)[0])
    added = means[rank] * task.shares[rank] / sum(task.shares)
    alike = (
        "That is the mean of the ranks' means: every rank counts equally, whatever the size "
        "of its shard."
    )
    known = {
        "That is the mean over its own samples.": means[rank],
        "That is the contribution of its own samples only; what do the samples of the other ranks contribute?": added,
        "That is the sum of the ranks' means.": sum(means),
        alike: sum(means) / len(means),
    }
    return next((words for words, number in known.items() if np.isclose(value, number, 1e-9)), "")


def _known_ways(task: Task) -> Iterator[tuple[str, Array]]:
    """Yield the message and the weight update (ranks, weights) of each classic mistake."""
    x, y = next(task.batches())
    ranks, samples = len(task.shares), sum(task.shares)
    means = []  # each rank's gradient of the mean over its own samples
    for rank in range(ranks):
        network, own = task.network(), task.own(rank)
        _, dy = softmax_cross_entropy(network.forward(x[own]), y[own], task.shares[rank])
        network.backward(dy)
        means.append(task.rate * network.gradients)
    g = np.array(means)
    parts = g * np.array(task.shares)[:, None] / samples
    right, every = parts.sum(axis=0), np.ones((ranks, 1))
    yield (
        f"The step is {ranks} times too short: gradients were averaged over the ranks instead of summed. By how many"
        " samples is the loss divided already?",
        every * right / ranks,
    )
    yield (
        "Each rank's gradient was a mean over its own samples, and these means were summed. Is a sum of"
        " means the mean over the whole batch?",
        every * g.sum(axis=0),
    )
    yield (
        f"The step is {ranks} times too long: were the gradients summed twice?",
        every * right * ranks,
    )
    yield (
        "Every rank counts equally here, whether it has few samples or many. Over which samples is the mean taken?",
        every * g.mean(axis=0),
    )
    alone = "Each rank's update uses only its own samples: no gradient of another rank arrives."
    yield alone, g
    yield alone, parts
    first = "All ranks use the gradient of rank 0: the samples of all others are lost."
    yield first, every * g[0]
    yield first, every * parts[0]
    yield "The step goes uphill: its sign is wrong.", -every * right
