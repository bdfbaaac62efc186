"""Fit the trainer's layers, optimizer updates and steps: rates of each kind, fixed cost of a pass, jitter.

The fit minimizes the error relative to the step: an error of a layer with 1% of its network's time counts 1%.
Predictions are of steps, and no straight line fits a layer at all sizes, from in-cache to out-of-cache.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from lib_dlhpc.calibration.robust import HIGH, LOW, SHARE, Floats, Points, calm, typical
from lib_dlhpc.costs import layer_rates
from lib_dlhpc.costs.layer_rates import LOSS, SAMPLES
from lib_dlhpc.costs.roofline import UPDATE_TRAFFIC
from lib_dlhpc.costs.stragglers import largest_of
from lib_dlhpc.spec.experiment import read_model
from lib_dlhpc.spec.layer_rate import FASTEST, LayerRate
from lib_dlhpc.spec.model import Model

ELEMENT = 4  # B: everything is measured in fp32
LEAST = 0.08  # half width of the narrowest slowdown interval: other days, other networks
VISIBLE = 1e-3  # increase of the mean error below which the points do not require another rate
UPDATE = "momentum"  # of a tiny run


@dataclass(frozen=True)
class Layers:
    """The fitted layers. errors: of each kind's points; steps: predicted over measured, of networks.

    held: kinds whose points alone would give more FLOP/s than the fastest product; they are capped at its rate.
    """

    rates: dict[str, LayerRate]
    tiny: "TinyRun"
    jitter: float
    jitter_ends: tuple[float, float]
    slowdown_ends: tuple[float, float]
    errors: dict[str, Floats]
    steps: Floats
    held: tuple[str, ...]


@dataclass(frozen=True)
class TinyRun:
    """A tiny run without communication. steps: s, low, typical, high; inside: s of its layers, loss and update."""

    steps: tuple[float, float, float]
    inside: float

    def overhead(self, slowdown: float = 1.0) -> tuple[float, tuple[float, float]]:
        """Return the step time outside the layers, and its interval, at a given slowdown.

        The slowdown of whole steps also affects this run; dividing by it avoids counting it twice.
        """
        low, middle, high = (max(0.0, step / slowdown - self.inside) for step in self.steps)
        return middle, (low, high)


def fit_layers(raw: Mapping[str, Any], peak: float) -> Layers:
    """Return the fit of the trainer's probe; peak: FLOP/s of the fastest product."""
    quiet = calm(raw["others"])
    cases = [_Case(case, quiet) for case in raw["cases"]]
    found, errors, held = _rates(cases, peak)
    for own, off in (_updates(cases), _outside(cases)):
        found, errors = found | own, errors | off
    ratios = [case.predicted(found) / case.took for case in cases]
    over = 1 / np.concatenate([case.predicted(found) / case.each for case in cases])
    ends = tuple(float(end) for end in np.quantile(over, (LOW, HIGH)))
    jitter, jitter_ends = _jitter(raw["cases"], int(raw["ranks"]))
    return Layers(
        found,
        _tiny(raw["run"], found),
        jitter,
        jitter_ends,
        (min(ends[0], 1 - LEAST), max(ends[1], 1 + LEAST)),
        errors,
        np.array(ratios) - 1,
        held,
    )


class _Case:
    """One network at one batch: seconds of its layers in the calm rounds, mean of the ranks."""

    def __init__(self, raw: Mapping[str, Any], quiet: Floats) -> None:
        self.model: Model = read_model(raw["model"])
        self.batch = int(raw["batch"])
        rounds = raw["rounds"]  # of each rank
        self.forward = self._mean([[r["forward"] for r in rank] for rank in rounds])[quiet]
        self.backward = self._mean([[r["backward"] for r in rank] for rank in rounds])[quiet]
        names = rounds[0][0]["updates"]
        self.updates = {
            name: self._mean([[r["updates"][name] for r in rank] for rank in rounds])[quiet]
            for name in names
        }
        self.outside = {
            name: self._mean([[r[name] for r in rank] for rank in rounds])[quiet]
            for name in (SAMPLES, LOSS)
        }
        elements, parameters = layer_rates.moved(self.model)
        self.work = self.batch * layer_rates.computed(self.model)
        self.bytes = ELEMENT * (self.batch * elements + parameters)

    @staticmethod
    def _mean(values: Any) -> Floats:
        return np.mean(np.asarray(values, float), axis=0)

    @property
    def each(self) -> Floats:
        """Seconds of all layers, per round."""
        return self.forward.sum(axis=1) + self.backward.sum(axis=1)

    @property
    def took(self) -> float:
        """Seconds of all layers."""
        return typical(self.each)

    def predicted(self, found: Mapping[str, LayerRate]) -> float:
        """Return the seconds of all layers at these rates."""
        each = [found[layer.traits.rate_key(layer)] for layer in self.model.layers]
        ahead, back = layer_rates.seconds(self.model, each, self.batch, ELEMENT)
        return float(ahead.sum() + back.sum())


def _rates(
    cases: list[_Case], peak: float
) -> tuple[dict[str, LayerRate], dict[str, Floats], tuple[str, ...]]:
    rows: dict[str, list[tuple[Floats, Floats, Floats, Floats, float]]] = {}
    for case in cases:
        products, started = layer_rates.products(case.model), layer_rates.started(case.model)
        for index, layer in enumerate(case.model.layers):
            terms = np.array([1.0, case.work[index], case.bytes[index]])
            twice = terms * [started[index], products[index], products[index]]
            mine = terms, case.forward[:, index], twice, case.backward[:, index], case.took
            rows.setdefault(layer.traits.rate_key(layer), []).append(mine)
    layers = (layer for case in cases for layer in case.model.layers)
    limited = {layer.traits.rate_key(layer) for layer in layers if layer.traits.product}
    found, errors, held = {}, {}, []
    for kind, points in rows.items():
        ahead_terms, ahead, back_terms, back, steps = zip(*points, strict=True)
        most = peak if kind in limited else np.inf
        x, off, above = _law(ahead_terms, ahead, steps, most)
        y, off_back, above_back = _law(back_terms, back, steps, most)
        numbers = [float(x[0]), *map(_inverse, x[1:]), float(y[0]), *map(_inverse, y[1:])]
        found[kind] = LayerRate(*numbers)
        errors[kind] = np.concatenate([off, off_back])
        held += [kind] if above or above_back else []
    return found, errors, tuple(held)


def _law(terms: Any, seconds: Any, steps: Any, most: float) -> tuple[Floats, Floats, bool]:
    """Return launch, s/FLOP and s/B of one kind in one direction, its errors, and whether the cap at `most` matters.

    most: FLOP/s. steps: s of the layers' networks.
    """
    terms, seconds = np.array(terms), np.array(seconds)
    shares = np.quantile(seconds, SHARE, axis=1) / np.array(steps)
    points = Points(terms, seconds, counts=shares)
    x = points.fit()
    if x[1] >= 1 / most:
        return x, points.errors(x), False
    rest = Points(terms[:, [0, 2]], seconds, terms[:, 1] / most, shares)
    launch, byte = rest.fit()
    held = np.array([launch, 1 / most, byte])
    free, tied = (np.abs(points.errors(each)).mean() for each in (x, held))
    return held, points.errors(held), bool(tied > free + VISIBLE)


def _updates(cases: list[_Case]) -> tuple[dict[str, LayerRate], dict[str, Floats]]:
    found, errors = {}, {}
    for name in cases[0].updates:
        moved = [4 * UPDATE_TRAFFIC[name] * case.model.parameters for case in cases]
        took = np.array([case.updates[name] for case in cases])
        own = np.quantile(took, SHARE, axis=1)
        shares = own / (own + np.array([case.took for case in cases]))
        points = Points([(1.0, size) for size in moved], took, counts=shares)
        x = points.fit()
        found[name] = LayerRate(launch=float(x[0]), bandwidth=_inverse(x[1]))
        errors[name] = points.errors(x)
    return found, errors


def _outside(cases: list[_Case]) -> tuple[dict[str, LayerRate], dict[str, Floats]]:
    """Return the rates of copying samples and of the loss, and their errors."""
    found, errors = {}, {}
    for name in (SAMPLES, LOSS):
        moved = [case.batch * layer_rates.outside_elements(case.model)[name] for case in cases]
        took = np.array([case.outside[name] for case in cases])
        shares = np.quantile(took, SHARE, axis=1) / np.array([case.took for case in cases])
        points = Points([(1.0, ELEMENT * size) for size in moved], took, counts=shares)
        x = points.fit()
        found[name] = LayerRate(launch=float(x[0]), bandwidth=_inverse(x[1]))
        errors[name] = points.errors(x)
    return found, errors


def _tiny(run: Mapping[str, Any], found: Mapping[str, LayerRate]) -> TinyRun:
    model = read_model({"family": "mlp", "widths": run["widths"]})
    each = [found[layer.traits.rate_key(layer)] for layer in model.layers]
    layers = sum(part.sum() for part in layer_rates.seconds(model, each, run["batch"], ELEMENT))
    layers += layer_rates.outside(model, found, np.array([run["batch"]]), ELEMENT).sum()
    rate, moved = found[UPDATE], 4 * UPDATE_TRAFFIC[UPDATE] * model.parameters
    low, middle, high = np.quantile(np.concatenate(run["seconds"]), (0.1, 0.5, 0.9)).tolist()
    return TinyRun((low, middle, high), float(layers) + rate.launch + moved / rate.bandwidth)


def _jitter(cases: list[Mapping[str, Any]], ranks: int) -> tuple[float, tuple[float, float]]:
    """Return sigma over mean of a step's compute time, from the excess of the slowest rank over the mean.

    The value is from CPU time; wall-clock time includes other processes and bounds it from above.
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
    """Return the relative excess of the slowest rank's step over the mean; steps: (ranks, steps)."""
    return float(np.median(steps.max(axis=0) / steps.mean(axis=0) - 1))


def _inverse(value: float) -> float:
    return 1 / float(value) if value > 1 / FASTEST else float("inf")
