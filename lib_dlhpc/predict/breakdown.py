"""predict(experiment): where the time of a step goes, what it holds in memory, what the run costs."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from lib_dlhpc.costs import calibration, compute, stragglers
from lib_dlhpc.costs.input import input_time, start_time
from lib_dlhpc.costs.network import last_axis, network_of
from lib_dlhpc.costs.work import Work, check, device_work
from lib_dlhpc.predict import asynchronous, energy, memory, overlap, storage
from lib_dlhpc.predict.collectives import ALGORITHMS, Cost
from lib_dlhpc.spec.experiment import Experiment


@dataclass(frozen=True)
class Breakdown:
    """One step and one run, predicted. Seconds, bytes, joules; every value may be an array.

    A step is one of every device: with asynchronous updates, the time in which each makes one.
    """

    experiment: Experiment
    compute_scale: Any  # measured over roofline compute time; 1 without calibration
    forward: Any
    backward: Any
    update: Any
    straggler_wait: Any  # for the slowest of all devices
    communication: Cost  # all of a step, hidden or not, by cause; also the queue for the servers
    exposed_communication: Any
    input_time: Any
    input_stall: Any
    checkpoint: Any  # amortised over the steps between two checkpoints
    step_time: Any
    start_time: Any
    memory: dict[str, Any]
    energy: dict[str, Any]  # of one step

    pipeline_bubble: Any = 0.0  # data parallelism has none
    server_load: Any = 0.0  # share of the time in which the slowest station of the servers is busy

    @property
    def compute(self) -> Any:
        """Seconds of arithmetic in a step: forward, backward and update."""
        return self.forward + self.backward + self.update

    @property
    def terms(self) -> dict[str, Any]:
        """The seconds of a step by cause; they add up to step_time."""
        return {
            "forward": self.forward,
            "backward": self.backward,
            "update": self.update,
            "waiting for the slowest": self.straggler_wait,
            "exposed communication": self.exposed_communication,
            "pipeline bubble": self.pipeline_bubble,
            "input stall": self.input_stall,
            "checkpoint": self.checkpoint,
        }

    @property
    def step_time_bounds(self) -> tuple[Any, Any]:
        """Lower and upper bound of step_time: everything hidden that can be, and nothing hidden."""
        slowest = self.compute + self.straggler_wait
        busy = np.maximum(slowest, self.communication.total)
        return (
            np.maximum(busy, self.input_time) + self.checkpoint,
            slowest + self.communication.total + self.input_time + self.checkpoint,
        )

    @property
    def throughput(self) -> Any:
        """Samples per second of the whole run, checkpoints included."""
        return self.experiment.global_batch / self.step_time

    @property
    def efficiency(self) -> Any:
        """Fraction of a step in which the devices compute: throughput over that of as many lone devices."""
        return self.compute / self.step_time

    @property
    def speedup(self) -> Any:
        """Throughput over that of one device with the same batch and nothing to wait for."""
        return self.efficiency * self.experiment.devices

    @property
    def staleness(self) -> Any:
        """Expected updates that the weights have missed when a gradient made with them is applied."""
        others = self.experiment.devices - 1
        return others if self.experiment.strategy.update == "asynchronous" else 0 * others

    @property
    def memory_total(self) -> Any:
        """Peak bytes on one device."""
        return sum(self.memory.values())

    @property
    def fits(self) -> Any:
        """Whether the ledger stays within the device's memory, and a server's part within that of its own."""
        needed = np.maximum(self.memory_total, memory.server_bytes(self.experiment))
        return (needed <= self.experiment.machine.device.memory)[()]

    @property
    def steps(self) -> Any:
        """Optimiser steps of the run; the last one may be short."""
        run, dataset = self.experiment.run, self.experiment.dataset
        return np.ceil(dataset.samples * run.epochs / self.experiment.global_batch)

    @property
    def time_to_train(self) -> Any:
        """Seconds from start to end of the run."""
        return self.start_time + self.steps * self.step_time

    @property
    def energy_to_train(self) -> Any:
        """Joules of the whole run, the wait for the first step at idle power included."""
        machine = self.experiment.machine
        servers = self.experiment.servers
        waiting = (self.experiment.devices + servers) * machine.device.idle_power
        waiting = waiting + (self.experiment.strategy.nodes + servers) * machine.node_power
        return self.steps * sum(self.energy.values()) + self.start_time * waiting * machine.pue

    @property
    def device_hours(self) -> Any:
        """Cost of the run in hours of one device, those of the servers included."""
        devices = self.experiment.devices + self.experiment.servers
        return devices * self.time_to_train / 3600

    @property
    def walls(self) -> list[str]:
        """One sentence for each limit that the run breaks, with by how much (scalar experiments)."""
        from lib_dlhpc.predict.walls import walls_hit

        return walls_hit(self)


def predict(experiment: Experiment) -> Breakdown:
    """Predict one training step and the whole run of data parallelism in closed form.

    Fields of the experiment may be arrays: everything broadcasts, scalars give scalars.
    Raises SpecError where the device lacks the precision or a split is not modelled.
    """
    return breakdown(experiment, compute_scale(experiment))


def breakdown(experiment: Experiment, scale: Any) -> Breakdown:
    """Predict with the roofline's compute time multiplied by `scale` (see compute_scale)."""
    check(experiment)
    strategy, run = experiment.strategy, experiment.run
    work = device_work(experiment, scale)
    update = scale * compute.update_time(
        experiment.model, experiment.machine.device, strategy.optimizer
    )
    follow = _on_servers if strategy.update == "asynchronous" else _on_devices
    update, waiting, cost, exposed, load = follow(experiment, work, update)
    training = work.forward + work.backward + update + waiting + exposed
    fetch, every = input_time(experiment), strategy.local_steps
    late = fetch - (
        training - exposed
    )  # in a step without exchange; one in `every` steps has all of it
    stall = (every - 1) * np.maximum(late, 0.0) + np.maximum(late - every * exposed, 0.0)
    stall = stall / every
    step = training + stall
    interval = run.checkpoint_interval
    often = 1 / np.where(np.equal(interval, 0), np.inf, interval)[()]
    saving = step * storage.checkpoint_time(experiment) * often
    served = update * (strategy.update == "asynchronous")
    busy = work.forward + work.backward + update - served
    return Breakdown(
        experiment=experiment,
        compute_scale=scale,
        forward=work.forward,
        backward=work.backward,
        update=update,
        straggler_wait=waiting,
        communication=cost,
        exposed_communication=exposed,
        input_time=fetch,
        input_stall=stall,
        checkpoint=saving,
        step_time=step + saving,
        start_time=start_time(experiment),
        memory=memory.ledger(experiment),
        energy=energy.step_energy(experiment, busy, exposed, step + saving, served),
        server_load=load * training / (step + saving),
    )


def compute_scale(experiment: Experiment) -> Any:
    """Return measured over roofline compute time, from the rate in [calibration]; 1.0 without one."""
    return calibration.compute_scale(experiment, _bucket_costs)


def _bucket_costs(experiment: Experiment, work: Work) -> Any:
    """Return the seconds on the network of each bucket, shape (..., buckets)."""
    cost = ALGORITHMS[experiment.strategy.allreduce](work.sizes, network_of(experiment)).total
    return cost * (work.sizes > 0)


def _on_devices(experiment: Experiment, work: Work, update: Any) -> tuple[Any, Any, Cost, Any, Any]:
    """Return update, waiting, cost and exposed part of the exchange, load of servers: every device updates.

    Local updates are averaged once in local_steps steps, after backward and update (Lin et al. 2020,
    "Don't use large mini-batches, use local SGD"): a step has its share of that, none of it hidden.
    """
    strategy = experiment.strategy
    every = strategy.local_steps
    slowest = stragglers.slowest(experiment.devices, experiment.machine.jitter, every)
    busy = work.forward + work.backward + update
    cost, exposed = _exchange(experiment, work, slowest)
    cost = Cost(*(term / every for term in cost))
    return update, busy * (slowest - 1), cost, exposed / every, 0.0


def _on_servers(experiment: Experiment, work: Work, update: Any) -> tuple[Any, Any, Cost, Any, Any]:
    """Return the same for asynchronous updates: the servers update, and few wait for the slowest."""
    priced = asynchronous.service(experiment, update)
    jitter, ahead = experiment.machine.jitter, experiment.strategy.staleness
    busy = work.forward + work.backward
    own = busy + priced.update + priced.transfer.total
    waiting = stragglers.bounded_wait(busy, own, experiment.devices, jitter, ahead)
    queue = priced.waiting(own + waiting, experiment.devices)
    latency, bandwidth, reduction = priced.transfer
    cost = Cost(latency, bandwidth + queue, reduction)
    load = experiment.devices * priced.station / (own + waiting + queue)
    return priced.update, waiting, cost, cost.total, load


def _exchange(experiment: Experiment, work: Work, slowest: Any) -> tuple[Cost, Any]:
    """Return the cost of all buckets by cause, and the part of it that backward does not hide."""
    cost = ALGORITHMS[experiment.strategy.allreduce](work.sizes, network_of(experiment))
    terms = [term * (work.sizes > 0) for term in cost]
    total = Cost(*(term.sum(axis=-1) for term in terms))
    if not experiment.strategy.overlaps:
        return total, total.total
    return total, overlap.exposed_time(
        work.ready * last_axis(slowest), sum(terms), work.backward * slowest
    )
