"""When the updates of training come: to parameter servers, or as averages of a ring, simulated and predicted.

All GPUs compute as fast but one, worker 0, which takes `slow` times as long. Each has a node of its own.
"""

from functools import lru_cache
from typing import Any

import numpy as np

from lib_dlhpc.arrays import Floats
from lib_dlhpc.costs import network_of
from lib_dlhpc.explore.data_parallel.buckets import goyal
from lib_dlhpc.prediction import predict
from lib_dlhpc.schedules import schedule
from lib_dlhpc.simulation import AsynchronousRun, asynchronous_sgd, rounds
from lib_dlhpc.spec.experiment import Experiment

STEPS = 38  # of a worker
SEED = 2  # of the jitter


@lru_cache(maxsize=256)
def served(workers: int = 8, servers: int = 2, slow: float = 1.0) -> AsynchronousRun:
    """Return the asynchronous run: gradients as they come, each applied by servers that share the weights."""
    machine = goyal().machine
    return asynchronous_sgd(
        machine,
        workers,
        gradient_bytes(),
        seconds=1.0,
        steps=STEPS,
        servers=servers,
        jitter=float(machine.jitter),
        speed=1 / step_seconds(workers, slow),
        seed=SEED,
    )


@lru_cache(maxsize=256)
def averaged(workers: int, slow: float, local_steps: int) -> Floats:
    """Return when each average of all workers is done, in s: some local steps, then a ring allreduce.

    The allreduce follows the computation, nothing is hidden, so that one local step is synchronous
    training.
    """
    count, jitter = STEPS // local_steps + 1, float(goyal().machine.jitter)
    drawn = np.random.default_rng(SEED).normal(1.0, jitter, (count, local_steps, workers))
    compute = np.maximum(drawn, 0.0).sum(axis=1) * step_seconds(workers, slow)
    if workers == 1:
        return np.cumsum(compute[:, 0])
    network = network_of(one_gpu_a_node(workers))
    program, block = rounds.program(schedule("ring", workers, workers)), gradient_bytes() / workers
    ends, now = np.zeros(count), np.zeros(workers)
    for number in range(count):
        now = rounds.finish_times(program, network, block, now + compute[number])
        ends[number] = now.max()
    return ends


def predicted(workers: int, servers: int, local_steps: int) -> list[float]:
    """Return the gradients a second of the three ways, in the order of race.courses, all workers being equal."""
    base = one_gpu_a_node(workers)
    ways: list[dict[str, Any]] = [
        {},
        {"strategy.update": "asynchronous", "strategy.servers": servers},
        {"strategy.update": "local", "strategy.local_steps": local_steps},
    ]
    batch = int(base.strategy.batch)
    return [float(predict(base.set(way)).throughput) / batch for way in ways]


def one_gpu_a_node(workers: int) -> Experiment:
    """Return the run on one GPU of each of `workers` nodes, its ring not overlapped and all gradients in one bucket."""
    alone = {"devices_per_node": 1, "allreduce": "ring", "overlap": False, "bucket": 1e9}
    return goyal().set({f"strategy.{k}": v for k, v in {"nodes": workers, **alone}.items()})


def step_seconds(workers: int, slow: float) -> Floats:
    """Return the compute time of a step of each worker."""
    return float(predict(goyal(0.0)).compute) * np.array([slow] + [1.0] * (workers - 1))


def gradient_bytes() -> float:
    """Return the bytes of one gradient, and of the weights."""
    return 4.0 * float(goyal().model.parameters)
