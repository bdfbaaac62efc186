"""A small network whose every epoch is a version: trained here, saved in the background, continued from any version.

As in a large run, all that the next step depends on goes into a store.
"""

import threading
from typing import Annotated, Any, NamedTuple

import numpy as np

from lib_dlhpc.explore.blocks.bench import Dropdown, Slider
from lib_dlhpc.explore.blocks.folder import Folder
from lib_dlhpc.layers import Tensors
from lib_dlhpc.spec.experiment import read_experiment
from lib_dlhpc.storage.snapshots import SnapshotStore, Version
from lib_dlhpc.training.data import load
from lib_dlhpc.training.loss import softmax_cross_entropy
from lib_dlhpc.training.network import Network
from lib_dlhpc.training.threads import one_thread

WIDTHS, BATCH = [64, 256, 256, 10], 32
LAST = "the last layer"
WHAT = ("all layers", LAST)


class Setting(NamedTuple):
    """How a version is continued: which layers are trained, at which rate, for how many epochs."""

    what: Annotated[str, Dropdown("Train", "What is not trained does not change", WHAT)] = WHAT[0]
    rate: Annotated[float, Slider("Rate", "Of plain SGD", (0.02, 0.1, 0.5, 2.0), "{:g}".format)] = (
        0.1
    )
    epochs: Annotated[int, Slider("Epochs", "Each of them is a version", (1, 2, 4))] = 4


class Learner:
    """A perceptron on digits, and how many epochs it has seen; the order of samples is drawn from that number."""

    def __init__(self) -> None:
        model = {"family": "mlp", "widths": WIDTHS, "activation": "relu"}
        own = {"devices_per_node": 1, "batch": BATCH, "optimizer": "sgd"}
        about = {"model": model, "dataset": "digits", "machine": "laptop", "strategy": own}
        experiment = read_experiment(about)
        self.network, self.data, self.epochs = Network(experiment.model), load(experiment), 0

    @property
    def steps(self) -> int:
        """Steps that have been taken."""
        return self.epochs * -(-len(self.data.x) // BATCH)

    @property
    def last(self) -> int:
        """Where the weights of the last layer begin."""
        parameters = self.network.parameters
        return min(p.start for p in parameters if p.layer == parameters[-1].layer)

    def epoch(self, what: str, rate: float) -> float:
        """Train all layers, or the last alone, for an epoch by plain SGD; return the mean loss."""
        network, x, y = self.network, self.data.x, self.data.y
        order = np.random.default_rng(self.epochs).permutation(len(x))
        trained = slice(self.last if what == LAST else 0, None)
        losses = []
        with one_thread(), np.errstate(all="ignore"):
            for start in range(0, len(order), BATCH):
                own = order[start : start + BATCH]
                loss, dy = softmax_cross_entropy(network.forward(x[own]), y[own], len(own))
                network.backward(dy)
                step = network.weights.dtype.type(rate) * network.gradients[trained]
                network.weights[trained] -= step
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


class Trunk:
    """A store in a folder that goes with it, and what was trained into it."""

    def __init__(self) -> None:
        self.folder = Folder("versions")
        self.store = SnapshotStore(self.folder.path / "store")
        self.learner = Learner()
        self.how: dict[str, str] = {}  # by a version's id
        self.waits: list[tuple[float, float]] = []  # s of copying, s until it was published
        self._going: list[Any] = []
        self._keep("the first weights", "main")
        self._settle()

    def train(self, start: Version, setting: Setting, stop: threading.Event) -> Version:
        """Train from a version on, a version for each epoch; return the last. What is saved when `stop` is set stays.

        From the newest of a branch that branch continues, from any other a new one begins.
        """
        fresh = f"branch-{len(self.store.branches.names()) + 1}"
        branch = start.branch if self.ends_at(start) else fresh
        self.learner.take_up(self.store.load(start))
        parent: Version | None = start
        for _ in range(setting.epochs):
            if stop.is_set():
                break
            loss = self.learner.epoch(setting.what, setting.rate)
            self._keep(f"{setting.what}, rate {setting.rate:g}", branch, loss, parent)
            parent = None
        self._settle()
        return self.store.newest(branch) or start

    def ends_at(self, version: Version) -> bool:
        """Return whether a version is the newest of its branch."""
        newest = self.store.newest(version.branch)
        return newest is not None and newest.id == version.id

    def _keep(
        self, how: str, branch: str, loss: float | None = None, parent: Version | None = None
    ) -> None:
        """Save the state behind the next epoch."""
        self._settle()
        own, metrics = self.learner, {"accuracy": self.learner.accuracy(), "loss": loss}
        about: dict[str, Any] = {"step": own.steps, "metrics": metrics, "parent": parent}
        self._going = [self.store.save_async(own.state(), branch=branch, **about), how]

    def _settle(self) -> None:
        if self._going:
            (saving, how), self._going = self._going, []
            self.how[saving.wait().id] = how
            self.waits.append((saving.copied, saving.ended - saving.begun))
