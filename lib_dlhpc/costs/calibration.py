"""Calibration: measured over roofline compute time, derived from a measured rate."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from lib_dlhpc.costs import roofline, stragglers
from lib_dlhpc.costs.compression import applied_rule
from lib_dlhpc.costs.device_work import DeviceWork, device_work
from lib_dlhpc.costs.network import last_axis
from lib_dlhpc.errors import SpecError
from lib_dlhpc.spec.experiment import Experiment


def compute_scale(
    experiment: Experiment, bucket_costs: Callable[[Experiment, DeviceWork], Any]
) -> Any:
    """Return measured over roofline compute time: from [calibration], or from its rate; else 1.0.

    bucket_costs(experiment, work): communication time of each bucket in s, from the engine.
    The measured step of `devices` devices may include straggler waits and exposed communication. A
    step takes max_k (s w (forward + r_k + update) + C_k), with w the straggler factor, r_k the time
    bucket k is ready and C_k the cost of bucket k and all later ones. Each term is solved for s; the
    smallest s reproduces the measurement. With local updates a step includes its fraction of the
    exposed exchange.
    Raises SpecError for an impossible rate, or one that does not determine a device's: asynchronous updates.
    """
    measured = experiment.calibration
    if np.any(measured.compute_scale):
        given: Any = np.where(np.equal(measured.compute_scale, 0), 1.0, measured.compute_scale)
        return given[()]
    if not np.any(measured.rate):
        return 1.0
    small = _at_calibration(experiment)
    work = device_work(small, 1.0)
    update = roofline.update_time(small.model, small.machine.device, applied_rule(small))
    target = small.global_batch / np.where(np.equal(measured.rate, 0), np.nan, measured.rate)
    meet = small.strategy.local_steps
    slowest = stragglers.slowest(measured.devices, small.machine.jitter, meet)
    one_device = target / (work.forward + work.backward + update) / slowest
    if np.all(np.equal(measured.devices, 1)):
        return np.where(np.equal(measured.rate, 0), 1.0, one_device)[()]
    if small.strategy.update == "asynchronous":
        raise SpecError(
            f"calibration.devices = {np.max(measured.devices)}: with strategy.update = 'asynchronous' the"
            " legal value is 1; the rate of several depends on the servers as well."
        )
    cost = bucket_costs(small, work)
    if small.overlaps:
        remaining = np.cumsum(cost[..., ::-1], axis=-1)[..., ::-1]
        busy = last_axis(work.forward) + work.ready + last_axis(update)
        lines = (last_axis(target) - remaining) / busy / last_axis(slowest)
        scale = np.minimum(one_device, lines.min(axis=-1))
    else:
        scale = one_device * (target - cost.sum(axis=-1) / meet) / target
    if np.any(np.less_equal(scale, 0)):
        raise SpecError(
            f"calibration.rate = {measured.rate} samples/s on {measured.devices} devices: communication alone"
            f" takes longer than that step; check the rate, the devices and the links."
        )
    return np.where(np.equal(measured.rate, 0), 1.0, scale)[()]


def _at_calibration(experiment: Experiment) -> Experiment:
    """Return the experiment with the strategy of the calibration run, which had no power limit."""
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
        power_limit=0.0,
    )
    return replace(experiment, strategy=strategy)
