"""What if: an experiment with changes, whose measured compute time is kept where it still holds."""

from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache
from typing import Any

import numpy as np

from lib_dlhpc.costs.compression import applied_rule
from lib_dlhpc.costs.device_work import device_work
from lib_dlhpc.costs.roofline import update_time
from lib_dlhpc.costs.split_calibration import measured_with
from lib_dlhpc.keyed import Keyed
from lib_dlhpc.prediction.split_step import split_step
from lib_dlhpc.prediction.step import compute_scale
from lib_dlhpc.spec.calibration import Calibration
from lib_dlhpc.spec.experiment import Experiment

# Settings that a rate was measured with, and whose effect on the work of one device is known.
WORK = {
    f"strategy.{name}" for name in ("recompute", "optimizer", "fused_attention", "lora", "adapted")
}


def what_if(experiment: Experiment, changes: Mapping[str, Any]) -> Experiment:
    """Return the experiment with dotted fields changed, for a prediction beside that of the original.

    A rate measured on several devices holds the exchange of that day. It is turned into the rate of
    one device first, so that another algorithm or network changes the exchange and not the compute
    time; where recomputation, the optimizer or fused attention changes, into that of a device which does the
    new work. Another model, device or precision drops it, with a warning (see Experiment.set). Raises SpecError.
    """
    changed = experiment.set(changes)
    if any(key.startswith("calibration.") for key in changes):
        return changed
    if not np.any(changed.calibration.rate):
        return changed
    if WORK & changes.keys():
        return _one_device(changed, compute_scale(experiment), _batch(experiment))
    one = alone(experiment).calibration
    kept = replace(changed.calibration, rate=one.rate, devices=one.devices, batch=one.batch)
    return replace(changed, calibration=kept)


def alone(experiment: Experiment) -> Experiment:
    """Return the experiment calibrated with the rate that one device would have by itself."""
    measured = experiment.calibration
    if not np.any(measured.rate) or np.all(
        np.equal(measured.devices, 1) & np.greater(measured.batch, 0)
    ):
        return experiment
    return _alone(Keyed(experiment, id(experiment)))


@lru_cache(maxsize=64)  # every control of a page starts from the same run
def _alone(key: Keyed[Experiment]) -> Experiment:
    experiment = key.value
    return _one_device(experiment, compute_scale(experiment), _batch(experiment))


def _batch(experiment: Experiment) -> Any:
    """Return the samples per device with which the rate was measured."""
    batch = experiment.calibration.batch
    return batch if np.any(batch) else experiment.strategy.batch


def _one_device(experiment: Experiment, scale: Any, batch: Any) -> Experiment:
    """Return the experiment with the rate of one device, of `batch` samples, whose compute scale is `scale`."""
    small = replace(experiment, strategy=replace(experiment.strategy, batch=batch))
    if experiment.strategy.recompute != "none":
        rate = Calibration(rate=1.0, devices=1, batch=batch)
        one = measured_with(replace(experiment, calibration=rate))
        busy = split_step(one, scale).total if one else np.nan
    else:
        work, device = device_work(small, scale), small.machine.device
        busy = work.forward + work.backward
        busy = busy + scale * update_time(small.model, device, applied_rule(small))
    measured = replace(experiment.calibration, rate=batch / busy, devices=1, batch=batch)
    return replace(experiment, calibration=measured)
