"""A learner's pipeline, run on emulated ranks and compared with one rank that has all stages.

A step is `step(stream, stage, comm, rate)`: it executes a stream of instructions
(lib_dlhpc/schedules/pipeline.py) on a Stage, updates stage.weights by plain gradient descent on the mean loss
over the whole batch, and returns that loss on the last rank.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from lib_dlhpc.labs.emulated.data_parallel_step import SINGLE, SINGLE_WORDS, off
from lib_dlhpc.labs.emulated.pipeline_stage import Stage
from lib_dlhpc.labs.emulated.ranks import emulate
from lib_dlhpc.labs.mistakes import LabError
from lib_dlhpc.layers.base.saved import Array
from lib_dlhpc.schedules.pipeline import Instruction
from lib_dlhpc.spec.experiment import read_experiment
from lib_dlhpc.training.data import load

Streams: TypeAlias = Sequence[Sequence[Instruction]]  # of each rank


@dataclass(frozen=True)
class StagedTask:
    """The task: a perceptron on digits, its partition into stages, batches split into microbatches."""

    widths: tuple[int, ...]
    cut: tuple[int, ...]  # bounds of the stages, in layers
    seed: int
    batch: int
    microbatches: int
    rate: float
    steps: int = 3

    @property
    def ranks(self) -> int:
        """Return the number of stages, one for each rank."""
        return len(self.cut) - 1

    def batches(self, microbatches: int = 0) -> Iterator[tuple[list[Array], list[Array]]]:
        """Yield the microbatches of each step; in the task's number by default."""
        data = load(_digits(self.widths), np.float64)
        order = np.random.default_rng(self.seed).permutation(len(data.x))
        for start in range(0, self.steps * self.batch, self.batch):
            chosen = order[start : start + self.batch]
            cut = np.array_split(chosen, microbatches or self.microbatches)
            yield [data.x[part] for part in cut], [data.y[part] for part in cut]

    def widths_of(self, number: int) -> tuple[int, ...]:
        """Return the widths of a rank's stage, from inputs to outputs."""
        return self.widths[self.cut[number] : self.cut[number + 1] + 1]

    def stage(self, number: int) -> Stage:
        """Return a rank's stage with its initial weights."""
        return Stage(self.widths, number, self.cut, self.seed)

    def whole(self) -> Stage:
        """Return all layers as one stage."""
        return Stage(self.widths, 0, (0, len(self.widths) - 1), self.seed)


@dataclass(frozen=True, eq=False)
class Staged:
    """The result of one rank's stage. weights: (steps, weights of the rank). losses: as returned."""

    weights: Array
    losses: list[Any]
    done: list[tuple[str, int]]  # in the last step
    overwritten: list[int]  # microbatches
    unwaited: int  # sends without Wait
    changed: int  # sends whose buffer was modified in flight


def staged_task(
    seed: int, ranks: int, batch: int, microbatches: int, rate: float = 0.3
) -> StagedTask:
    """Return a task with stages of one or two layers, drawn from the seed."""
    rng = np.random.default_rng(seed)
    layers = rng.integers(1, 3, ranks)
    cut = (0, *np.cumsum(layers).tolist())
    widths = (64, *rng.integers(8, 17, cut[-1] - 1).tolist(), 10)
    return StagedTask(widths, cut, seed, batch, microbatches, rate)


def alone(task: StagedTask) -> tuple[Array, list[float]]:
    """Return the weights after each step, and the losses, of one rank that has all stages."""
    stage, weights, losses = task.whole(), [], []
    for x, y in task.batches(1):
        stage.load(x, y)
        stage.forward(0)
        value, _ = stage.backward(0, None, task.batch)
        stage.weights -= task.rate * stage.gradients
        weights.append(stage.weights.copy())
        losses.append(value)
    return np.array(weights), losses


def one_stage(
    step: Callable[..., Any], stream: Sequence[Instruction], task: StagedTask, comm: Any
) -> Staged:
    """Return the result of the learner's step on the stage of this rank of `comm`.

    Raises LabError if the step replaces the stage's arrays.
    """
    stage, weights, losses = task.stage(comm.rank), [], []
    held = stage.weights, stage.gradients
    for x, y in task.batches():
        stage.load(x, y)
        losses.append(step(stream, stage, comm, task.rate))
        if stage.weights is not held[0] or stage.gradients is not held[1]:
            raise LabError(
                "stage.weights or stage.gradients is a different array than before the step. The "
                "layers still use the old one: change the numbers in it, not the name."
            )
        weights.append(stage.weights.copy())
    messages = getattr(comm, "messages", [])
    unwaited = sum(not message.waited for message in messages)
    changed = sum(message.changed for message in messages)
    return Staged(np.array(weights), losses, list(stage.done), stage.overwritten, unwaited, changed)


def emulate_stages(step: Callable[..., Any], streams: Streams, task: StagedTask) -> list[Staged]:
    """Run the learner's step on emulated ranks, one stage each. Raises LabError: see `emulate`."""
    return emulate(task.ranks, lambda comm: one_stage(step, tuple(streams[comm.rank]), task, comm))


def joined(runs: Sequence[Staged]) -> Array:
    """Return the weights of all stages concatenated as on one rank, (steps, weights)."""
    return np.concatenate([each.weights for each in runs], axis=1)


def stages_off(task: StagedTask, weights: Array) -> str:
    """Return which known mistake explains the steps; empty if none. weights: (steps, all)."""
    start, (expected, _) = task.whole().weights, alone(task)
    if np.max(np.abs(weights[0] - expected[0])) <= 1e-12:
        return (
            "The first step is right, but a later one is not. What is left over from one step to "
            "the next?"
        )
    if not np.isfinite(weights[0]).all():
        return "The weights are no longer numbers: was a message read before it had arrived?"
    if off(weights[:1], expected[:1]) <= SINGLE:
        return SINGLE_WORDS
    moved, right = start - weights[0], start - expected[0]
    if not moved.any():
        return "The weights did not change at all."
    for words, wrong in _known_ways(task, right):
        if np.max(np.abs(moved - wrong)) <= 1e-8 * np.max(np.abs(wrong)):
            return words
    times = float(np.vdot(moved, right) / np.vdot(right, right))
    if np.max(np.abs(moved - times * right)) <= 1e-8 * np.max(np.abs(moved)):
        return f"The direction is right, but the length is {times:.4g} times the correct one."
    sizes = np.cumsum([0, *(task.stage(rank).weights.size for rank in range(task.ranks))])
    near = 1e-8 * np.max(np.abs(right))
    wrong_ones = [
        rank
        for rank in range(task.ranks)
        if np.max(np.abs((moved - right)[sizes[rank] : sizes[rank + 1]])) > near
    ]
    if len(wrong_ones) < task.ranks:
        return f"Wrong on {'rank' if len(wrong_ones) == 1 else 'ranks'} {', '.join(map(str, wrong_ones))} only."
    return ""


def _known_ways(task: StagedTask, right: Array) -> Iterator[tuple[str, Array]]:
    """Yield the message and the weight update of each classic mistake."""
    stage, means = task.whole(), []
    x, y = next(task.batches())
    stage.load(x, y)
    for microbatch, samples in enumerate(stage.samples):
        stage.forward(microbatch)
        stage.backward(microbatch, None, samples)
        means.append(task.rate * stage.gradients)
    g, size, many = np.array(means), np.array(stage.samples), task.microbatches
    if many == 1:
        return
    for i in range(many):
        words = (
            f"The update used the gradients of microbatch {i} alone: backward overwrites the "
            "gradients of the microbatch before."
        )
        for share in (1.0, size[i] / task.batch, size[i] / size[0], 1 / many):
            yield words, share * g[i]
            yield (
                f"The update used twice the gradients of microbatch {i}: they are summed into "
                "the same array that backward writes to.",
                2 * share * g[i],
            )
    yield (
        "Each microbatch's loss was a mean over its own samples, and these means were summed. "
        "How many samples should the loss be the mean of?",
        g.sum(axis=0),
    )
    yield (
        "Each microbatch's loss was divided by the size of the first, and the results were "
        "summed. How many samples should the loss be the mean of?",
        (size[:, None] / size[0] * g).sum(axis=0),
    )
    yield (
        "Every microbatch counts equally here, whether it has few samples or many. Over which samples is the mean"
        " taken?",
        g.mean(axis=0),
    )
    yield (
        f"The step is {many} times too short: it was divided by the number of microbatches. By how many samples is the"
        " loss divided already?",
        right / many,
    )
    yield "The step goes uphill: its sign is wrong.", -right


def _digits(widths: Sequence[int]) -> Any:
    return read_experiment(
        {
            "model": {"family": "mlp", "widths": list(widths)},
            "dataset": {"name": "digits"},
            "machine": {"name": "laptop"},
        }
    )
