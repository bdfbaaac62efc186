"""What the trainer's layers, updates and steps say: a pace for each kind, the fixed cost of a pass, the jitter.

A pace is the one that is off least as a share of the step: of a layer that takes a hundredth of its network's
time an error counts a hundredth. A step is what a prediction is asked for, and no straight line fits a layer at
all sizes, from what a core's own cache holds to what comes from memory.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from lib_dlhpc.calibration.robust import HIGH, LOW, SHARE, Floats, Points, calm, typical
from lib_dlhpc.costs import paces
from lib_dlhpc.costs.compute import UPDATE_TRAFFIC
from lib_dlhpc.costs.stragglers import largest_of
from lib_dlhpc.spec.experiment import read_model
from lib_dlhpc.spec.model import Model
from lib_dlhpc.spec.pace import FASTEST, Pace

ELEMENT = 4  # B: all is measured with fp32
LEAST = 0.08  # half of the narrowest interval of the slowdown: other days, other networks
VISIBLE = 1e-3  # more of error on average: less is no sign that the points want another rate
UPDATE = "momentum"  # of a tiny run
PRODUCTS = (
    "dense",
    "conv",
    "attention",
    "attention_with_dropout",
)  # whose FLOP are those of products


@dataclass(frozen=True)
class Layers:
    """What was found of the layers. errors: of each kind's points; steps: predicted over measured, of networks.

    held: kinds whose points alone speak for more FLOP/s than any product reaches here; they have its rate.
    """

    paces: dict[str, Pace]
    tiny: "Tiny"
    jitter: float
    jitter_ends: tuple[float, float]
    slowdown_ends: tuple[float, float]
    errors: dict[str, Floats]
    steps: Floats
    held: tuple[str, ...]


@dataclass(frozen=True)
class Tiny:
    """A tiny run, which exchanges nothing. steps: s, low, typical, high; inside: of its layers and its update."""

    steps: tuple[float, float, float]
    inside: float

    def overhead(self, slowdown: float = 1.0) -> tuple[float, tuple[float, float]]:
        """Return what a step takes outside of its layers, and its interval, where all takes `slowdown` times as long.

        What slows whole steps of other runs has slowed this one's: it is not to count twice.
        """
        low, middle, high = (max(0.0, step / slowdown - self.inside) for step in self.steps)
        return middle, (low, high)


def fit_layers(raw: Mapping[str, Any], peak: float) -> Layers:
    """Return what the numbers of the trainer's probe amount to; peak: FLOP/s that no product exceeds."""
    quiet = calm(raw["others"])
    cases = [_Case(case, quiet) for case in raw["cases"]]
    found, errors, held = _paces(cases, peak)
    updates, more = _updates(cases)
    found, errors = found | updates, errors | more
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


def _paces(
    cases: list[_Case], peak: float
) -> tuple[dict[str, Pace], dict[str, Floats], tuple[str, ...]]:
    rows: dict[str, list[tuple[Floats, Floats, Floats, Floats, float]]] = {}
    for case in cases:
        products = paces.products(case.model)
        for at, layer in enumerate(case.model.layers):
            terms = np.array([1.0, case.work[at], case.bytes[at]])
            twice = terms * [1.0, products[at], products[at]]
            mine = terms, case.forward[:, at], twice, case.backward[:, at], case.took
            rows.setdefault(paces.kind_of(layer), []).append(mine)
    found, errors, held = {}, {}, []
    for kind, points in rows.items():
        ahead_terms, ahead, back_terms, back, steps = zip(*points, strict=True)
        most = peak if kind in PRODUCTS else np.inf
        x, off, above = _law(ahead_terms, ahead, steps, most)
        y, off_back, above_back = _law(back_terms, back, steps, most)
        numbers = [float(x[0]), *map(_inverse, x[1:]), float(y[0]), *map(_inverse, y[1:])]
        found[kind] = Pace(*numbers)
        errors[kind] = np.concatenate([off, off_back])
        held += [kind] if above or above_back else []
    return found, errors, tuple(held)


def _law(terms: Any, seconds: Any, steps: Any, most: float) -> tuple[Floats, Floats, bool]:
    """Return launch, s a FLOP and s a byte of one kind one way, its errors, and whether holding it to `most` shows.

    most: FLOP/s. steps: s of the networks that the layers are from.
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


def _updates(cases: list[_Case]) -> tuple[dict[str, Pace], dict[str, Floats]]:
    found, errors = {}, {}
    for name in cases[0].updates:
        moved = [4 * UPDATE_TRAFFIC[name] * case.model.parameters for case in cases]
        took = np.array([case.updates[name] for case in cases])
        own = np.quantile(took, SHARE, axis=1)
        shares = own / (own + np.array([case.took for case in cases]))
        points = Points([(1.0, size) for size in moved], took, counts=shares)
        x = points.fit()
        found[name] = Pace(launch=float(x[0]), bandwidth=_inverse(x[1]))
        errors[name] = points.errors(x)
    return found, errors


def _tiny(run: Mapping[str, Any], found: Mapping[str, Pace]) -> Tiny:
    model = read_model({"family": "mlp", "widths": run["widths"]})
    each = [found[paces.kind_of(layer)] for layer in model.layers]
    layers = sum(part.sum() for part in paces.seconds(model, each, run["batch"], ELEMENT))
    pace, moved = found[UPDATE], 4 * UPDATE_TRAFFIC[UPDATE] * model.parameters
    low, middle, high = np.quantile(np.concatenate(run["seconds"]), (0.1, 0.5, 0.9)).tolist()
    return Tiny((low, middle, high), float(layers) + pace.launch + moved / pace.bandwidth)


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
    return 1 / float(value) if value > 1 / FASTEST else float("inf")
