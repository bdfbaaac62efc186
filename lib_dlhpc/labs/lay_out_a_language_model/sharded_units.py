"""Units of a small decoder, each rank with a shard of their weights, and a learner's step on them.

step(units, loss, x, y, comm, rate) trains the decoder on this rank's sequences x, y and returns the mean loss over
those of all ranks. It updates `unit.shard`, which is all that a rank keeps of a unit: a unit computes while it holds
its gathered weights, from unit.hold(weights) to unit.free().
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from lib_dlhpc.labs.emulated.ranks import emulate
from lib_dlhpc.labs.mistakes import LabError
from lib_dlhpc.layers.base.saved import Array
from lib_dlhpc.layout import Part, parts
from lib_dlhpc.spec.experiment import Experiment, read_experiment
from lib_dlhpc.training.data import load
from lib_dlhpc.training.loss import softmax_cross_entropy
from lib_dlhpc.training.network import Network

Step: TypeAlias = Callable[..., Any]
UNITS = 4
SLOT = 0  # of the one microbatch in flight


class Event(NamedTuple):
    """What a rank does: a collective, with its B; or hold, forward, backward or free, with the number of a unit."""

    what: str
    number: int


class Unit:
    """Some layers of the decoder. shard: this rank's numbers of `size` weights; the last shard ends in zeros.

    number: its place, from 0. log: of this rank. seen: the weights that it has held, in order.
    """

    def __init__(self, part: Part, number: int, weights: Array, shard: Array, log: Any) -> None:
        self.number, self.size, self.shard = number, weights.size, shard
        self._network = Network(part.model, np.float64, sends=part.sends)
        self._first, self._receives = not part.receives, part.receives
        self._log, self._held, self._ahead = log, False, False
        self._gave: tuple[int, ...] = ()
        self.seen: list[Array] = []

    def hold(self, weights: Any) -> None:
        """Hold the gathered weights: `size` numbers."""
        if not isinstance(weights, np.ndarray) or weights.shape != (self.size,):
            raise LabError(
                f"unit {self.number} holds {self.size} weights in a flat array, not {_found(weights)}"
            )
        self._network.weights[...] = weights
        self._held = True
        self.seen.append(weights.copy())
        self._log.append(Event("hold", self.number))

    def free(self) -> None:
        """Free the gathered weights; what forward has saved stays."""
        self._network.weights[...] = np.nan
        self._held = False
        self._log.append(Event("free", self.number))

    def forward(self, x: Array) -> Array:
        """Return the outputs. x: tokens (sequences, tokens) of the first unit, else the outputs of the one before."""
        self._compute("forward")
        network = self._network
        network.begin_step((len(x),))
        given = {} if self._first else {self._receives[0]: np.ascontiguousarray(x)}
        (y,) = network.run(SLOT, np.ascontiguousarray(x) if self._first else None, given).values()
        self._ahead, self._gave = True, y.shape
        return np.array(y)

    def backward(self, dy: Array) -> tuple[Array | None, Array]:
        """Return the gradients of the inputs, None of the first unit, and of its weights: `size` numbers."""
        self._compute("backward")
        if not self._ahead:
            raise LabError(f"unit {self.number}: backward comes after its forward, once.")
        if np.shape(dy) != self._gave:
            raise LabError(
                f"unit {self.number}: its outputs are of shape {self._gave}, but the gradient passed to backward is of"
                f" shape {np.shape(dy)}. Which unit's backward pass comes first?"
            )
        self._ahead = False
        network = self._network
        found = network.back(SLOT, {network.gives[0]: np.array(dy)})
        dx = None if self._first else np.array(found[self._receives[0]])
        return dx, network.gradients.copy()

    def _compute(self, what: str) -> None:
        if not self._held:
            raise LabError(
                f"unit {self.number} has no weights in its {what} pass: a unit can compute only while it holds its"
                " weights."
            )
        self._log.append(Event(what, self.number))


def _found(weights: Any) -> str:
    """Return what is no row of weights."""
    if not isinstance(weights, np.ndarray):
        return f"a {type(weights).__name__}: expected a numpy array."
    zeros = " The zeros after the last shard are not weights." if weights.ndim == 1 else ""
    return f"shape {weights.shape}.{zeros}"


@dataclass(frozen=True)
class ShardedTask:
    """A decoder of units, trained on ranks with `each` sequences. rate: of plain gradient descent."""

    hidden: int
    feed_forward: int
    ranks: int
    each: int
    seed: int
    rate: float = 0.5
    steps: int = 2

    @cached_property
    def experiment(self) -> Experiment:
        """The decoder in units, which are cut as the stages of a pipeline."""
        sizes = {"layers": UNITS, "hidden": self.hidden, "heads": self.hidden // 2, "kv_heads": 1}
        sizes |= {"feed_forward": self.feed_forward, "sequence": 8, "vocabulary": 16}
        return read_experiment(
            {
                "model": {"family": "llama", **sizes},
                "dataset": {"name": "words"},
                "machine": {"name": "laptop"},
                "strategy": {"devices_per_node": UNITS, "pipeline": UNITS, "precision": "fp64"}
                | {"batch": UNITS, "microbatches": UNITS},
            }
        )

    @cached_property
    def parts(self) -> tuple[Part, ...]:
        """The layers of each unit."""
        return tuple(parts(self.experiment, number)[0] for number in range(UNITS))

    def batches(self) -> Iterator[tuple[Array, Array]]:
        """Yield the global batches."""
        data, size = load(self.experiment, np.float64), self.ranks * self.each
        order = np.random.default_rng(self.seed).permutation(len(data.x))
        for start in range(0, self.steps * size, size):
            chosen = order[start : start + size]
            yield data.x[chosen], data.y[chosen]

    @cached_property
    def weights(self) -> list[Array]:
        """The initial weights of each unit."""
        whole = Network(self.experiment.model, np.float64, self.seed).weights
        ends = np.cumsum([int(part.model.parameters) for part in self.parts])
        return list(np.split(whole, ends[:-1]))

    @cached_property
    def one_rank(self) -> tuple[list[list[Array]], list[float]]:
        """Return the weights of each unit after each step, and the losses, of one rank that has all sequences."""
        network = Network(self.experiment.model, np.float64, self.seed)
        ends = np.cumsum([each.size for each in self.weights])[:-1]
        weights, losses = [], []
        for x, y in self.batches():
            value, dy = softmax_cross_entropy(network.forward(x), y, len(x))
            network.backward(dy)
            network.weights -= self.rate * network.gradients
            weights.append(np.split(network.weights.copy(), ends))
            losses.append(value)
        return weights, losses

    def shard_of(self, weights: Array, rank: int) -> Array:
        """Return a rank's shard of a unit's weights: equally long ones, the last with zeros at its end."""
        size = -(-weights.size // self.ranks)
        padded = np.zeros(size * self.ranks)
        padded[: weights.size] = weights
        return padded[rank * size : (rank + 1) * size].copy()

    def least_moved(self) -> int:
        """Return the B in and out of a rank in a step: two all-gathers and a reduce-scatter of each unit."""
        shards = (self.shard_of(each, 0).nbytes for each in self.weights)
        return sum(3 * (1 + self.ranks) * shard for shard in shards)


class RankRun(NamedTuple):
    """What a rank did. shards: (steps, units), after each step; seen: weights held by each unit, in order."""

    shards: list[list[Array]]
    losses: list[Any]
    log: list[Any]
    seen: list[list[Array]]
    moved: int


def rank_run(step: Step, task: ShardedTask, comm: Any) -> RankRun:
    """Run the learner's step on a rank of `comm`. Raises LabError if it replaces a shard by one of another shape."""
    log, shards, losses = getattr(comm, "log", []), [], []
    units = [
        Unit(part, number, own, task.shard_of(own, comm.rank), log)
        for number, (part, own) in enumerate(zip(task.parts, task.weights, strict=True))
    ]
    lengths = [unit.shard.shape for unit in units]
    for x, y in task.batches():
        mine = slice(comm.rank * task.each, (comm.rank + 1) * task.each)
        batch = x[mine].copy(), y[mine].copy()
        losses.append(step(units, softmax_cross_entropy, *batch, comm, task.rate))
        _check_shards(units, lengths, comm.rank)
        shards.append([unit.shard.copy() for unit in units])
        log.append(Event("step", len(shards)))
    return RankRun(shards, losses, log, [unit.seen for unit in units], getattr(comm, "moved", 0))


def _check_shards(units: Sequence[Unit], lengths: Sequence[Any], rank: int) -> None:
    for unit, shape in zip(units, lengths, strict=True):
        if getattr(unit.shard, "shape", None) != shape:
            found = getattr(unit.shard, "shape", type(unit.shard).__name__)
            raise LabError(
                f"rank {rank}: the shard of unit {unit.number} is of shape {shape}, after the step {found}."
            )


def run_emulated(step: Step, task: ShardedTask) -> list[RankRun]:
    """Run the learner's step on emulated ranks. Raises LabError: see `emulate`."""
    assert task.weights and task.parts  # before the ranks, which are threads, ask for them
    return emulate(task.ranks, lambda comm: rank_run(step, task, comm))
