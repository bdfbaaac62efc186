"""A small network whose every epoch is a version: trained here, saved in the background, continued from any version.

As in a large run, all that the next step depends on goes into a store.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from lib_dlhpc.layers.base.saved import Tensors
from lib_dlhpc.spec.experiment import Experiment, read_experiment
from lib_dlhpc.training.data import load
from lib_dlhpc.training.loss import softmax_cross_entropy
from lib_dlhpc.training.network import Network
from lib_dlhpc.training.threads import one_thread

WIDTHS, BATCH = [64, 256, 256, 10], 32
LAST = "the last layer"
WHAT = ("all layers", LAST)


def experiment() -> Experiment:
    """Return what is trained: a perceptron on digits."""
    return read_experiment(
        {
            "model": {"family": "mlp", "widths": WIDTHS, "activation": "relu"},
            "dataset": {"name": "digits"},
            "machine": {"name": "laptop"},
            "strategy": {"devices_per_node": 1, "batch": BATCH, "optimizer": "sgd"},
        }
    )


@dataclass
class Learner:
    """Weights, and how many epochs they have seen; the order of samples is drawn from that number."""

    network: Network = field(default_factory=lambda: Network(experiment().model))
    data: Any = field(default_factory=lambda: load(experiment()))
    epochs: int = 0

    @property
    def steps(self) -> int:
        """Steps that have been taken."""
        return self.epochs * -(-len(self.data.x) // BATCH)

    def epoch(self, what: str, rate: float) -> float:
        """Train all layers, or the last alone, for an epoch by plain SGD; return the mean loss."""
        network, order = (
            self.network,
            np.random.default_rng(self.epochs).permutation(len(self.data.x)),
        )
        kept = self._first_of_last() if what == LAST else 0
        losses = []
        with one_thread(), np.errstate(all="ignore"):
            for own in batches(order):
                outputs = network.forward(self.data.x[own])
                loss, dy = softmax_cross_entropy(outputs, self.data.y[own], len(own))
                network.backward(dy)
                network.weights[kept:] -= (
                    network.weights.dtype.type(rate) * network.gradients[kept:]
                )
                losses.append(loss)
        self.epochs += 1
        return float(np.mean(losses))

    def accuracy(self) -> float:
        """Return the test accuracy."""
        with one_thread(), np.errstate(all="ignore"):
            outputs = self.network.forward(self.data.test_x, training=False)
        return float(np.mean(outputs.argmax(axis=-1) == self.data.test_y))

    def state(self) -> Tensors:
        """Return all that the next step depends on: the tensors by name, and the epochs done."""
        flat = self.network.weights
        tensors = {p.name: flat[p.start : p.stop].reshape(p.shape) for p in self.network.parameters}
        return {**tensors, "epochs": np.array(self.epochs)}

    def take_up(self, state: Tensors) -> None:
        """Continue from a state."""
        for p in self.network.parameters:
            self.network.weights[p.start : p.stop] = state[p.name].reshape(-1)
        self.epochs = int(state["epochs"])

    def _first_of_last(self) -> int:
        """Return where the weights of the last layer begin."""
        last = self.network.parameters[-1].layer
        return min(p.start for p in self.network.parameters if p.layer == last)


def batches(order: Any) -> Iterator[Any]:
    """Yield the numbers of the samples of each step."""
    for start in range(0, len(order), BATCH):
        yield order[start : start + BATCH]
