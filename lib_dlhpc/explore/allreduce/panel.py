"""Panels that exchange for real: a button, and the page stays alive while MPI ranks of this machine work."""

import threading
from collections.abc import Callable, Mapping, Sequence
from html import escape
from typing import Any

import ipywidgets

from lib_dlhpc.explore.allreduce.charts import name_of
from lib_dlhpc.explore.allreduce.measured import RANKS, measure
from lib_dlhpc.explore.blocks.charts import State, columns
from lib_dlhpc.explore.blocks.panel import Panel
from lib_dlhpc.explore.blocks.ranks import stoppable
from lib_dlhpc.explore.blocks.runner import Thread
from lib_dlhpc.spec.host import cores
from lib_dlhpc.spec.units import format_quantity

Result = dict[str, Any]  # of measured.measure


def run_here(
    measured: Callable[..., Result] = measure, thread: Thread = threading.Thread
) -> ipywidgets.VBox:
    """Return a button that measures ring, Rabenseifner and the library on MPI ranks of this machine."""
    idle = "Not run yet. It takes a few seconds; everything else stays usable."
    return measuring_panel("Run", idle, measured, "measured", measured_chart, result_words, thread)


def measuring_panel(
    verb: str,
    idle: str,
    measured: Callable[..., Result],
    name: str,
    state: Callable[[Sequence[Mapping[str, Any]]], State],
    words: Callable[[Result], str],
    thread: Thread,
) -> ipywidgets.VBox:
    """Return a button that measures on MPI ranks; then a chart shows the rows of the result.

    idle: said before. measured(run=...): measures. name, state: the chart and what it shows of the
    rows. words: said of the result, HTML.
    """

    def work(panel: Panel) -> None:
        panel.say(f"{RANKS} ranks are at work ...")
        result = measured(run=stoppable(panel.stop))
        panel.show(state(result["rows"]))
        panel.say(words(result))

    box = Panel(f"{verb} on {RANKS} MPI ranks", name, work, idle, thread=thread).widget
    box.add_class("dlhpc-results")
    return box


def measured_chart(rows: Sequence[Mapping[str, Any]]) -> State:
    """Return the chart "measured": p10, median, p90 in s for each size, and the prediction where there is one."""
    names = list(dict.fromkeys(row["algorithm"] for row in rows))
    shift = {name: 1.16 ** (i - (len(names) - 1) / 2) for i, name in enumerate(names)}
    points = [
        {
            **row,
            "place": row["size"] * shift[row["algorithm"]],
            "time": format_quantity(row["median"], "s"),
            "expected": format_quantity(row["price"], "s") if row["price"] else "none",
        }
        for row in rows
    ]
    last = max(row["size"] for row in rows)
    medians = [
        f"{name_of(point['algorithm'])} {point['time']}"
        + (f" (predicted {point['expected']})" if point["price"] else "")
        for point in points
        if point["size"] == last
    ]
    summary = f"Medians at {format_quantity(last, 'B')}: {', '.join(medians)}."
    return {"points": columns(points)}, summary


def calibrated_words(result: Result) -> str:
    """Say what one exchange between neighbors gave."""
    alpha, rate = result["alpha"], 1 / max(result["beta"], 1e-15)
    return (
        f"<b>Predicted.</b> One exchange between neighbors gave α = {format_quantity(alpha, 's')}"
        f" and 1/β = {format_quantity(rate, 'B/s')};"
    )


def result_words(result: Result) -> str:
    """Say what the prediction is based on, how far off it is, and why."""
    rows = [row for row in result["rows"] if row["price"]]
    quiet, usual = (sorted(row[n] / row["price"] for row in rows) for n in ("low", "median"))
    crowd = "other programs take turns on the same cores"
    if cores() < result["ranks"]:
        crowd = f"{result['ranks']} ranks share {cores()} cores here, so they wait for a core, not only for data"
    return (
        f"{calibrated_words(result)} the prediction of each algorithm uses only these."
        f"<br><b>Error.</b> The quietest tenth of the runs takes {quiet[0]:.2g} to {quiet[-1]:.2g} times the"
        f" prediction, the median {usual[0]:.2g} to {usual[-1]:.2g} times."
        f"<br><b>Why.</b> There is no network: messages are copies within the memory that all ranks share, and"
        f" {escape(crowd)}. A run on one machine does not show which algorithm a cluster should use."
    )
