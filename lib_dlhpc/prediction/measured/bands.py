"""Uncertainty bands of a prediction: each measured number of the machine is drawn from its 90% interval.

The closed form takes all draws at once, as arrays. The band spans the 5% and 95% quantiles of the results. A Latin
hypercube (McKay, Beckman & Conover 1979) stratifies the draws of each number, so few draws suffice.

Effects common to all parts of a step are one draw: layers and updates share device.slowdown, whose interval covers the
misfit of whole networks and the spread of real runs over the calibration; messages share intra_node.efficiency in the
same way. All other numbers are drawn independently. A band does not cover what no calibration run met: load by other
processes, another clock frequency, other ways to partition a network.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from statistics import NormalDist
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from lib_dlhpc.prediction.breakdown import Breakdown
from lib_dlhpc.prediction.step import predict
from lib_dlhpc.spec.experiment import Experiment
from lib_dlhpc.spec.machine import Machine
from lib_dlhpc.spec.measured_machine import ROUNDED, value_of
from lib_dlhpc.spec.units import count

Band: TypeAlias = tuple[float, float]
DRAWS, DRAWS_OF_A_SPLIT = 400, 100  # partitioned networks are predicted one at a time
SHARE = 0.9  # of measurements lie within a band if the machine's intervals are right
SEED = 20  # the same draws every time
SMALLEST = 1e-3  # smallest draw, as a fraction of the value
ALL = "one step"


def bands(experiment: Experiment) -> dict[str, Band]:
    """Return (low, high) s of a step and of each of its terms, by name; empty for a machine without intervals.

    A band always contains the prediction from the machine's own numbers, even if their intervals lie on one side of
    them. Raises SpecError where drawn numbers contradict the experiment.
    """
    machine = experiment.machine
    intervals = machine.measured.intervals if machine.measured else {}
    if not intervals:
        return {}
    several = DRAWS_OF_A_SPLIT if experiment.strategy.is_split else DRAWS
    drawn = replace(experiment, machine=drawn_machine(machine, intervals, several))
    own = seconds_of(predict(experiment))
    spread = seconds_of(predict(drawn))
    return {name: _band(seconds, own[name]) for name, seconds in spread.items()}


def seconds_of(prediction: Breakdown) -> dict[str, Any]:
    """Return s of a step and of each of its terms, by name."""
    return {ALL: prediction.step_time, **prediction.terms}


def widened(
    known: Mapping[str, Band], own: Mapping[str, float], edges: Sequence[Mapping[str, float]]
) -> dict[str, Band]:
    """Return bands widened by `edges`: the same terms at other slowdown factors.

    Errors of the machine's numbers and of its slowdown are independent, so their log factors add in quadrature.
    """
    found = {}
    for name, (low, high) in known.items():
        middle, *values = (float(of.get(name, 0.0)) for of in (own, *edges))
        if min([low, middle, *values]) > 0:
            down = math.hypot(math.log(middle / low), math.log(middle / min(middle, *values)))
            up = math.hypot(math.log(high / middle), math.log(max(middle, *values) / middle))
            low, high = middle * math.exp(-down), middle * math.exp(up)
        found[name] = low, high
    return found


def carried(
    known: Mapping[str, Band], predicted: Mapping[str, float], own: Mapping[str, float]
) -> dict[str, Band]:
    """Return the bands of a simulation: its relative error is that of the prediction.

    A simulation uses the same numbers of the same machine, so their errors affect it about as much. Simulating each
    draw would give the same bands, hundreds of times slower and with simulated jitter on top. predicted, own: s by
    name, including the whole step. A term without a prediction gets the prediction's absolute error.
    """
    found = {}
    for name, (low, high) in known.items():
        value, about = own.get(name, 0.0), predicted.get(name, 0.0)
        if about:
            found[name] = (value * low / about, value * high / about)
        else:
            found[name] = (value + low, value + high)
    return found


def calibration_of(machine: Machine) -> str:
    """Return when and where a machine's numbers were measured, as text; "" for a machine that was not measured."""
    where = machine.measured
    if where is None:
        return ""
    if where.complete:
        return f"imported on {where.date} from {where.host}"
    return f"calibrated on {where.date} with {count(where.ranks, 'rank')}: {where.host}"


def drawn_machine(machine: Machine, intervals: Mapping[str, Band], draws: int) -> Machine:
    """Return the machine with an array of (draws,) for each number that has an interval.

    A number outside its interval was set by the user after the measurement; it stays as it is.
    """
    rng = np.random.default_rng(SEED)
    for name, (low, high) in intervals.items():
        if not _holds(machine, name, low, high):
            continue
        places = (rng.permutation(draws) + 0.5) / draws
        machine = _changed(machine, name.split("."), low, high, places)
    return machine


def _holds(machine: Machine, name: str, low: float, high: float) -> bool:
    try:
        value = value_of(machine, name)
    except (KeyError, AttributeError):
        return False  # the machine has no such number
    return bool(low * (1 - ROUNDED) <= value <= high * (1 + ROUNDED))


def _changed(spec: Any, keys: list[str], low: float, high: float, places: NDArray[Any]) -> Any:
    """Return a spec object with the number at `keys` drawn from (low, high)."""
    if not keys:
        return _draw(float(spec), low, high, places)
    head, *rest = keys
    if isinstance(spec, Mapping):
        return {**spec, head: _changed(spec[head], rest, low, high, places)}
    return replace(spec, **{head: _changed(getattr(spec, head), rest, low, high, places)})


def _draw(value: float, low: float, high: float, places: NDArray[Any]) -> NDArray[Any]:
    """Return the quantiles at `places` of two half normal distributions that meet at `value`.

    In the logarithm where the interval is above 0: errors of rates and times are factors.
    """
    edge = NormalDist().inv_cdf((1 + SHARE) / 2)
    at = np.array([NormalDist().inv_cdf(place) for place in places]) / edge
    if 0 < low <= value <= high < np.inf:
        down, up = np.log(value / low), np.log(high / value)
        return value * np.exp(at * np.where(at < 0, down, up))
    down, up = max(value - low, 0.0), max(high - value, 0.0)
    drawn = value + at * np.where(at < 0, down, up)
    return np.maximum(drawn, SMALLEST * max(value, 0.0))


def _band(seconds: Any, own: Any) -> Band:
    edges = [(1 - SHARE) / 2, (1 + SHARE) / 2]
    # "hazen": the first of n values is the quantile 0.5 / n, as in the draws.
    low, high = np.quantile(np.atleast_1d(seconds), edges, method="hazen")
    return min(float(low), float(own)), max(float(high), float(own))
