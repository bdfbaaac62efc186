"""What if something else were so: an experiment changed, its measured compute time kept where it holds."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from lib_dlhpc.costs.compute import update_time
from lib_dlhpc.costs.work import device_work
from lib_dlhpc.predict.breakdown import compute_scale
from lib_dlhpc.spec.experiment import Calibration, Experiment


def what_if(experiment: Experiment, changes: Mapping[str, Any]) -> Experiment:
    """Return the experiment with dotted fields changed, for a prediction beside that of the original.

    A rate measured on several devices holds the exchange of that day. It is turned into the rate of
    one device first, so that another algorithm or network changes the exchange and not the compute
    time. Another model, device or precision drops it (see Experiment.set). Raises SpecError.
    """
    if any(key.startswith("calibration.") for key in changes):
        return experiment.set(changes)
    return alone(experiment).set(changes)


def alone(experiment: Experiment) -> Experiment:
    """Return the experiment calibrated with the rate that one device would have by itself."""
    measured = experiment.calibration
    if not np.any(measured.rate) or np.all(
        np.equal(measured.devices, 1) & np.greater(measured.batch, 0)
    ):
        return experiment
    scale = compute_scale(experiment)
    batch = measured.batch if np.any(measured.batch) else experiment.strategy.batch
    small = replace(experiment, strategy=replace(experiment.strategy, batch=batch))
    work, device = device_work(small, scale), small.machine.device
    busy = work.forward + work.backward
    busy = busy + scale * update_time(small.model, device, small.strategy.optimizer)
    return replace(experiment, calibration=Calibration(rate=batch / busy, devices=1, batch=batch))
