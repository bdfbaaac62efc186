"""predict(experiment): where the time of a step goes, what it holds in memory, what the run costs."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from lib_dlhpc.predict import compute, energy, memory, overlap, storage, stragglers
from lib_dlhpc.predict.collectives import ALGORITHMS, Cost
from lib_dlhpc.predict.network import last_axis, network_of
from lib_dlhpc.spec.errors import SpecError
from lib_dlhpc.spec.experiment import Experiment


@dataclass(frozen=True)
class Breakdown:
    """One step and one run, predicted. Seconds, bytes, joules; every value may be an array."""

    experiment: Experiment
    compute_scale: Any  # measured over roofline compute time; 1 without calibration
    forward: Any
    backward: Any
    update: Any
    straggler_wait: Any  # for the slowest of all devices
    communication: Cost  # all buckets of a step, hidden or not, by cause
    exposed_communication: Any
    input_time: Any
    input_stall: Any
    checkpoint: Any  # amortised over the steps between two checkpoints
    step_time: Any
    start_time: Any
    memory: dict[str, Any]
    energy: dict[str, Any]  # of one step

    pipeline_bubble: Any = 0.0  # data parallelism has none

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
    def memory_total(self) -> Any:
        """Peak bytes on one device."""
        return sum(self.memory.values())

    @property
    def fits(self) -> Any:
        """Whether the ledger stays within the device's memory."""
        return self.memory_total <= self.experiment.machine.device.memory

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
        """Joules of the whole run."""
        return self.steps * sum(self.energy.values())

    @property
    def device_hours(self) -> Any:
        """Cost of the run in hours of one device."""
        return self.experiment.devices * self.time_to_train / 3600

    @property
    def walls(self) -> list[str]:
        """One sentence for each limit that the run breaks, with by how much (scalar experiments)."""
        from lib_dlhpc.predict.walls import walls_hit

        return walls_hit(self)


def predict(experiment: Experiment) -> Breakdown:
    """Predict one training step and the whole run in closed form, for synchronous data parallelism.

    Fields of the experiment may be arrays: everything broadcasts, scalars give scalars.
    Raises SpecError where the device lacks the precision or a split is not modelled.
    """
    return breakdown(experiment, compute_scale(experiment))


def breakdown(experiment: Experiment, scale: Any) -> Breakdown:
    """Predict with the roofline's compute time multiplied by `scale` (see compute_scale)."""
    _check(experiment)
    strategy, run = experiment.strategy, experiment.run
    work = _device_work(experiment, scale)
    slowest = stragglers.slowest(experiment.devices, experiment.machine.jitter)
    cost, exposed = _exchange(experiment, work, slowest)
    update = scale * compute.update_time(
        experiment.model, experiment.machine.device, strategy.optimizer
    )
    busy = work.forward + work.backward + update
    training = busy * slowest + exposed
    fetch = storage.input_time(experiment)
    stall = np.maximum(fetch - training, 0.0)
    step = training + stall
    interval = run.checkpoint_interval
    often = 1 / np.where(np.equal(interval, 0), np.inf, interval)[()]
    saving = step * storage.checkpoint_time(experiment) * often
    return Breakdown(
        experiment=experiment,
        compute_scale=scale,
        forward=work.forward,
        backward=work.backward,
        update=update,
        straggler_wait=busy * (slowest - 1),
        communication=cost,
        exposed_communication=exposed,
        input_time=fetch,
        input_stall=stall,
        checkpoint=saving,
        step_time=step + saving,
        start_time=storage.start_time(experiment),
        memory=memory.ledger(experiment),
        energy=energy.step_energy(experiment, busy, exposed, step + saving),
    )


def compute_scale(experiment: Experiment) -> Any:
    """Return measured over roofline compute time, from the rate in [calibration]; 1.0 without one.

    The measured step of `devices` devices may already hold some waiting and some exposed exchange. A
    step takes max_k (s w (forward + r_k + update) + C_k), with w the factor of the slowest, r_k the time
    bucket k is ready and C_k the cost of it and all after it; each line solved for s, the smallest s
    meets the measurement exactly.
    """
    measured = experiment.calibration
    if not np.any(measured.rate):
        return 1.0
    small = _at_calibration(experiment)
    work = _device_work(small, 1.0)
    update = compute.update_time(small.model, small.machine.device, small.strategy.optimizer)
    target = small.global_batch / np.where(np.equal(measured.rate, 0), np.nan, measured.rate)
    slowest = stragglers.slowest(measured.devices, small.machine.jitter)
    alone = target / (work.forward + work.backward + update) / slowest
    cost = _bucket_costs(small, work)
    if small.strategy.overlap:
        remaining = np.cumsum(cost[..., ::-1], axis=-1)[..., ::-1]
        busy = last_axis(work.forward) + work.ready + last_axis(update)
        lines = (last_axis(target) - remaining) / busy / last_axis(slowest)
        scale = np.minimum(alone, lines.min(axis=-1))
    else:
        scale = alone * (target - cost.sum(axis=-1)) / target
    if np.any(np.less_equal(scale, 0)):
        raise SpecError(
            f"calibration.rate = {measured.rate} samples/s on {measured.devices} devices: the exchange alone"
            f" takes longer than that step; check the rate, the devices and the links."
        )
    return np.where(np.equal(measured.rate, 0), 1.0, scale)[()]


@dataclass(frozen=True)
class _Work:
    """Seconds of one device's forward and backward, and when its gradient buckets are ready."""

    forward: Any
    backward: Any
    ready: Any
    sizes: Any


def _device_work(experiment: Experiment, scale: Any) -> _Work:
    """Price the layers once for each distinct batch: sweeps repeat few of them many times."""
    strategy, model = experiment.strategy, experiment.model
    batch, inverse = strategy.batch, None
    device = experiment.machine.device
    others = (strategy.bucket, *(value for key, value in vars(device).items() if key != "peak"))
    if isinstance(batch, np.ndarray) and batch.size > 64 and not any(map(np.ndim, others)):
        batch, inverse = np.unique(batch, return_inverse=True)
    times = compute.layer_times(model, device, batch, strategy.precision)
    cut = overlap.buckets(model, strategy.bucket, compute.BYTES[strategy.precision])
    forward, backward = times.forward.sum(axis=-1), times.backward.sum(axis=-1)
    ready = overlap.ready_times(times.backward, cut.last_layer)
    if inverse is not None:
        at = inverse.reshape(strategy.batch.shape)
        forward, backward, ready = forward[at], backward[at], ready[at]
    return _Work(scale * forward, scale * backward, last_axis(scale) * ready, cut.sizes)


def _bucket_costs(experiment: Experiment, work: _Work) -> Any:
    cost = ALGORITHMS[experiment.strategy.allreduce](work.sizes, network_of(experiment)).total
    return cost * (work.sizes > 0)


def _exchange(experiment: Experiment, work: _Work, slowest: Any) -> tuple[Cost, Any]:
    """Return the cost of all buckets by cause, and the part of it that backward does not hide."""
    cost = ALGORITHMS[experiment.strategy.allreduce](work.sizes, network_of(experiment))
    terms = [term * (work.sizes > 0) for term in cost]
    total = Cost(*(term.sum(axis=-1) for term in terms))
    if not experiment.strategy.overlap:
        return total, total.total
    return total, overlap.exposed_time(
        work.ready * last_axis(slowest), sum(terms), work.backward * slowest
    )


def _at_calibration(experiment: Experiment) -> Experiment:
    """Return the experiment as it was when the calibration was measured."""
    measured = experiment.calibration
    per_node = np.minimum(measured.devices, experiment.devices_per_node)
    if np.any(np.mod(measured.devices, per_node)):
        raise SpecError(
            f"calibration.devices = {measured.devices}: legal: up to {per_node}, or a multiple of it (whole nodes)."
        )
    batch: Any = np.where(np.equal(measured.batch, 0), experiment.strategy.batch, measured.batch)
    strategy = replace(
        experiment.strategy,
        nodes=measured.devices // per_node,
        devices_per_node=per_node,
        batch=batch[()],
    )
    return replace(experiment, strategy=strategy)


def _check(experiment: Experiment) -> None:
    strategy, device = experiment.strategy, experiment.machine.device
    for name in ("tensor", "pipeline", "spatial"):
        if np.any(np.not_equal(getattr(strategy, name), 1)):
            raise SpecError(
                f"strategy.{name} = {getattr(strategy, name)}: not modelled yet; predict knows data parallelism,"
                f" so the legal value is 1."
            )
    if np.any(np.isnan(compute.peak_rate(device, strategy.precision))):
        raise SpecError(
            f"strategy.precision = {strategy.precision!r}: {device.name or 'the device'} has no such peak;"
            f" legal here: {', '.join(device.peak)}."
        )
