"""Calibration from a measured run, for predictions of other networks and splits on the same machine.

    scale = compute_scale(measured)                  # measured = a run with its [calibration] rate
    other.set({"calibration.compute_scale": scale})

    share = link_efficiency(between, rate)           # a run between nodes with calibrated compute time
    other.set({"calibration.link_efficiency": share})

Both numbers are stored in the [calibration] of the other experiment, and in its TOML.
"""

from collections.abc import Callable
from math import copysign, exp, inf, log
from typing import Any

from lib_dlhpc.errors import SpecError
from lib_dlhpc.prediction.step import compute_scale, predict
from lib_dlhpc.spec.experiment import Experiment

__all__ = ["compute_scale", "link_efficiency", "meet"]

CLOSE = 1e-9  # of a number that is met, to the one tried before: what remains is its square
TRIES = 50
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
    """Return the number between low and high at which a monotonic function is `wanted`, else the nearer end.

    Source: Ridders, IEEE Trans. Circuits Syst. 26(11), 979 (1979), in the logarithm of the number. Bisection alone
    would call the function, a prediction each time, five times as often.
    """
    points = [(log(end), float(function(end)) - wanted) for end in (low, high)]
    (_, below), (_, above) = points
    if below * above >= 0:
        return low if abs(below) <= abs(above) else high
    found = inf
    for _ in range(TRIES):
        (left, below), (right, above) = points
        middle = (left + right) / 2
        miss = float(function(exp(middle))) - wanted
        if miss == 0:
            return exp(middle)
        share = miss / (miss**2 - below * above) ** 0.5
        last, found = found, middle + (middle - left) * copysign(share, share * (below - above))
        points += [(middle, miss), (found, float(function(exp(found))) - wanted)]
        points.sort()
        at = next(i for i in range(3) if points[i][1] * points[i + 1][1] <= 0)
        points = points[at : at + 2]
        if abs(found - last) < CLOSE or points[0][1] * points[1][1] == 0:
            break
    return exp(found)
