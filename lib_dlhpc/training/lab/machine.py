"""A step played on a machine of the learner's own: the numbers are real, the clock is the machine's.

Ranks are emulated; their gradients are computed and summed. What each layer takes, and each sum on a ring,
is what the machine's description says: the same that a simulation of the experiment reckons with.
"""

from typing import Any, NamedTuple

import numpy as np

from lib_dlhpc.costs.compute import layer_times, update_time
from lib_dlhpc.costs.network import network_of
from lib_dlhpc.schedules import price, schedule
from lib_dlhpc.spec.experiment import Experiment, read_experiment
from lib_dlhpc.timeline import Timeline, exposed, from_rows
from lib_dlhpc.training.data import load
from lib_dlhpc.training.lab.ranks import Post, emulate
from lib_dlhpc.training.lab.step import Step
from lib_dlhpc.training.lab.watch import Noted, WatchedNetwork, seen, step_rows
from lib_dlhpc.training.layers.kept import Array
from lib_dlhpc.training.loss import softmax_cross_entropy

RANKS, BATCH, RATE = 4, 32, 0.05  # BATCH: samples of a rank


class Watched(NamedTuple):
    """What was seen of one step on all ranks."""

    timeline: Timeline
    posts: list[list[Post]]  # of each rank
    places: list[list[Any]]  # which gradients each post sent: (first, one past last), or None
    size: int  # gradients in all


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
    # Bytes alone take `ratio` of backward, so all but the last bucket can hide, and latency decides how many.
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
    """Return the seconds that a sum of `size` bytes takes on a ring of the machine's ranks."""
    ranks = int(experiment.devices)
    plan = schedule("ring", ranks, ranks)
    return price(plan, network=network_of(experiment), itemsize=size / ranks).total  # type: ignore[arg-type]


def watch(step: Step, experiment: Experiment, seed: int = 0) -> Watched:
    """Play one step on the machine, equal shares. Raises LabError: see `emulate`."""
    batch, ranks = int(experiment.strategy.batch), int(experiment.devices)
    times = layer_times(experiment.model, experiment.machine.device, batch, "fp64")
    update = float(update_time(experiment.model, experiment.machine.device, "sgd"))
    forward, samples = float(times.forward.sum()), _samples(experiment, seed, ranks)

    def program(comm: Any) -> Any:
        network = WatchedNetwork(experiment.model, seed, comm, forward, times.backward)
        step(network, softmax_cross_entropy, *samples[comm.rank], comm, RATE)
        return step_rows(network, comm, update), *seen(network, comm)

    told = emulate(ranks, program, lambda size: sum_seconds(experiment, size))
    return _together(told, experiment)


def watch_here(step: Step, experiment: Experiment, comm: Any, seed: int = 0) -> Watched | None:
    """Do one step on the real ranks of `comm`, by their own clocks; return what was seen on rank 0."""
    mine, told = _samples(experiment, seed, comm.size)[comm.rank], None
    for _ in range(2):  # the first one sets up connections and memory
        noted = Noted(comm)
        network = WatchedNetwork(experiment.model, seed, noted)
        comm.Barrier()
        step(network, softmax_cross_entropy, *mine, noted, RATE)
        told = comm.gather((step_rows(network, noted), *seen(network, noted)))
    return None if told is None else _together(told, experiment)


def _samples(experiment: Experiment, seed: int, ranks: int) -> list[tuple[Array, Array]]:
    """Return equal shares of a global batch of digits."""
    data, batch = load(experiment, np.float64), int(experiment.strategy.batch)
    order = np.resize(np.random.default_rng(seed).permutation(len(data.x)), (ranks, batch))
    return [(data.x[mine], data.y[mine]) for mine in order]


def _together(told: Any, experiment: Experiment) -> Watched:
    rows, posts, places = zip(*told, strict=True)
    zero = min(row.start for part in rows for row in part)
    every = [
        row._replace(start=row.start - zero, stop=row.stop - zero) for part in rows for row in part
    ]
    table = from_rows(every, len(rows), "recorded").sorted()
    return Watched(table, list(posts), list(places), experiment.model.parameters)


def hidden_share(timeline: Timeline) -> float:
    """Return which part of the time that ranks exchange they compute as well, 0 to 1; 1 without exchange."""
    talk = timeline.where("communication")
    if not talk.any():
        return 1.0
    alone = exposed(timeline).sum()
    only_talk = exposed(timeline.select(talk)).sum()
    return float(np.clip(1 - alone / only_talk, 0.0, 1.0))


def seconds_of(timeline: Timeline) -> float:
    """Return how long the step took, to the end of the slowest rank's."""
    return float(timeline.stop.max() - timeline.start.min())
