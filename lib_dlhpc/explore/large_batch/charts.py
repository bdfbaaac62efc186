"""What the charts of the lesson on large batches share: how lines look, means with deviations, labels, runs."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from lib_dlhpc.explore.blocks.charts import State, apart, columns
from lib_dlhpc.explore.blocks.lines import FIRST, SECOND, THIRD
from lib_dlhpc.results.palette import SERIES

LINES = {
    "linear scaling": SECOND,
    "SGD, rate retuned": FIRST,
    "LARS": THIRD,
    "LAMB": (SERIES[3], [1, 0], "diamond"),
    "another rule": FIRST,
    "LARS, 12 epochs": (SERIES[2], [8, 3], "triangle-down"),
    "SGD, 12 epochs": (SERIES[0], [8, 3], "diamond"),
}
RUNS = (
    FIRST,
    SECOND,
    THIRD,
    (SERIES[3], [8, 3], "diamond"),
    (SERIES[4], [4, 2, 1, 2], "cross"),
    (SERIES[6], [1, 2], "triangle-down"),
)
LOWEST = 1e-3  # share of wrong answers, for a logarithmic axis
GAP = 0.06  # of an axis from 0 to 1: a line of text


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

    def add(self, epoch: float, accuracy: float) -> None:
        """Append the end of an epoch."""
        self.epochs.append(epoch)
        self.accuracy.append(accuracy)


def measured(series: Mapping[str, Iterable[Point]]) -> dict[str, list[Any]]:
    """Return the columns of means and deviations of shares, one series a rule."""
    return columns(
        {
            "line": name,
            "x": p.x,
            "y": p.y,
            "low": max(p.y - p.deviation, LOWEST),
            "high": min(p.y + p.deviation, 1.0),
            "words": p.words,
        }
        for name, points in series.items()
        for p in points
    )


def runs_state(
    curves: Sequence[Curve], epochs: float, target: tuple[float, str] | None = None
) -> State:
    """Return accuracy against epochs of at most six runs; target: a level to compare with, and its words."""
    shown = {str(i + 1): curve for i, curve in enumerate(curves) if curve.epochs}
    places = apart((curve.accuracy[-1] for curve in shown.values()), GAP)
    data = {
        "lines": columns(
            {"line": number, "x": x, "y": y}
            for number, curve in shown.items()
            for x, y in zip(curve.epochs, curve.accuracy, strict=True)
        ),
        "ends": columns(
            {"line": number, "words": f"{number}: {curve.name}", "x": epochs, "place": place}
            for (number, curve), place in zip(shown.items(), places, strict=True)
        ),
        "room": {"x": [0.0, float(epochs)], "y": [0.0, 1.0]},
        "target": columns({"y": y, "words": words} for y, words in ([target] if target else [])),
    }
    accuracies = "; ".join(
        f"{number}: {c.name} {c.accuracy[-1]:.1%}" for number, c in shown.items()
    )
    return data, f"Test accuracy: {accuracies}." if accuracies else "Nothing trained yet."
