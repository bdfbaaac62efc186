"""Calibration from a measured run, for predictions of other networks and splits on the same machine.

    scale = compute_scale(measured)                  # measured = a run with its [calibration] rate
    other.set({"calibration.compute_scale": scale})

    share = link_efficiency(between, rate)           # a run between nodes with calibrated compute time
    other.set({"calibration.link_efficiency": share})

Both numbers are stored in the [calibration] of the other experiment, and in its TOML.
"""

from collections.abc import Callable
from typing import Any

from lib_dlhpc.errors import SpecError
from lib_dlhpc.prediction.step import compute_scale, predict
from lib_dlhpc.spec.experiment import Experiment

__all__ = ["compute_scale", "link_efficiency", "meet"]

LEAST_SHARE = 0.01  # of the line rate: below that the link is not the bottleneck


def link_efficiency(experiment: Experiment, rate: float) -> float:
    """Return the share of the line rate between nodes at which a run has `rate` samples/s.

    The experiment gives the compute time ([calibration] compute_scale, or the rate of one
    device). Raises SpecError where no share gives that rate.
    """

    def throughput(share: float) -> Any:
        return predict(experiment.set({"calibration.link_efficiency": share})).throughput

    low, high = throughput(LEAST_SHARE), throughput(1.0)
    if not low <= rate <= high:
        raise SpecError(
            f"rate = {rate:g} samples/s: between {LEAST_SHARE:.0%} and 100% of the line rate, {experiment.devices}"
            f" devices reach {low:.4g} to {high:.4g}; check the rate and [calibration]."
        )
    return meet(rate, throughput, LEAST_SHARE, 1.0)


def meet(wanted: float, function: Callable[[float], Any], low: float, high: float) -> float:
    """Return the number between low and high at which a monotonic function is `wanted`, by bisection."""
    rises = function(high) > function(low)
    for _ in range(50):
        middle = (low * high) ** 0.5
        above = function(middle) > wanted
        low, high = (low, middle) if above == rises else (middle, high)
    return float((low * high) ** 0.5)
