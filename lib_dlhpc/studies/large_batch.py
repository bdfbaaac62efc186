"""How large may the batch be? Runs, rates and seeds of the large-batch study; its results are stored.

    python -m lib_dlhpc.studies.large_batch_results            MNIST; writes the tables in catalog/measured/
    python -m lib_dlhpc.studies.large_batch_results --quick    digits, the main runs only; prints

Rate and warm-up of each rule are tuned on a validation split, the last fifth of the training samples, with
separate seeds; the test samples are evaluated once, after tuning. A run that diverges counts as chance. Two
processes run the trials, one thread each, so results do not depend on the number of cores.
"""

import os
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from itertools import product
from multiprocessing import get_context
from typing import NamedTuple

import numpy as np

from lib_dlhpc.spec.experiment import Experiment
from lib_dlhpc.training.data import Data, global_batches, load
from lib_dlhpc.training.learning_rate import rate_at
from lib_dlhpc.training.loss import softmax_cross_entropy
from lib_dlhpc.training.network import Network
from lib_dlhpc.training.optimizers import Optimizer
from lib_dlhpc.training.rank import Diverged

CHANCE = 0.1  # of ten classes
WORKERS = 2
SPLITS = ("validation", "test")


@dataclass(frozen=True)
class Rule:
    """How the rate follows the batch. More than one rate or warm-up: tuned on the validation split."""

    batches: tuple[int, ...]
    rates: tuple[float, ...]
    warm_ups: tuple[float, ...]  # epochs
    optimizer: str = "momentum"
    scaled: bool = False  # linear scaling: the rate is for the study's base batch
    decay: str = "quadratic"


@dataclass(frozen=True)
class Study:
    """A network, its samples, and the rules that train it."""

    dataset: str
    widths: tuple[int, ...]
    base_batch: int
    epochs: int
    rules: dict[str, Rule]
    seeds: tuple[int, ...]
    tuning_seeds: tuple[int, ...]


class Trial(NamedTuple):
    """One run of a study. split: the samples it is evaluated on, one of SPLITS."""

    split: str
    rule: str
    batch: int
    rate: float
    warm_up: float
    seed: int


class Outcome(NamedTuple):
    """The result of a trial: accuracy and number of steps."""

    trial: Trial
    accuracy: float
    steps: int


_LARGE = (256, 512, 1024, 2048, 4000)
MNIST = Study(
    dataset="mnist-5k",
    widths=(784, 128, 128, 128, 128, 128, 10),
    base_batch=32,
    epochs=20,
    rules={
        "linear": Rule((32, 64, 128, *_LARGE), (0.02,), (4,), scaled=True),
        "tuned": Rule(_LARGE, (0.02, 0.05, 0.1, 0.15, 0.2), (4, 12)),
        "lars": Rule(_LARGE, (2.5, 5.0, 10.0, 15.0, 20.0, 30.0), (4, 12), "lars"),
        "lamb": Rule((1024,), (0.005, 0.01, 0.02, 0.04), (4, 12), "lamb"),
        "decay": Rule((32,), (0.02,), (4,), decay="step"),
        "growth": Rule((32,), (0.02,), (4,), decay="growth"),
    },
    seeds=tuple(range(10)),
    tuning_seeds=(100, 101, 102, 103),
)
DIGITS = Study(
    dataset="digits",
    widths=(64, 64, 64, 64, 64, 64, 10),
    base_batch=16,
    epochs=40,
    rules={
        "linear": Rule((16, 128, 512), (0.02,), (8,), scaled=True),
        "tuned": Rule((512,), (0.05, 0.1), (8,)),
        "lars": Rule((512,), (10.0, 20.0), (8,), "lars"),
    },
    seeds=tuple(range(5)),
    tuning_seeds=(100, 101),
)


def experiment_of(study: Study, trial: Trial) -> Experiment:
    """Return the experiment that a trial is: `dlhpc run` trains the same."""
    rule = study.rules[trial.rule]
    return Experiment(
        model={"family": "mlp", "widths": list(study.widths)},
        dataset={"name": study.dataset},
        machine="laptop",
        strategy={
            "nodes": 1,
            "devices_per_node": 1,
            "batch": trial.batch,
            "optimizer": rule.optimizer,
        },
        run={"epochs": study.epochs, "seed": trial.seed},
        training={
            "rate": trial.rate,
            "base_batch": study.base_batch if rule.scaled else 0,
            "warm_up": trial.warm_up,
            "decay": rule.decay,
            "steps_at": 0.4
            * study.epochs,  # two tenfold decays of the rate, or increases of the batch
            "weight_decay": 5e-4,
        },
    )


def samples_of(experiment: Experiment, split: str) -> Data:
    """Return the samples to train and to evaluate on; "validation" uses no test samples."""
    data = load(experiment)
    if split == "test":
        return data
    split_at = len(data.x) * 4 // 5
    return replace(
        data,
        x=data.x[:split_at],
        y=data.y[:split_at],
        test_x=data.x[split_at:],
        test_y=data.y[split_at:],
    )


def accuracy_of(network: Network, data: Data) -> float:
    """Return the accuracy on the evaluation samples."""
    answers = network.forward(data.test_x, training=False).argmax(axis=1)
    return float(np.mean(answers == data.test_y))


def fresh(experiment: Experiment) -> Network:
    """Return the network with the initial weights of the experiment's seed."""
    return Network(experiment.model, np.float32, experiment.run.seed)


def steps(network: Network, experiment: Experiment, data: Data) -> Iterator[int]:
    """Train step by step and yield the number of steps so far: the loop of `train` on one rank and these samples.

    Raises Diverged when the loss is not finite.
    """
    taken = 0
    optimizer = Optimizer(experiment.strategy.optimizer, experiment.training)
    epochs = int(experiment.run.epochs)
    for epoch in range(epochs):
        for at, chosen in global_batches(experiment, len(data.x), epoch):
            outputs = network.forward(data.x[chosen])
            loss, dy = softmax_cross_entropy(outputs, data.y[chosen], len(chosen))
            if not np.isfinite(loss):
                raise Diverged(f"batch {len(chosen)}, epoch {at:.3g}")
            network.backward(dy)
            optimizer.update(network, rate_at(experiment.training, at, epochs, len(chosen)))
            taken += 1
            yield taken


def outcome(study: Study, trial: Trial) -> Outcome:
    """Run a trial to its end, or until it diverges."""
    experiment = experiment_of(study, trial)
    data = samples_of(experiment, trial.split)
    network, taken, accuracy = fresh(experiment), 0, CHANCE
    try:
        with np.errstate(over="ignore", invalid="ignore"):  # divergence is a result here
            for _ in steps(network, experiment, data):
                taken += 1
            accuracy = accuracy_of(network, data)
    except Diverged:
        pass
    return Outcome(trial, accuracy, taken)


def candidates(study: Study) -> list[Trial]:
    """Return the trials on the validation split: every rate and warm-up that a rule tunes."""
    return [
        Trial("validation", name, batch, rate, warm_up, seed)
        for name, rule in study.rules.items()
        if len(rule.rates) * len(rule.warm_ups) > 1
        for batch, rate, warm_up in product(rule.batches, rule.rates, rule.warm_ups)
        for seed in study.tuning_seeds
    ]


def best(tried: list[Outcome], rule: str, batch: int) -> tuple[float, float]:
    """Return the rate and warm-up with the best mean accuracy on the validation split.

    Ties are broken by the worst seed.
    """
    found: dict[tuple[float, float], list[float]] = {}
    for trial, accuracy, _ in tried:
        if (trial.split, trial.rule, trial.batch) == ("validation", rule, batch):
            found.setdefault((trial.rate, trial.warm_up), []).append(accuracy)
    return max(found, key=lambda key: (round(float(np.mean(found[key])), 6), min(found[key])))


def finals(study: Study, tried: list[Outcome]) -> list[Trial]:
    """Return the trials on the test samples, with the rates tuned on the validation split."""
    trials = []
    for name, rule in study.rules.items():
        for batch in rule.batches:
            choice = len(rule.rates) * len(rule.warm_ups) > 1
            chosen = best(tried, name, batch) if choice else (rule.rates[0], rule.warm_ups[0])
            trials += [Trial("test", name, batch, *chosen, seed) for seed in study.seeds]
    return trials


def carried_out(study: Study, pool: ProcessPoolExecutor) -> list[Outcome]:
    """Run a study: first the tuning, then the evaluation on the test samples."""
    run = partial(outcome, study)
    tried = list(pool.map(run, candidates(study), chunksize=2))
    return tried + list(pool.map(run, finals(study, tried), chunksize=2))


def workers() -> ProcessPoolExecutor:
    """Return processes with one thread each, so that results do not depend on the cores."""
    os.environ |= dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")
    return ProcessPoolExecutor(WORKERS, mp_context=get_context("spawn"))
