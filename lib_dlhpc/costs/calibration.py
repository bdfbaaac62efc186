"""Calibration: by what factor a measured rate says that compute is slower than the roofline."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from lib_dlhpc.costs import compute, stragglers
from lib_dlhpc.costs.network import last_axis
from lib_dlhpc.costs.work import Work, device_work
from lib_dlhpc.spec.errors import SpecError
from lib_dlhpc.spec.experiment import Experiment


def compute_scale(experiment: Experiment, bucket_costs: Callable[[Experiment, Work], Any]) -> Any:
    """Return measured over roofline compute time: as [calibration] has it, or from its rate; else 1.0.

    bucket_costs(experiment, work): seconds on the network of each bucket, as the engine has them.
    The measured step of `devices` devices may already hold some waiting and some exposed exchange. A
    step takes max_k (s w (forward + r_k + update) + C_k), with w the factor of the slowest, r_k the time
    bucket k is ready and C_k the cost of it and all after it; each line solved for s, the smallest s
    meets the measurement exactly. With local updates a step holds its share of the exchange, not hidden.
    Raises SpecError where the rate cannot be, or says nothing of one device: several asynchronous ones.
    """
    measured = experiment.calibration
    if np.any(measured.compute_scale):
        given: Any = np.where(np.equal(measured.compute_scale, 0), 1.0, measured.compute_scale)
        return given[()]
    if not np.any(measured.rate):
        return 1.0
    small = _at_calibration(experiment)
    work = device_work(small, 1.0)
    update = compute.update_time(small.model, small.machine.device, small.strategy.optimizer)
    target = small.global_batch / np.where(np.equal(measured.rate, 0), np.nan, measured.rate)
    meet = small.strategy.local_steps
    slowest = stragglers.slowest(measured.devices, small.machine.jitter, meet)
    alone = target / (work.forward + work.backward + update) / slowest
    if np.all(np.equal(measured.devices, 1)):
        return np.where(np.equal(measured.rate, 0), 1.0, alone)[()]
    if small.strategy.update == "asynchronous":
        raise SpecError(
            f"calibration.devices = {np.max(measured.devices)}: with strategy.update = 'asynchronous' the"
            " legal value is 1; what several such devices do together is the servers' rate as much as theirs."
        )
    cost = bucket_costs(small, work)
    if small.overlaps:
        remaining = np.cumsum(cost[..., ::-1], axis=-1)[..., ::-1]
        busy = last_axis(work.forward) + work.ready + last_axis(update)
        lines = (last_axis(target) - remaining) / busy / last_axis(slowest)
        scale = np.minimum(alone, lines.min(axis=-1))
    else:
        scale = alone * (target - cost.sum(axis=-1) / meet) / target
    if np.any(np.less_equal(scale, 0)):
        raise SpecError(
            f"calibration.rate = {measured.rate} samples/s on {measured.devices} devices: the exchange alone"
            f" takes longer than that step; check the rate, the devices and the links."
        )
    return np.where(np.equal(measured.rate, 0), 1.0, scale)[()]


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
