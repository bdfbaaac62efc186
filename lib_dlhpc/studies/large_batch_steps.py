"""Steps to a target accuracy for each batch size: the measurement behind the critical batch size.

For each batch the rate that needs the fewest steps is chosen on the validation split, then evaluated with
other seeds on the test samples. Momentum, constant rate: a schedule would fix the number of steps.
Source of the question: McCandlish et al. 2018, "An empirical model of large-batch training", section 2.
"""

from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from functools import partial
from typing import NamedTuple

import numpy as np

from lib_dlhpc.studies.large_batch import (
    MNIST,
    Rule,
    Trial,
    accuracy_of,
    experiment_of,
    fresh,
    samples_of,
    steps,
)
from lib_dlhpc.training.rank import Diverged

TARGET = 0.9
BATCHES = (8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4000)
RATES = (0.02, 0.04, 0.01, 0.08, 0.005, 0.0025)  # likeliest first, so that the others stop sooner
MOST = 2000  # steps at most
LOOK = 128  # samples between two evaluations, at least
STUDY = replace(MNIST, epochs=MOST, rules={"steps": Rule(BATCHES, RATES, (0,), decay="constant")})


class Arrival(NamedTuple):
    """The steps that a batch took to TARGET; MOST if it never did."""

    batch: int
    rate: float
    seed: int
    steps: int


def arrival(batch: int, rate: float, seed: int, split: str = "test", most: int = MOST) -> Arrival:
    """Train until the accuracy on the split's samples is TARGET, at most `most` steps."""
    experiment = experiment_of(STUDY, Trial(split, "steps", batch, rate, 0.0, seed))
    data, network = samples_of(experiment, split), fresh(experiment)
    every = max(1, LOOK // batch)
    try:
        with np.errstate(over="ignore", invalid="ignore"):
            for taken in steps(network, experiment, data):
                if taken % every == 0 and accuracy_of(network, data) >= TARGET:
                    return Arrival(batch, rate, seed, taken)
                if taken >= most:
                    break
    except Diverged:
        pass
    return Arrival(batch, rate, seed, most)


def chosen_rate(batch: int) -> float:
    """Return the rate with the fewest steps on the validation split, means over the tuning seeds."""
    best, fewest = RATES[0], float(MOST)
    for rate in RATES:
        most = int(min(MOST, 2 * fewest))
        runs = [arrival(batch, rate, seed, "validation", most) for seed in STUDY.tuning_seeds]
        mean = float(np.mean([run.steps for run in runs]))
        if mean < fewest:
            best, fewest = rate, mean
    return best


def measured(batch: int) -> list[Arrival]:
    """Return the runs of a batch at its chosen rate."""
    return list(map(partial(arrival, batch, chosen_rate(batch)), STUDY.seeds))


def carried_out(pool: ProcessPoolExecutor) -> list[Arrival]:
    """Measure all batches."""
    return [run for runs in pool.map(measured, BATCHES) for run in runs]
