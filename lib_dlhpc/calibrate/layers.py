"""What the trainer's layers, updates and steps say: a pace for each kind, the fixed cost of a pass, the jitter."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from lib_dlhpc.calibrate.robust import HIGH, LOW, Floats, Points, calm, typical
from lib_dlhpc.costs import paces
from lib_dlhpc.costs.compute import UPDATE_TRAFFIC
from lib_dlhpc.costs.stragglers import largest_of
from lib_dlhpc.spec.experiment import read_model
from lib_dlhpc.spec.model import Model
from lib_dlhpc.spec.pace import Pace

ELEMENT = 4  # B: all is measured with fp32
LEAST = 0.08  # half of the narrowest interval of the slowdown: other days, other networks
UPDATE = "momentum"  # of a tiny run


@dataclass(frozen=True)
class Layers:
    """What was found of the layers. errors: of each kind's points; steps: predicted over measured, of networks."""

    paces: dict[str, Pace]
    overhead: float
    overhead_ends: tuple[float, float]
    jitter: float
    jitter_ends: tuple[float, float]
    slowdown_ends: tuple[float, float]
    errors: dict[str, Floats]
    steps: Floats


def fit_layers(told: Mapping[str, Any]) -> Layers:
    """Return what the numbers of the trainer's probe amount to."""
    quiet = calm(told["others"])
    cases = [_Case(case, quiet) for case in told["cases"]]
    found, errors = _paces(cases)
    updates, more = _updates(cases)
    found, errors = found | updates, errors | more
    ratios = [case.predicted(found) / case.took for case in cases]
    over = 1 / np.concatenate([case.predicted(found) / case.each for case in cases])
    ends = tuple(float(end) for end in np.quantile(over, (LOW, HIGH)))
    overhead, overhead_ends = _overhead(told["run"], found)
    jitter, jitter_ends = _jitter(told["cases"], int(told["ranks"]))
    return Layers(
        found,
        overhead,
        overhead_ends,
        jitter,
        jitter_ends,
        (min(ends[0], 1 - LEAST), max(ends[1], 1 + LEAST)),
        errors,
        np.array(ratios) - 1,
    )


class _Case:
    """One network at one batch: seconds of its layers in the calm rounds, mean of the ranks."""

    def __init__(self, told: Mapping[str, Any], quiet: Floats) -> None:
        self.model: Model = read_model(told["model"])
        self.batch = int(told["batch"])
        rounds = told["rounds"]  # of each rank
        self.forward = self._mean([[r["forward"] for r in rank] for rank in rounds])[quiet]
        self.backward = self._mean([[r["backward"] for r in rank] for rank in rounds])[quiet]
        names = rounds[0][0]["updates"]
        self.updates = {
            name: self._mean([[r["updates"][name] for r in rank] for rank in rounds])[quiet]
            for name in names
        }
        elements, parameters = paces.moved(self.model)
        self.work = self.batch * self.model.layer_forward_flop
        self.bytes = ELEMENT * (self.batch * elements + parameters)

    @staticmethod
    def _mean(values: Any) -> Floats:
        return np.mean(np.asarray(values, float), axis=0)

    @property
    def each(self) -> Floats:
        """Seconds of all layers, by round."""
        return self.forward.sum(axis=1) + self.backward.sum(axis=1)

    @property
    def took(self) -> float:
        """Seconds of all layers."""
        return typical(self.each)

    def predicted(self, found: Mapping[str, Pace]) -> float:
        """Return the seconds of all layers at these paces."""
        each = [found[paces.kind_of(layer)] for layer in self.model.layers]
        ahead, back = paces.seconds(self.model, each, self.batch, ELEMENT)
        return float(ahead.sum() + back.sum())


def _paces(cases: list[_Case]) -> tuple[dict[str, Pace], dict[str, Floats]]:
    rows: dict[str, list[tuple[Floats, Floats, Floats, Floats]]] = {}
    for case in cases:
        products = paces.products(case.model)
        for at, layer in enumerate(case.model.layers):
            terms = np.array([1.0, case.work[at], case.bytes[at]])
            twice = terms * [1.0, products[at], products[at]]
            mine = terms, case.forward[:, at], twice, case.backward[:, at]
            rows.setdefault(paces.kind_of(layer), []).append(mine)
    found, errors = {}, {}
    for kind, points in rows.items():
        ahead = Points([p[0] for p in points], [p[1] for p in points])
        back = Points([p[2] for p in points], [p[3] for p in points])
        x, y = ahead.fit(), back.fit()
        numbers = [float(x[0]), *map(_inverse, x[1:]), float(y[0]), *map(_inverse, y[1:])]
        found[kind] = Pace(*numbers)
        errors[kind] = np.concatenate([ahead.errors(x), back.errors(y)])
    return found, errors


def _updates(cases: list[_Case]) -> tuple[dict[str, Pace], dict[str, Floats]]:
    found, errors = {}, {}
    for name in cases[0].updates:
        moved = [4 * UPDATE_TRAFFIC[name] * case.model.parameters for case in cases]
        points = Points([(1.0, size) for size in moved], [case.updates[name] for case in cases])
        x = points.fit()
        found[name] = Pace(launch=float(x[0]), bandwidth=_inverse(x[1]))
        errors[name] = points.errors(x)
    return found, errors


def _overhead(
    run: Mapping[str, Any], found: Mapping[str, Pace]
) -> tuple[float, tuple[float, float]]:
    """Return what a step of the tiny run takes beside its layers and its update; nothing is exchanged."""
    model = read_model({"family": "mlp", "widths": run["widths"]})
    each = [found[paces.kind_of(layer)] for layer in model.layers]
    layers = sum(part.sum() for part in paces.seconds(model, each, run["batch"], ELEMENT))
    pace, moved = found[UPDATE], 4 * UPDATE_TRAFFIC[UPDATE] * model.parameters
    inside = float(layers) + pace.launch + moved / pace.bandwidth
    steps = np.concatenate(run["seconds"])
    low, middle, high = (max(0.0, float(np.quantile(steps, q)) - inside) for q in (0.1, 0.5, 0.9))
    return middle, (low, high)


def _jitter(cases: list[Mapping[str, Any]], ranks: int) -> tuple[float, tuple[float, float]]:
    """Return sigma over mean of a step's compute time, from how much the slowest of the ranks exceeds their mean.

    The number is that of the ranks' own seconds; on the wall's clock, which others disturb, it may be more.
    """
    if ranks == 1:
        return 0.0, (0.0, 0.0)
    sigma, wall = (
        np.array([_beyond(np.asarray(case[which], float)) for case in cases]) / largest_of(ranks)
        for which in ("steps", "wall")
    )
    middle = float(np.median(sigma))
    return middle, (float(np.quantile(sigma, LOW)), max(middle, float(np.median(wall))))


def _beyond(steps: Floats) -> float:
    """Return by what share the slowest rank's step exceeds the mean; steps: (ranks, steps)."""
    return float(np.median(steps.max(axis=0) / steps.mean(axis=0) - 1))


def _inverse(value: float) -> float:
    return 1 / float(value) if value > 0 else float("inf")
