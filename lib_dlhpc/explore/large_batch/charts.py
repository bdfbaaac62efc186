"""Columns and sentences for the drawings of the lesson on large batches; see charts.py for their use."""

from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from lib_dlhpc.explore.blocks.charts import State, append
from lib_dlhpc.results.palette import SERIES
from lib_dlhpc.spec.units import format_quantity

# No causes of time, so the series' colors; dash and symbol distinguish the lines without them.
LINES = {
    "linear scaling": (SERIES[1], [6, 3], "square"),
    "SGD, rate retuned": (SERIES[0], [1, 0], "circle"),
    "LARS": (SERIES[2], [2, 2], "triangle-up"),
    "LAMB": (SERIES[3], [1, 0], "diamond"),
    "another rule": (SERIES[0], [1, 0], "circle"),
    "LARS, 12 epochs": (SERIES[2], [8, 3], "triangle-down"),
    "SGD, 12 epochs": (SERIES[0], [8, 3], "diamond"),
}
RUNS = (
    (SERIES[0], [1, 0], "circle"),
    (SERIES[1], [6, 3], "square"),
    (SERIES[2], [2, 2], "triangle-up"),
    (SERIES[3], [8, 3], "diamond"),
    (SERIES[4], [4, 2, 1, 2], "cross"),
    (SERIES[6], [1, 2], "triangle-down"),
)
LOWEST = 1e-3  # share of wrong answers, for a logarithmic axis
GAP = 0.06  # of an axis from 0 to 1: a line of text
Floats = NDArray[Any]


class Point(NamedTuple):
    """A mean with its deviation."""

    x: float
    y: float
    deviation: float
    words: str = ""


class Curve(NamedTuple):
    """A run: its name, and the share of right answers at the end of epochs."""

    name: str
    epochs: list[float]
    accuracy: list[float]


def error_state(series: Mapping[str, Sequence[Point]]) -> State:
    """Top-1 error in shares against the batch, as published, one series a rule."""
    points = _points(series)
    linear = series["linear scaling"]
    return {"points": points}, (
        f"Linear scaling: {linear[0].y:.1%} wrong at batch {linear[0].x:,.0f}, {linear[-2].y:.1%} at"
        f" {linear[-2].x:,.0f}, {linear[-1].y:.1%} at {linear[-1].x:,.0f}. Other rules stay between"
        f" {min(p.y for n, s in series.items() if n != 'linear scaling' for p in s):.1%} and"
        f" {max(p.y for n, s in series.items() if n != 'linear scaling' for p in s):.1%}."
    )


def accuracy_state(series: Mapping[str, Sequence[Point]], batch: float, epochs: int) -> State:
    """Accuracy on the test samples against the batch, mean and deviation, one series a rule.

    Drawn is what is wrong, on a logarithmic axis: 95 and 93 % lie as far apart as 60 and 46 %.
    """
    wrong = {
        name: [Point(p.x, max(1 - p.y, LOWEST), p.deviation, p.words) for p in points]
        for name, points in series.items()
    }
    names = [name for name, points in series.items() if len(points) > 1]
    ends = [wrong[name][-1] for name in names]
    at = {name: p for name, points in series.items() for p in points if p.x == batch}
    data: dict[str, dict[str, Any]] = {
        "points": _points(wrong),
        "ends": {
            "line": names,
            "words": names,
            "x": [p.x for p in ends],
            "place": np.exp(spread_labels(np.log([p.y for p in ends]), 3.4)),
        },
        "now": {"x": [batch], "words": [f"batch {batch:,.0f}"]},
    }
    accuracies = ", ".join(f"{name} {p.y:.1%}" for name, p in at.items())
    return data, f"Batch {batch:,.0f}, test accuracy after {epochs} epochs: {accuracies}."


def tuning_state(
    rates: Mapping[str, Sequence[tuple[float, float, float]]], chosen: Mapping[str, float]
) -> State:
    """Validation accuracy against the rate. rates: line -> (rate, mean, lowest of the seeds)."""
    points: dict[str, list[Any]] = {n: [] for n in ("line", "x", "y", "low")}
    for name, rows in rates.items():
        for rate, mean, low in rows:
            append(points, line=name, x=rate, y=max(1 - mean, LOWEST), low=max(1 - low, LOWEST))
    best = [
        (name, rate, max(y for x, y, _ in rates[name] if x == rate))
        for name, rate in chosen.items()
        if name in rates
    ]
    marks = {
        "x": [rate for _, rate, _ in best],
        "y": [max(1 - y, LOWEST) for *_, y in best],
        "words": [f"{name.split(',')[0]} {rate:g}" for name, rate, _ in best],
    }
    picked = "; ".join(f"{name}: {y:.1%} at rate {rate:g}" for name, rate, y in best)
    words = f"Best on the validation samples: {picked}." if best else "No rate was chosen here."
    return {"points": points, "chosen": marks}, words


def schedule_state(epochs: Floats, rate: Floats) -> State:
    """The learning rate over the epochs of a run."""
    data = {"line": {"x": epochs, "y": rate}}
    top = int(np.argmax(rate))
    return data, (
        f"The rate begins at {rate[0]:.3g}, is {rate[top]:.3g} at the highest, in epoch {epochs[top]:.3g}."
    )


def runs_state(curves: Sequence[Curve], epochs: float, target: tuple[float, str] | None) -> State:
    """Accuracy against epochs of at most six runs; target: a level to compare with, and its words."""
    lines: dict[str, list[Any]] = {n: [] for n in ("line", "x", "y")}
    ends: dict[str, list[Any]] = {n: [] for n in ("line", "words", "x", "place")}
    shown = [(str(i + 1), curve) for i, curve in enumerate(curves) if curve.epochs]
    for number, curve in shown:
        for x, y in zip(curve.epochs, curve.accuracy, strict=True):
            append(lines, line=number, x=x, y=y)
        append(
            ends, line=number, words=f"{number}: {curve.name}", x=epochs, place=curve.accuracy[-1]
        )
    ends["place"] = spread_labels(ends["place"], 1.0)
    data: dict[str, dict[str, Any]] = {
        "lines": lines,
        "ends": ends,
        "room": {"x": [0.0, float(epochs)], "y": [0.0, 1.0]},
        "target": {"y": [target[0]] if target else [], "words": [target[1]] if target else []},
    }
    accuracies = "; ".join(f"{number}: {c.name} {c.accuracy[-1]:.1%}" for number, c in shown)
    return data, f"Test accuracy: {accuracies}." if accuracies else "Nothing trained yet."


def arrival_state(points: Sequence[Point], fewest: float, critical: float, target: float) -> State:
    """Steps to the target accuracy against the batch: measured, and fewest (1 + critical / batch)."""
    size = np.geomspace(points[0].x, points[-1].x, 65)
    measured: dict[str, list[Any]] = {n: [] for n in ("x", "y", "low", "high", "words")}
    for p in points:
        append(
            measured,
            x=p.x,
            y=p.y,
            low=max(p.y - p.deviation, 1.0),
            high=p.y + p.deviation,
            words=f"batch {p.x:,.0f}: {p.y:.3g} steps",
        )
    ideal = points[0].y * points[0].x / size
    kept = ideal > 0.5 * fewest
    data: dict[str, dict[str, Any]] = {
        "points": measured,
        "fit": {"x": size, "y": fewest * (1 + critical / size)},
        "ideal": {"x": size[kept], "y": ideal[kept]},
        "floor": {"y": [fewest], "words": [f"fewest steps: {fewest:.3g}"]},
        "critical": {"x": [critical], "words": [f"critical batch: {critical:.3g}"]},
    }
    first, last = points[0], points[-1]
    return data, (
        f"Steps to {target:.0%}: {first.y:.3g} at batch {first.x:,.0f}, {last.y:.3g} at {last.x:,.0f}. Fitted:"
        f" {fewest:.3g} (1 + {critical:.3g} / batch)."
    )


def time_state(
    gpus: Floats, seconds: Floats, ideal: Floats, now: tuple[float, float], turn: float
) -> State:
    """Seconds to the target against GPUs; ideal: if steps fell for ever; turn: GPUs of the critical batch."""
    far = now[0] > np.sqrt(float(gpus[0]) * float(gpus[-1]))
    inside = bool(gpus[0] <= turn <= gpus[-1])
    data: dict[str, dict[str, Any]] = {
        "line": {"x": gpus, "y": seconds},
        "ideal": {"x": gpus, "y": ideal},
        "now": {
            "x": [now[0]],
            "y": [now[1]],
            "words": [f"now: {format_quantity(now[1], 's')}"],
            "side": ["right" if far else "left"],
            "shift": [-11 if far else 11],
        },
        "critical": {"x": [turn] if inside else [], "words": ["critical batch"] if inside else []},
    }
    best = int(np.argmin(seconds))
    return data, (
        f"On {now[0]:,.0f} GPUs it takes {format_quantity(now[1], 's')}; the shortest there is,"
        f" {format_quantity(float(seconds[best]), 's')}, takes {gpus[best]:,.0f}."
    )


def _points(series: Mapping[str, Sequence[Point]]) -> dict[str, list[Any]]:
    names = ("line", "x", "y", "low", "high", "words")
    columns: dict[str, list[Any]] = {n: [] for n in names}
    for name, points in series.items():
        for p in points:
            append(
                columns,
                line=name,
                x=p.x,
                y=p.y,
                low=max(p.y - p.deviation, LOWEST),
                high=min(p.y + p.deviation, 1.0),
                words=p.words,
            )
    return columns


def spread_labels(places: Iterable[float], axis: float) -> list[float]:
    """Move labels on a linear axis of this length apart until a line of text fits between them."""
    moved = np.asarray(list(places), dtype=float)
    order = np.argsort(moved, kind="stable")
    for _ in range(12):
        for low, high in pairwise(order):
            missing = GAP * axis - (moved[high] - moved[low])
            if missing > 0:
                moved[low] -= missing / 2
                moved[high] += missing / 2
    return [float(place) for place in moved]
