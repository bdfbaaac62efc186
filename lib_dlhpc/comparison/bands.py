"""What a prediction may be off by where its machine was measured: each number drawn from its 90 % interval.

The draws go through the closed form at once, as arrays; the 5 % and 95 % quantiles of what comes out are the
band. Draws of a number are spread evenly over its distribution (a Latin hypercube: McKay, Beckman &
Conover 1979), so that few of them do.

What is the same for all parts of a step is one draw for all: layers and updates share device.slowdown, whose
interval holds the misfit of whole networks and the spread of real runs at several moments of the calibration,
messages share intra_node.efficiency, likewise. Other numbers are drawn apart from each other. A band does not hold
what no calibration has met: other programs at work, another day's clock, ways to share out a network that its
runs do not have.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from statistics import NormalDist
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from lib_dlhpc.prediction import Breakdown, predict
from lib_dlhpc.spec.experiment import Experiment
from lib_dlhpc.spec.machine import Machine
from lib_dlhpc.spec.measured import ROUNDED, value_of
from lib_dlhpc.spec.units import count

Band: TypeAlias = tuple[float, float]
DRAWS, DRAWS_OF_A_SPLIT = 400, 100  # networks that are split are predicted one after another
SHARE = 0.9  # of what is measured lies within a band, if its machine's intervals are true
SEED = 20  # the same draws every time
SMALLEST = 1e-3  # of its value: the least that a number is drawn as
ALL = "one step"


def bands(experiment: Experiment, left_out: Sequence[str] = ()) -> dict[str, Band]:
    """Return (low, high) s of a step and of each of its terms, by name; nothing where the machine says no intervals.

    "one step" is the whole of it, less the terms that are left out. A band holds what the machine's own numbers give,
    though their intervals may all lie on one side of them. Raises SpecError where the drawn numbers contradict what
    the experiment says.
    """
    machine = experiment.machine
    intervals = machine.measured.intervals if machine.measured else {}
    if not intervals:
        return {}
    several = DRAWS_OF_A_SPLIT if experiment.strategy.is_split else DRAWS
    drawn = replace(experiment, machine=drawn_machine(machine, intervals, several))
    own = seconds_of(predict(experiment), left_out)
    spread = seconds_of(predict(drawn), left_out)
    return {name: _band(seconds, own[name]) for name, seconds in spread.items()}


def seconds_of(prediction: Breakdown, left_out: Sequence[str] = ()) -> dict[str, Any]:
    """Return s of a step and of each of its terms, by name, without those that are left out."""
    terms = prediction.terms
    less = sum(terms.pop(name) for name in left_out)
    return {ALL: prediction.step_time - less, **terms}


def widened(
    known: Mapping[str, Band], own: Mapping[str, float], edges: Sequence[Mapping[str, float]]
) -> dict[str, Band]:
    """Return bands that also hold what `edges` say of the same terms: the step at other slowdown factors.

    How far the machine's numbers are off and how far it slows down have nothing to do with each other, so their
    factors add up in quadrature.
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
    """Return the bands of another way to know a step: it may be off by the same factor as the prediction.

    A simulation has the same numbers of the same machine, so what is wrong with them is wrong with it by about
    as much. To draw them anew and play each draw would say the same, hundreds of times as slowly, with the luck
    of the simulated jitter on top. Where both ways agree, so do their bands. predicted, own: s by name, the whole
    step among them; own s of what is not predicted at all may be off by as many s as the prediction.
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
    """Return when and where a machine's numbers were measured, in words; "" where they were not."""
    where = machine.measured
    if where is None:
        return ""
    return f"calibrated on {where.date} with {count(where.ranks, 'rank')}: {where.host}"


def drawn_machine(machine: Machine, intervals: Mapping[str, Band], draws: int) -> Machine:
    """Return the machine with each number that has an interval drawn from it, (draws,) each.

    A number outside its own interval is not the one that was measured: somebody set it, and it is taken as it is.
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
        return False  # it has no such number
    return bool(low * (1 - ROUNDED) <= value <= high * (1 + ROUNDED))


def _changed(noun: Any, keys: list[str], low: float, high: float, places: NDArray[Any]) -> Any:
    """Return a noun with the number at `keys` drawn between."""
    if not keys:
        return _draw(float(noun), low, high, places)
    head, *rest = keys
    if isinstance(noun, Mapping):
        return {**noun, head: _changed(noun[head], rest, low, high, places)}
    return replace(noun, **{head: _changed(getattr(noun, head), rest, low, high, places)})


def _draw(value: float, low: float, high: float, places: NDArray[Any]) -> NDArray[Any]:
    """Return the quantiles at `places` of two half normal distributions that meet at `value`.

    Of the logarithm where the interval is above 0, for rates and times are off by factors.
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
    # "hazen": of n values the first stands for the place 0.5 / n, as drawn.
    low, high = np.quantile(np.atleast_1d(seconds), edges, method="hazen")
    return min(float(low), float(own)), max(float(high), float(own))
