"""Asynchronous updates: devices push gradients to parameter servers and pull weights, none waits for another.

A worker computes a gradient and pushes it to the servers, a part each, one after another; the workers of
a node begin with the same server, those of the next node with the next, and push in turn. A server takes
one gradient at a time, in the order in which workers come, applies it, and sends the new weights back,
again to one worker at a time. The staleness of a gradient is how many updates its weights have missed
when it is applied. With a bound s a worker gets weights only when it is at most s steps ahead of the
slowest, so that no gradient misses more than (W - 1) (2 s + 1) updates of W workers. Sources: Dean et
al., "Large scale distributed deep networks" (2012); Zhang et al., "Staleness-aware async-SGD" (2016);
Ho et al., "More effective distributed ML via a stale synchronous parallel parameter server" (2013).

Workers are ranks 0 .. W - 1; the servers are nodes after theirs. With several servers, push, update
and pull times are those of the first one; a step ends when all parts are pulled.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import simpy
from numpy.typing import NDArray
from simpy.events import Event

from lib_dlhpc.arrays import Floats
from lib_dlhpc.costs.platform import Platform, platform
from lib_dlhpc.costs.roofline import BYTES
from lib_dlhpc.errors import check_counts
from lib_dlhpc.simulation.conditions import Conditions, StepProgress
from lib_dlhpc.simulation.simulation import Process, Simulation, Traffic
from lib_dlhpc.spec.experiment import Experiment
from lib_dlhpc.spec.machine import Machine


@dataclass(frozen=True, eq=False)
class AsynchronousRun:
    """Result of an asynchronous run, update by update in the order in which server 0 applied them."""

    time: Floats  # s at which it was applied
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


class Worker(NamedTuple):
    """A worker's seconds of a step, and those of an update of all parameters by one server."""

    forward: float
    backward: float
    update: float

    def computed(self, begin: Any, factor: Any) -> tuple[Any, Any]:
        """Return when forward and backward end; factor: of the compute time."""
        forward_end = begin + factor * self.forward
        return forward_end, forward_end + factor * self.backward


@dataclass(frozen=True, eq=False)
class ServedSteps:
    """When each worker does what: s, arrays of shape (steps, workers)."""

    start: Floats
    applying: Floats  # the first server begins to apply the gradient
    applied: Floats
    released: Floats  # and lets the worker have the weights
    pulled: Floats
    run: AsynchronousRun


def asynchronous_sgd(
    machine: Machine,
    workers: int,
    parameter_bytes: float,
    seconds: float,
    steps: int = 20,
    servers: int = 1,
    jitter: float = 0.0,
    speed: float | Floats = 1.0,
    seed: int = 0,
    staleness: int = 0,
) -> AsynchronousRun:
    """Let each worker take that many steps; workers and servers have a node and one device each.

    parameter_bytes: B of the gradients, and of the weights; each server holds an equal part and combines
    at the machine's memory bandwidth. seconds: compute time of a step. jitter: its standard deviation
    over its mean. speed: of each worker, 1 is normal. staleness: steps that a worker may be ahead of the
    slowest, 0 for any number. Raises SpecError for numbers that are too small.
    """
    check_counts(workers=workers, servers=servers, steps=steps)
    check_counts(0, staleness=staleness)
    on = platform(machine, workers + servers, 1)
    drawn = np.random.default_rng(seed).normal(1.0, jitter, (workers, steps))
    none = np.zeros((steps, workers))
    conditions = Conditions(
        np.maximum(drawn, 0.0).T / speed, none, np.zeros(steps), np.ones(workers)
    )
    worker = Worker(seconds, 0.0, parameter_bytes * on.gamma)
    servers_at = range(workers, on.ranks)
    return serve(conditions, worker, on, servers_at, parameter_bytes, staleness).run


def serve_experiment(
    experiment: Experiment,
    conditions: Conditions,
    worker: Worker,
    fidelity: str,
    background: Sequence[Traffic] = (),
    progress: StepProgress | None = None,
) -> ServedSteps:
    """Simulate the steps of an experiment; the servers are the nodes after those that train.

    fidelity: "rounds" knows no links but the NICs, "events" also those of the topology.
    """
    strategy, machine = experiment.strategy, experiment.calibrated_machine
    here = int(experiment.devices_per_node)
    if fidelity == "rounds":
        machine = replace(machine, topology="single-switch")
    on = platform(machine, int(strategy.nodes + strategy.servers), here)
    ranks = range(conditions.ranks, on.ranks, here)
    bound, more = int(strategy.staleness), (background, progress)
    return serve(conditions, worker, on, ranks, gradient_bytes(experiment), bound, *more)


def gradient_bytes(experiment: Experiment) -> float:
    """Return the bytes of a gradient, and of the weights."""
    return float(experiment.model.parameters * BYTES[experiment.strategy.precision])


def serve(
    conditions: Conditions,
    worker: Worker,
    on: Platform,
    servers: Sequence[int],
    parameter_bytes: float,
    staleness: int = 0,
    background: Sequence[Traffic] = (),
    progress: StepProgress | None = None,
) -> ServedSteps:
    """Simulate all steps of all workers with the servers at those ranks of the platform.

    Raises Cancelled when `progress` returns False.
    """
    sim = Simulation(on)
    sim.background(background)
    state = _Servers(sim, conditions, worker, servers, parameter_bytes / len(servers), staleness)
    for number in range(conditions.ranks):
        sim.start(_worker(state, number))
    total = 2 * len(servers) * conditions.factor.size
    if progress is None:
        sim.run()
    else:
        sim.run(lambda time, delivered: progress(time, delivered, total))
        progress(float(sim.env.now), sim.delivered, total)
    run = AsynchronousRun(*map(np.array, zip(*state.applied, strict=True)))
    start, applying, applied, released, pulled = state.clock
    return ServedSteps(start, applying, applied, released, pulled, run)


class _Servers:
    """What the servers know, each of its part: its updates, who has made how many, whom it holds back."""

    def __init__(
        self,
        sim: Simulation,
        conditions: Conditions,
        worker: Worker,
        ranks: Sequence[int],
        part: float,
        bound: int,
    ) -> None:
        self.sim, self.conditions, self.worker = sim, conditions, worker
        self.ranks, self.part, self.bound = ranks, part, bound
        self.clock = np.zeros((5, *conditions.factor.shape))  # as in ServedSteps
        self.update = worker.update / len(ranks)
        # The outgoing NIC of each node.
        self.port = [simpy.Resource(sim.env) for _ in range(sim.platform.nodes)]
        # One worker at a time to receive from, to update for and to send to.
        self.inbox, self.unit, self.outbox = (
            {rank: simpy.Resource(sim.env) for rank in ranks} for _ in range(3)
        )
        self.version = dict.fromkeys(ranks, 0)
        self.made = {rank: [0] * conditions.ranks for rank in ranks}
        self.held: dict[int, list[tuple[int, Event]]] = {rank: [] for rank in ranks}
        self.applied: list[tuple[float, int, int]] = []  # s, worker, staleness; by the first server

    def count(self, server: int, worker: int) -> None:
        """Record an update, and release workers that are no longer too far ahead."""
        self.version[server] += 1
        self.made[server][worker] += 1
        if self.held[server]:
            slowest, waiting = min(self.made[server]), self.held[server]
            self.held[server] = [worker for worker in waiting if worker[0] > slowest]
            for needed, event in waiting:
                if needed <= slowest:
                    event.succeed()

    def close_enough(self, server: int, worker: int) -> Event | None:
        """Return what a worker has to wait for if it is more than the bound ahead of the slowest."""
        needed = self.made[server][worker] - self.bound
        if not self.bound or needed <= min(self.made[server]):
            return None
        event = Event(self.sim.env)
        self.held[server].append((needed, event))
        return event


def _worker(state: _Servers, worker: int) -> Process:
    """What a worker does in all steps."""
    sim, conditions = state.sim, state.conditions
    start, _, _, _, pulled = state.clock
    node = worker // sim.platform.devices_per_node
    first = node % len(state.ranks)
    turn = [*state.ranks[first:], *state.ranks[:first]]
    read = dict.fromkeys(state.ranks, 0)  # the version of each part that the worker has
    begin = 0.0
    for step in range(conditions.steps):
        start[step, worker] = begin
        yield sim.until(float(state.worker.computed(begin, conditions.factor[step, worker])[1]))
        parts = []
        for server in turn:
            (push,) = sim.messages(worker, server, state.part)
            with state.port[node].request() as mine:
                yield mine
                with state.inbox[server].request() as free:
                    yield free
                    yield sim.send(push)
            parts.append(sim.env.process(_part(state, worker, step, server, read)))
        yield from parts
        pulled[step, worker] = end = sim.env.now
        _, ready = conditions.coming(step, begin, worker)
        begin = float(max(end + conditions.saving[step], ready))


def _part(state: _Servers, worker: int, step: int, server: int, read: dict[int, int]) -> Process:
    """Apply one part of a gradient and send the weights back."""
    sim, first = state.sim, server == state.ranks[0]
    with state.unit[server].request() as free:
        yield free
        applying = sim.env.now
        yield sim.until(applying + state.update)
    if first:
        missed = state.version[server] - read[server]
        state.applied.append((sim.env.now, worker, missed))
        state.clock[1:3, step, worker] = applying, sim.env.now
    state.count(server, worker)
    wait = state.close_enough(server, worker)
    if wait is not None:
        yield wait
    read[server] = state.version[server]
    if first:
        state.clock[3, step, worker] = sim.env.now
    with state.outbox[server].request() as free:
        yield free
        (pull,) = sim.messages(server, worker, state.part)
        yield sim.send(pull)
