"""Training that does not keep step: asynchronous SGD with parameter servers, and local SGD.

Asynchronous SGD: a worker computes a gradient, pushes it to the servers, a shard each, which apply it in
the order of arrival, and pulls the new weights; nobody waits for another worker. The staleness of a
gradient is how many updates its weights have missed when it is applied. Sources: Dean et al., "Large
scale distributed deep networks" (2012); Zhang et al., "Staleness-aware async-SGD" (2016).

Local SGD: every rank takes some steps alone, then all average their weights. Source: Lin et al., "Don't
use large mini-batches, use local SGD" (2020).
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lib_dlhpc.schedules.rounds import Schedule
from lib_dlhpc.simulate.events import finish_times
from lib_dlhpc.simulate.platform import platform
from lib_dlhpc.simulate.simulation import Process, Simulation
from lib_dlhpc.spec.errors import SpecError
from lib_dlhpc.spec.machine import Machine


@dataclass(frozen=True, eq=False)
class AsynchronousRun:
    """What came of an asynchronous run, update by update in the order in which server 0 applied them."""

    time: NDArray[np.float64]  # s at which it was applied
    worker: NDArray[np.int64]
    staleness: NDArray[np.int64]

    @property
    def histogram(self) -> NDArray[np.int64]:
        """How many updates were 0, 1, 2 ... updates stale."""
        return np.bincount(self.staleness)

    @property
    def rate(self) -> float:
        """Updates a second, from the start to the last."""
        return len(self.time) / float(self.time[-1])


def asynchronous_sgd(
    machine: Machine,
    workers: int,
    parameter_bytes: float,
    seconds: float,
    steps: int = 20,
    servers: int = 1,
    jitter: float = 0.0,
    speed: float | NDArray[np.float64] = 1.0,
    seed: int = 0,
) -> AsynchronousRun:
    """Let each worker take that many steps; workers and servers have a node and one device each.

    parameter_bytes: B of the gradients, and of the weights; each server holds an equal part. seconds:
    compute time of a step. jitter: its standard deviation over its mean. speed: of each worker, 1 is
    normal. Workers are ranks 0 .. workers - 1, servers the ranks after them; a server combines at the
    machine's memory bandwidth and sends the weights back in the order of arrival.
    """
    for name, value in (("workers", workers), ("servers", servers), ("steps", steps)):
        if value < 1:
            raise SpecError(f"{name} = {value!r}: expected a whole number, at least 1.")
    pace = np.ones(workers + servers)
    pace[:workers] = speed
    sim = Simulation(platform(machine, workers + servers, 1), pace)
    shard = parameter_bytes / servers
    compute = _compute_times(seconds, jitter, (workers, steps), seed)
    state = _Servers(sim, workers, servers, shard)
    for worker in range(workers):
        sim.start(_worker(state, worker, compute[worker].tolist()))
    sim.run()
    time, worker_of, staleness = zip(*state.applied, strict=True)
    return AsynchronousRun(np.array(time), np.array(worker_of), np.array(staleness))


def local_sgd(
    schedule: Schedule,
    machine: Machine,
    nodes: int,
    devices_per_node: int,
    seconds: float,
    local_steps: int,
    rounds: int = 1,
    jitter: float = 0.0,
    element_bytes: float = 4,
    seed: int = 0,
) -> NDArray[np.float64]:
    """Return when each rank is through with each averaging of the weights, in s, (rounds, ranks).

    schedule: the allreduce of the weights. seconds: compute time of one local step. jitter: its standard
    deviation over its mean; over several local steps it averages out, which is half of the gain.
    """
    ranks = nodes * devices_per_node
    compute = _compute_times(seconds, jitter, (rounds, local_steps, ranks), seed).sum(axis=1)
    ends = np.zeros((rounds, ranks))
    now = np.zeros(ranks)
    for number in range(rounds):
        sizes = (machine, nodes, devices_per_node, element_bytes)
        ends[number] = now = finish_times(schedule, *sizes, arrival=now + compute[number])
    return ends


def _compute_times(
    seconds: float, jitter: float, shape: tuple[int, ...], seed: int
) -> NDArray[np.float64]:
    """Normal about the mean, never below 0."""
    factor = np.random.default_rng(seed).normal(1.0, jitter, shape)
    return seconds * np.maximum(factor, 0.0)


class _Servers:
    """One shard each: when it is free again, and how many updates it has seen."""

    def __init__(self, sim: Simulation, workers: int, servers: int, shard: float) -> None:
        self.sim, self.ranks, self.shard = sim, range(workers, workers + servers), shard
        self.free = dict.fromkeys(self.ranks, 0.0)
        self.version = dict.fromkeys(self.ranks, 0)
        self.applied: list[tuple[float, int, int]] = []  # by the first server


def _worker(state: _Servers, worker: int, compute: list[float]) -> Process:
    sim = state.sim
    read = dict.fromkeys(state.ranks, 0)  # the version of each shard that the worker has
    for seconds in compute:
        yield sim.compute(worker, seconds)
        done = [sim.env.process(_shard(state, worker, server, read)) for server in state.ranks]
        yield from done


def _shard(state: _Servers, worker: int, server: int, read: dict[int, int]) -> Process:
    """Push one shard of the gradient, have it applied, pull the weights."""
    sim = state.sim
    (push,) = sim.messages(worker, server, state.shard)
    yield sim.send(push)
    begin = max(sim.env.now, state.free[server])
    state.free[server] = begin + state.shard * sim.platform.gamma
    yield sim.until(state.free[server])
    if server == state.ranks[0]:
        state.applied.append((sim.env.now, worker, state.version[server] - read[server]))
    state.version[server] += 1
    read[server] = state.version[server]
    (pull,) = sim.messages(server, worker, state.shard)
    yield sim.send(pull)
