"""Losses over an interval, by cause: the columns of their charts, and runs simulated beside them at a click."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import ipywidgets
import numpy as np

from lib_dlhpc.arrays import Floats
from lib_dlhpc.explore.blocks.bench import Bench, View
from lib_dlhpc.explore.blocks.charts import Data, State, columns, marked
from lib_dlhpc.explore.blocks.lines import line_columns
from lib_dlhpc.explore.blocks.workbench import verdict_html
from lib_dlhpc.spec.units import format_quantity as show

LEAST = 1e-4  # share of the time, where the charts end
RUNS, SEED = 200, 9  # runs simulated at each interval, unless a page has another number
HOPELESS = 0.9  # share of the time that is lost, above which runs take too long to simulate
Point = tuple[float, float, float, float, float]  # s; loss: mean, 10%, 90%, predicted
Simulated = Sequence[Point]


def losses_state(
    at: Floats,
    curves: Mapping[str, Floats],
    best: Mapping[str, float],
    now: float,
    simulated: Simulated = (),
) -> tuple[Data, str]:
    """Return the columns of a chart of losses, and the share that is lost now and at simulated points, in words.

    at: intervals in s. curves: shares by cause; the last is their sum. best: marked intervals in s, by name.
    """
    seen = {name: y >= LEAST for name, y in curves.items()}
    shown = {
        name: (at[seen[name]], y[seen[name]]) for name, y in curves.items() if seen[name].any()
    }
    marks = [(f"{name}: {show(x, 's')}", x) for name, x in best.items() if at[0] <= x <= at[-1]]
    rules = [{"x": x, "words": w, "dy": -4 - 14 * k} for k, (w, x) in enumerate(marks)]
    bars = [{"x": p[0], "y": p[1], "low": max(p[2], LEAST), "high": p[3]} for p in simulated]
    lost = list(curves.values())[-1]
    here = float(np.interp(np.log(now), np.log(at), np.nan_to_num(lost, nan=1.0)))
    right = now > np.sqrt(at[0] * at[-1])
    data = {
        **line_columns(shown),
        "marks": columns(rules),
        "now": marked(f"now: {here:.1%} lost", right, 11, x=now, y=max(here, LEAST)),
        "simulated": columns(bars),
        "room": {"y": [LEAST, 1.0], "x": [float(at[0]), float(at[-1])]},
    }
    data["ends"]["place"] = [max(place, 2 * LEAST) for place in data["ends"]["place"]]  # clear of x
    data["ends"]["late"] = [x > at[-1] / 30 for x in data["ends"]["x"]]
    named = ", ".join(f"{name} {show(x, 's')}" for name, x in best.items())
    words = f"{here:.1%} of the time is lost. Best intervals: {named}."
    if simulated:
        each = ", ".join(f"{mean:.1%} at {show(at, 's')}" for at, mean, *_ in simulated)
        words += f" Simulated runs lost {each}."
    return data, words


def simulated_point(at: float, work: float, wall: Floats, predicted: float) -> Point:
    """Return what runs of `work` s lost that took `wall` s each, beside the prediction."""
    low, high = np.quantile(1 - work / wall, (0.1, 0.9)).tolist()
    return at, float(1 - work / wall.mean()), low, high, predicted


def simulated_words(points: Simulated, runs: int = RUNS) -> str:
    """Say how far the simulated runs are from the formula."""
    if not points:
        return "Not simulated: hardly any run would complete."
    off = max(abs(mean / predicted - 1) for _, mean, _, _, predicted in points)
    return (
        f"<b>Simulated.</b> The mean loss of {runs:,} runs is within {off:.1%} of the formula at each of"
        f" {len(points)} intervals. Bars: eight of ten runs; a single run may be luckier, or not."
    )


def simulating(
    first: Any,
    view: Callable[[Any], View],
    losses: tuple[str, Callable[[Any, Simulated], State]],
    points: Callable[[Any], Simulated],
    charts: tuple[str, ...],
    fine: str,
    look: str,
    runs: int = RUNS,
) -> Bench[Any]:
    """Return a bench with a button below one of its charts, on which it draws simulated runs.

    losses: the name of that chart, and its state; charts: the names of all, from top to bottom.
    """
    drawn, state_of = losses
    said = ipywidgets.HTML()
    button = ipywidgets.Button(
        description=f"Simulate {runs:,} runs",
        button_style="primary",
        layout={"width": "auto", "align_self": "flex-start"},
        tooltip="Some seconds: at five intervals, with failures drawn at random",
    )

    def shown(setting: Any) -> View:
        said.value = ""  # of another setting
        return view(setting)

    def simulate(_: Any) -> None:
        found = points(bench.setting)
        bench.charts[drawn].update(*state_of(bench.setting, found))
        said.value = verdict_html(simulated_words(found, runs))

    button.on_click(simulate)
    below = {drawn: [button, said]}
    results = [each for name in charts for each in (name, *below.get(name, ()))]
    bench = Bench(first, shown, results, fine, look)
    return bench
