"""What compression, formats of the wire, local and asynchronous updates cost in accuracy: measured on MNIST, stored.

    python -m lib_dlhpc.studies.accuracy_costs    writes catalog/measured/accuracy_costs.csv; ten minutes of a core

Every run is the linear-scaling run of the large-batch study at a batch of 128, but for one method; rate and warm-up
are not tuned again. `workers` train it in one process (emulated_workers.py); an asynchronous worker has a mini-batch of
128 samples to itself. Low-rank compression is linear in the gradient, so one worker stands for all (Vogels et al. 2019,
lemma 3). A run that diverges counts as chance.
"""

import csv
from typing import Any

import numpy as np

from lib_dlhpc.convergence.accuracy_costs import BATCH, TABLE, WARM_UP, CostRun
from lib_dlhpc.spec.experiment import Experiment
from lib_dlhpc.studies.emulated_workers import trained
from lib_dlhpc.studies.large_batch import (
    CHANCE,
    MNIST,
    Trial,
    accuracy_of,
    experiment_of,
    samples_of,
)
from lib_dlhpc.training.rank import Diverged

SEEDS = range(5)
DILOCO = (0.7, 0.9)  # outer rate and momentum of Douillard et al. 2023
MILD = (0.5, 0.5)  # a step as long as that of an average: 0.5 / (1 - 0.5) = 1
METHODS: tuple[tuple[str, Any, int, tuple[float, float]], ...] = (  # and workers, outer optimizer
    *(("training.sparsity", value, 1, (1.0, 0.0)) for value in (0.0, 0.9, 0.99, 0.999)),
    *(("training.sparsity", value, 4, (1.0, 0.0)) for value in (0.9, 0.99, 0.999)),
    *(("training.low_rank", value, 1, (1.0, 0.0)) for value in (1, 2, 4)),
    *(("strategy.wire", value, 4, (1.0, 0.0)) for value in ("bf16", "fp8")),
    *(("strategy.local_steps", value, 4, (1.0, 0.0)) for value in (4, 16)),
    *(("strategy.local_steps", value, 4, DILOCO) for value in (4, 16)),
    ("strategy.local_steps", 16, 4, MILD),
    *(("strategy.update", "asynchronous", workers, (1.0, 0.0)) for workers in (2, 4, 8)),
)


def experiment(
    setting: str, value: Any, outer: tuple[float, float] = (1.0, 0.0), seed: int = 0
) -> Experiment:
    """Return the run of a method, at its batch on one device; outer: rate and momentum of the outer optimizer."""
    base = experiment_of(MNIST, Trial("test", "linear", BATCH, 0.02, 4, seed))
    changes = {setting: value}
    if setting == "strategy.local_steps":
        changes |= {"strategy.update": "local"}
        changes |= {"training.outer_rate": outer[0], "training.outer_momentum": outer[1]}
    elif setting == "strategy.update":
        changes |= {"machine.nodes": 2}  # one is the server's
    elif setting in ("training.sparsity", "training.low_rank"):
        changes |= {"training.sparsity_warm_up": WARM_UP}
    return base.set(changes)


def accuracy(
    setting: str, value: Any, workers: int, outer: tuple[float, float], seed: int
) -> float:
    """Return the test accuracy of one run."""
    run = experiment(setting, value, outer, seed)
    try:
        with np.errstate(over="ignore", invalid="ignore"):  # divergence is a result here
            if workers == 1:
                return _on_one_rank(run)
            data = samples_of(run, "test")
            return accuracy_of(trained(run, workers, data), data)
    except Diverged:
        return CHANCE


def _on_one_rank(run: Experiment) -> float:
    from mpi4py import MPI

    from lib_dlhpc.training.trainer import train

    return train(run, MPI.COMM_SELF).accuracy or 0.0


def main() -> None:
    """Measure and store the table."""
    runs = [
        CostRun(*method[:3], *method[3], seed, round(accuracy(*method, seed), 6))
        for method in METHODS
        for seed in SEEDS
    ]
    with TABLE.open("w", newline="", encoding="utf-8") as file:
        out = csv.writer(file, lineterminator="\n")
        out.writerow(CostRun._fields)
        out.writerows(runs)


if __name__ == "__main__":
    main()
