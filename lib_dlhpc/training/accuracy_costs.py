"""What compression and local updates cost in accuracy: measured on MNIST; the runs are stored.

    python -m lib_dlhpc.training.accuracy_costs    writes catalog/measured/accuracy_costs.csv

Every run is the linear-scaling run of the large-batch study at a batch of 128, but for one setting; rate and warm-up
are not tuned again. Compression is that of one worker, whose selection nobody else's gradients complete; local updates
are of four, in one process. A run that diverges counts as chance.
"""

import csv
from collections.abc import Iterable
from functools import cache
from typing import Any, NamedTuple

import numpy as np

from lib_dlhpc.spec.catalog import ROOT
from lib_dlhpc.spec.experiment import Experiment
from lib_dlhpc.training.data import global_batches, share
from lib_dlhpc.training.large_batch import (
    CHANCE,
    MNIST,
    Trial,
    accuracy_of,
    experiment_of,
    fresh,
    samples_of,
)
from lib_dlhpc.training.loss import softmax_cross_entropy
from lib_dlhpc.training.optimizers import Optimizer
from lib_dlhpc.training.rank import Diverged
from lib_dlhpc.training.rates import rate_at

TABLE = ROOT / "measured" / "accuracy_costs.csv"
WORKERS, BATCH, SEEDS = 4, 128, range(5)
WARM_UP = {"training.sparsity_warm_up": 4.0}
SETTINGS: dict[str, tuple[Any, ...]] = {
    "training.sparsity": (0.0, 0.9, 0.99, 0.999),
    "training.low_rank": (2,),
    "strategy.local_steps": (4, 16),
}


class CostRun(NamedTuple):
    """One run: the setting that differs, its value, and the accuracy on the test samples."""

    setting: str
    value: str
    seed: int
    accuracy: float


@cache
def stored() -> tuple[CostRun, ...]:
    """Return the shipped runs; a sparsity of 0 is the reference."""
    with TABLE.open(newline="", encoding="utf-8") as file:
        return tuple(
            CostRun(row["setting"], row["value"], int(row["seed"]), float(row["accuracy"]))
            for row in csv.DictReader(file)
        )


def accuracy(setting: str, value: Any, seed: int) -> float:
    """Return the test accuracy of one run."""
    base = experiment_of(MNIST, Trial("test", "linear", BATCH, 0.02, 4, seed))
    try:
        with np.errstate(over="ignore", invalid="ignore"):
            if setting == "strategy.local_steps":
                return local(base, value)
            return trained(base.set({setting: value, **WARM_UP}))
    except Diverged:
        return CHANCE


def trained(experiment: Experiment) -> float:
    """Return the test accuracy of a run on one rank."""
    from mpi4py import MPI

    from lib_dlhpc.training.trainer import train

    return train(experiment, MPI.COMM_SELF).accuracy or 0.0


def local(experiment: Experiment, every: int) -> float:
    """Return the test accuracy of WORKERS that average their weights every `every` steps."""
    data = samples_of(experiment, "test")
    networks = [fresh(experiment) for _ in range(WORKERS)]
    rules = [Optimizer(experiment.strategy.optimizer, experiment.training) for _ in networks]
    epochs, step = int(experiment.run.epochs), 0
    for epoch in range(epochs):
        for at, chosen in global_batches(experiment, len(data.x), epoch):
            step += 1
            for worker, (network, rule) in enumerate(zip(networks, rules, strict=True)):
                own = chosen[share(len(chosen), worker, WORKERS)]
                loss, dy = softmax_cross_entropy(
                    network.forward(data.x[own]), data.y[own], len(own)
                )
                if not np.isfinite(loss):
                    raise Diverged(f"{every} local steps, epoch {at:.3g}")
                network.backward(dy)
                rule.update(network, rate_at(experiment.training, at, epochs, len(chosen)))
            if step % every == 0:
                _average(networks)
    _average(networks)
    return accuracy_of(networks[0], data)


def _average(networks: Iterable[Any]) -> None:
    networks = list(networks)
    mean = np.mean([network.weights for network in networks], axis=0)
    for network in networks:
        network.weights[...] = mean


def main() -> None:
    """Measure and store the table."""
    runs = [
        CostRun(setting, str(value), seed, round(accuracy(setting, value, seed), 6))
        for setting, values in SETTINGS.items()
        for value in values
        for seed in SEEDS
    ]
    with TABLE.open("w", newline="", encoding="utf-8") as file:
        out = csv.writer(file, lineterminator="\n")
        out.writerow(CostRun._fields)
        out.writerows(runs)


if __name__ == "__main__":
    main()
