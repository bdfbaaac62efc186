"""Calibration of a network that is split: the compute scale at which a step takes as long as was measured."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from lib_dlhpc.errors import SpecError
from lib_dlhpc.spec.experiment import Experiment
from lib_dlhpc.spec.strategy import SPLIT_FIELDS, Strategy

CHORDS = 6  # before tangents, each of which costs two predictions


def compute_scale(
    experiment: Experiment,
    whole: Callable[[Experiment], Any],
    step: Callable[[Experiment, float], float],
) -> float:
    """Return measured over roofline compute time: as [calibration] has it, or from its rate; else 1.0.

    A rate of one device is one of the whole network on it: whole(experiment) is its scale. A rate of
    several is one of the same split, with fewer or more replicas: step(experiment, scale) is its time in
    s, as the engine has it. Raises SpecError where the rate cannot be.
    """
    small = measured_with(experiment)
    if small is None:
        return float(experiment.calibration.compute_scale) or 1.0
    if not small.strategy.is_split:
        return float(whole(replace(small, calibration=experiment.calibration)))
    seconds = float(small.global_batch / experiment.calibration.rate)
    return scale_of(seconds, lambda scale: step(small, scale), int(small.devices))


def scale_of(seconds: float, step: Callable[[float], float], devices: int = 1) -> float:
    """Return the compute scale at which step(scale), in s, is `seconds`.

    Steps get longer with the scale, ever more in proportion to it, so that steps of Newton's method end.
    Raises SpecError if the messages alone take as long.
    """
    alone = step(0.0)
    if alone >= seconds:
        raise SpecError(
            f"calibration: a step of {seconds:.4g} s on {devices} devices, but the messages alone take"
            f" {alone:.4g} s; check the rate, the devices and the links."
        )
    # The step is convex in the scale and mostly straight: a few chords lead to `seconds`, unless it has a sharp bend.
    before, earlier, scale = 0.0, alone, 1.0
    for number in range(60):
        now = step(scale)
        if abs(now - seconds) <= 1e-12 * seconds:
            break
        if number >= CHORDS:
            before = scale * (1 + 1e-6)
            earlier = step(before)
        slope = (earlier - now) / (before - scale)
        before, earlier, scale = scale, now, max(scale + (seconds - now) / slope, scale / 10)
    return scale


def measured_with(experiment: Experiment) -> Experiment | None:
    """Return the split experiment as it was when the calibration was measured; None if it was not."""
    measured, strategy = experiment.calibration, experiment.strategy
    if not measured.rate:
        return None
    devices = int(measured.devices)
    per_node = min(devices, int(experiment.devices_per_node))
    batch = int(measured.batch) or int(strategy.batch)
    changed: dict[str, Any] = {
        "nodes": devices // per_node,
        "devices_per_node": per_node,
        "data": 0,
        "power_limit": 0.0,  # a rate is measured without one
    }
    if devices == 1:
        only_split = "tensor_pieces", "tensor_overlap", "pipeline_runtime"
        for name in (*SPLIT_FIELDS, "chunks", "schedule", "sequence_parallel", *only_split):
            if name != "recompute":
                changed[name] = getattr(Strategy(), name)
    elif devices % int(strategy.replica) or devices % per_node:
        raise SpecError(
            f"calibration.devices = {devices}: legal: 1, or a multiple of the {strategy.replica} devices of a"
            " replica that makes whole nodes."
        )
    else:
        batch = int(strategy.batch) if not measured.batch else batch * int(strategy.replica)
    small = replace(strategy, **changed, batch=batch)
    alone = replace(measured, rate=0.0, devices=1, batch=0)
    return replace(experiment, strategy=small, calibration=alone)
