"""A step simulated on a learner's own machine: the numbers are real, the clock is the machine model's.

Ranks are emulated; their gradients are computed and allreduced. The time of each layer and of each ring allreduce
comes from the machine description, as in a simulation of the experiment.
"""

from typing import Any, NamedTuple

import numpy as np

from lib_dlhpc.costs.network import network_of
from lib_dlhpc.costs.roofline import layer_times, update_time
from lib_dlhpc.labs.emulated.data_parallel_step import Step
from lib_dlhpc.labs.emulated.ranks import Post, emulate
from lib_dlhpc.labs.emulated.recording import Noted, WatchedNetwork, seen, step_rows
from lib_dlhpc.layers.base.saved import Array
from lib_dlhpc.schedules import price, schedule
from lib_dlhpc.spec.experiment import Experiment, read_experiment
from lib_dlhpc.timeline import Timeline, exposed, from_rows
from lib_dlhpc.training.data import load
from lib_dlhpc.training.loss import softmax_cross_entropy

RANKS, BATCH, RATE = 4, 32, 0.05  # BATCH: samples of a rank


class Watched(NamedTuple):
    """The record of one step on all ranks."""

    timeline: Timeline
    posts: list[list[Post]]  # of each rank
    # The gradients that each allreduce sent: (first, one past the last), or None.
    places: list[list[Any]]
    size: int  # number of gradients


def machine_of(seed: int) -> Experiment:
    """Return the learner's network and machine: four ranks whose links are slow enough to matter."""
    rng = np.random.default_rng(seed)
    width, hidden = int(rng.integers(18, 27)) * 4, int(rng.integers(8, 12))
    latency, ratio = float(f"{rng.integers(5, 16)}e-6"), float(rng.uniform(0.5, 0.8))
    base = {
        "model": {"family": "mlp", "widths": [64, *[width] * hidden, 10]},
        "dataset": {"name": "digits"},
        "machine": {"name": "laptop", "jitter": 0.0},
        "strategy": {
            "nodes": 1,
            "devices_per_node": RANKS,
            "batch": BATCH,
            "precision": "fp64",
            "optimizer": "sgd",
            "allreduce": "ring",
        },
    }
    experiment = read_experiment(base)
    # Transfer takes `ratio` of backward, so all but the last bucket can overlap; latency limits the number of buckets.
    backward = layer_times(
        experiment.model, experiment.machine.device, BATCH, "fp64"
    ).backward.sum()
    moved = 2 * (RANKS - 1) / RANKS * 8 * experiment.model.parameters
    bandwidth = float(f"{moved / (ratio * backward):.2g}")
    link = {"latency": latency, "bandwidth": bandwidth, "efficiency": 1.0}
    return read_experiment(
        base | {"machine": {"name": "laptop", "jitter": 0.0, "intra_node": link}}
    )


def sum_seconds(experiment: Experiment, size: float) -> float:
    """Return the seconds of a ring allreduce of `size` bytes over the machine's ranks."""
    ranks = int(experiment.devices)
    plan = schedule("ring", ranks, ranks)
    return price(plan, network=network_of(experiment), itemsize=size / ranks).total  # type: ignore[arg-type]


def watch(step: Step, experiment: Experiment, seed: int = 0) -> Watched:
    """Simulate one step on the machine, with equal batches. Raises LabError: see `emulate`."""
    batch, ranks = int(experiment.strategy.batch), int(experiment.devices)
    times = layer_times(experiment.model, experiment.machine.device, batch, "fp64")
    update = float(update_time(experiment.model, experiment.machine.device, "sgd"))
    forward, samples = float(times.forward.sum()), _samples(experiment, seed, ranks)

    def program(comm: Any) -> Any:
        network = WatchedNetwork(experiment.model, seed, comm, forward, times.backward)
        step(network, softmax_cross_entropy, *samples[comm.rank], comm, RATE)
        return step_rows(network, comm, update), *seen(network, comm)

    results = emulate(ranks, program, lambda size: sum_seconds(experiment, size))
    return _joined(results, experiment)


def watch_here(step: Step, experiment: Experiment, comm: Any, seed: int = 0) -> Watched | None:
    """Run one step on the real ranks of `comm`, by their own clocks; return the record on rank 0."""
    mine, results = _samples(experiment, seed, comm.size)[comm.rank], None
    for _ in range(2):  # the first one sets up connections and memory
        noted = Noted(comm)
        network = WatchedNetwork(experiment.model, seed, noted)
        comm.Barrier()
        step(network, softmax_cross_entropy, *mine, noted, RATE)
        results = comm.gather((step_rows(network, noted), *seen(network, noted)))
    return None if results is None else _joined(results, experiment)


def _samples(experiment: Experiment, seed: int, ranks: int) -> list[tuple[Array, Array]]:
    """Return equal shares of a global batch of digits."""
    data, batch = load(experiment, np.float64), int(experiment.strategy.batch)
    order = np.resize(np.random.default_rng(seed).permutation(len(data.x)), (ranks, batch))
    return [(data.x[mine], data.y[mine]) for mine in order]


def _joined(results: Any, experiment: Experiment) -> Watched:
    rows, posts, places = zip(*results, strict=True)
    zero = min(row.start for part in rows for row in part)
    every = [
        row._replace(start=row.start - zero, stop=row.stop - zero) for part in rows for row in part
    ]
    table = from_rows(every, len(rows), "recorded").sorted()
    return Watched(table, list(posts), list(places), experiment.model.parameters)


def hidden_share(timeline: Timeline) -> float:
    """Return the fraction of communication that is overlapped by computation; 1 without communication."""
    communication = timeline.where("communication")
    if not communication.any():
        return 1.0
    exposed_seconds = exposed(timeline).sum()
    communicating = exposed(timeline.select(communication)).sum()
    return float(np.clip(1 - exposed_seconds / communicating, 0.0, 1.0))


def seconds_of(timeline: Timeline) -> float:
    """Return the duration of the step on the slowest rank."""
    return float(timeline.stop.max() - timeline.start.min())
