"""Lab 4's machine: a learner's own network, links and batch, on which pipelines are simulated."""

from functools import cache

import numpy as np

from lib_dlhpc.costs.roofline import layer_times
from lib_dlhpc.labs.findings import seed_of
from lib_dlhpc.schedules import PIPELINES
from lib_dlhpc.schedules.pipeline import Pipeline
from lib_dlhpc.simulation.pipeline import simulate_pipeline
from lib_dlhpc.spec.experiment import Experiment, read_experiment
from lib_dlhpc.timeline import Timeline

RANKS = 4


@cache
def experiment_of(name: str) -> Experiment:
    """Return the learner's own network, machine and batch: four nodes with a device each."""
    rng = np.random.default_rng(seed_of(name))
    width, batch = int(rng.integers(30, 61)) * 8, int(rng.choice([120, 144, 168, 180, 240]))
    latency, bandwidth = float(f"{rng.integers(10, 41)}e-6"), float(f"{rng.uniform(1, 4):.2g}e9")
    link = {"latency": latency, "bandwidth": bandwidth, "efficiency": 1.0}
    machine = {"name": "laptop", "jitter": 0.0, "nodes": RANKS, "inter_node": link}
    return read_experiment(
        {
            "model": {"family": "mlp", "widths": [width] * (2 * RANKS + 1)},
            "dataset": {"name": "digits"},
            "machine": machine | {"devices_per_node": 1},
            "strategy": {
                "nodes": RANKS,
                "devices_per_node": 1,
                "batch": batch,
                "precision": "fp64",
            },
        }
    )


def choices(name: str) -> list[int]:
    """Return the numbers of microbatches that cut the learner's batch evenly."""
    batch = int(experiment_of(name).strategy.batch)
    return [m for m in range(1, batch + 1) if batch % m == 0]


def simulated_on(pipeline: Pipeline, name: str) -> Timeline:
    """Return the timeline of a pipeline on the learner's machine."""
    experiment, many = experiment_of(name), pipeline.microbatches
    batch = int(experiment.strategy.batch)
    times = layer_times(experiment.model, experiment.machine.device, batch // many, "fp64")
    cut = np.array_split(np.arange(len(experiment.model.layers)), RANKS)
    ahead, back = ([each[part].sum() for part in cut] for each in times)
    size = 8 * experiment.model.input_shape[0] * (batch // many)
    return simulate_pipeline(pipeline, experiment.machine, RANKS, 1, ahead, back, size)


def seconds(pipeline: Pipeline, name: str) -> float:
    """Return how long a pipeline takes on the learner's machine."""
    return float(simulated_on(pipeline, name).stop.max())


@cache
def best(name: str) -> float:
    """Return the seconds of the best 1F1B that the simulation finds, over numbers of microbatches."""
    return min(seconds(PIPELINES["1f1b"](RANKS, m), name) for m in choices(name))


def one_device(name: str) -> float:
    """Return the seconds of the whole network on one device of the machine, if it fits."""
    own = experiment_of(name)
    times = layer_times(own.model, own.machine.device, int(own.strategy.batch), "fp64")
    return float(times.forward.sum() + times.backward.sum())
