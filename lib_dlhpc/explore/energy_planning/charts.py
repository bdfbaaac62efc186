"""What the charts of the lesson on energy and planning show: columns for their drawings, and a sentence."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from lib_dlhpc.explore.blocks.bars import stacks
from lib_dlhpc.explore.blocks.charts import Data, State, columns, marked
from lib_dlhpc.explore.blocks.lines import FIRST, SECOND
from lib_dlhpc.planner import Trained
from lib_dlhpc.results.palette import BACKWARD, CHECKPOINT, FORWARD, GRADIENTS, SERIES
from lib_dlhpc.spec.units import format_quantity as show

CAUSES = {
    "computing": BACKWARD,
    "waiting, exchanging": GRADIENTS,
    "hosts, switches": SERIES[6],
    "cooling": CHECKPOINT,
}
LINES = {
    "front": ("currentColor", [1, 0], "circle"),
    "each power limit": SECOND,
    "each number of GPUs": (SERIES[0], [2, 2], "triangle-up"),
}
PASSES = {"forward": FORWARD, "backward": BACKWARD}
PREDICTED, GUESSED = "predicted utilization", "40% for all sizes"
SIZE_RANGE = [1.4e8, 2.2e11]  # weights
SIZES = {PREDICTED: FIRST, GUESSED: SECOND}
PLACES: dict[str, dict[str, Any]] = {  # of the words of named runs, px from their marks
    "fastest": {"side": "left", "shift": 10, "dy": -8},
    "knee": {"side": "center", "shift": 0, "dy": 17},
    "cheapest": {"side": "center", "shift": 0, "dy": 17},
}


class Cost(NamedTuple):
    """What a run takes: s and J, and the run in words."""

    seconds: float
    joules: float
    words: str = ""


def hours(seconds: float) -> str:
    """Return a time in words."""
    return show(seconds, "s")


def kilowatt_hours(joules: float) -> str:
    """Return an energy in words."""
    return show(joules / 3600, "Wh")


def costs_state(
    costs: Sequence[Cost],
    front: Sequence[int],
    marks: Mapping[str, Cost],
    now: Cost | None,
    lines: Mapping[str, Any] | None = None,
    budget: tuple[float, float] | None = None,
) -> State:
    """Energy (Wh) against time (s) of runs: the front through its rows, named runs, the present one, a budget.

    lines: (s, J) of other lines by name. budget: s and J at most.
    """
    each = {"front": np.array([costs[row][:2] for row in front]), **(lines or {})}
    points = [(c.seconds, c.joules / 3600, tip(c)) for c in costs]
    (left, right), (low, high) = (
        (min(values), max(values)) for values in list(zip(*points, strict=True))[:2]
    )
    named = [
        {"x": c.seconds, "y": c.joules / 3600, "words": name, "details": tip(c), **PLACES[name]}
        for name, c in marks.items()
    ]
    room = {"x": [0.8 * left, 1.25 * right], "y": [low / 1.25, 1.12 * high]}
    data: Data = {
        "points": columns({"x": x, "y": y, "details": words} for x, y, words in points),
        "lines": columns(
            {"line": name, "x": x, "y": y / 3600} for name, own in each.items() for x, y in own
        ),
        "marks": columns(named),
        "now": _now(now, room) if now else {},
        "room": room,
    }
    if budget:
        ends_at = {"x": budget[0], "y": budget[1] / 3600}
        data["budget"] = columns([{**ends_at, "left": room["x"][0], "low": room["y"][0]}])
    ends = "; ".join(f"{name}: {tip(c)}" for name, c in marks.items())
    mine = f" Yours: {tip(now)}." if now else ""
    return data, f"{len(costs)} runs. On the front, {ends}.{mine}"


def tip(cost: Cost) -> str:
    """Return a run and what it takes, in words."""
    return f"{hours(cost.seconds)}, {kilowatt_hours(cost.joules)} ({cost.words})"


def _now(now: Cost, room: Mapping[str, Sequence[float]]) -> dict[str, list[Any]]:
    late = now.seconds > np.sqrt(room["x"][0] * room["x"][1])
    words = f"yours: {hours(now.seconds)}, {kilowatt_hours(now.joules)}"
    return marked(words, late, 11, x=now.seconds, y=now.joules / 3600)


def causes_state(runs: Mapping[str, Mapping[str, float]]) -> State:
    """Energy of runs by cause, in Wh from J."""
    watt_hours = {name: {c: j / 3600 for c, j in parts.items()} for name, parts in runs.items()}
    data = stacks(watt_hours, CAUSES, "Wh")
    each = map(" ".join, zip(data["sums"]["row"], data["sums"]["words"], strict=True))
    return data, f"Energy to the target: {'; '.join(each)}."


def losses_state(lines: Mapping[str, Trained]) -> State:
    """Loss (nats per token) against weights of sizes by line; the best of each is named."""
    points, marks, lowest, highest = list[Any](), list[Any](), np.inf, 0.0
    for name, own in lines.items():
        for row in np.flatnonzero(np.isfinite(own.loss)).tolist():
            x, y = own.family[row].weights, float(own.loss[row])
            details = f"{show(x, '')}, {show(float(own.tokens[row]), '')}, {y:.3f}"
            measured = not own.beyond(row)
            points.append({"line": name, "x": x, "y": y, "measured": measured, "details": details})
            highest = max(highest, y)
            if row == own.best:
                marks.append({"line": name, "x": x, "y": y, "words": show(x, ""), "details": name})
                lowest = min(lowest, y)
    for place, mark in enumerate(sorted(marks, key=lambda each: float(each["y"]))):
        mark["dy"] = -16 if place else 18  # px: two of the same size are named on both sides
    room = {"x": SIZE_RANGE, "y": [lowest - 0.04, min(lowest + 0.5, highest)]}
    each = (
        f"with {m['line']} {m['words']} parameters ({m['y']:.3f} nats per token)" for m in marks
    )
    data: Data = {"points": columns(points), "marks": columns(marks), "room": room}
    return data, f"The least loss: {'; '.join(each)}."


def utilization_state(own: Trained, fixed: float) -> State:
    """MFU against weights of the sizes that fit, the best one named, and the fixed utilization."""
    fitting = [each for each in own.family if each.rate]
    best = own.family[own.best]
    words = f"best size: {best.utilization:.0%}"
    rows = (
        {
            "x": each.weights,
            "y": each.utilization,
            "details": f"{each.utilization:.1%}: {each.layout}",
        }
        for each in fitting
    )
    data: Data = {
        "lines": columns(rows),
        "now": marked(words, best.weights > 5e9, 11, x=best.weights, y=best.utilization),
        "level": columns([{"y": fixed, "words": f"{fixed:.0%}"}]),
        "room": {"x": SIZE_RANGE, "y": [0.0, 0.72]},
    }
    ends = " to ".join(
        f"{e.utilization:.0%} at {show(e.weights, '')}" for e in (fitting[0], fitting[-1])
    )
    larger = " Larger sizes fit in no layout." * (len(fitting) < len(own.family))
    return data, f"MFU from {ends} parameters; {words}.{larger}"
