"""The panel that runs allreduces for real: one button, and the page stays alive while the ranks work."""

import os
import threading
from collections.abc import Callable
from html import escape
from typing import Any

import ipywidgets

from lib_dlhpc.explore.allreduce.charts import measured_state
from lib_dlhpc.explore.allreduce.measured import RANKS, measure
from lib_dlhpc.explore.blocks.charts import chart
from lib_dlhpc.explore.blocks.ranks import stoppable
from lib_dlhpc.explore.blocks.runner import Runner, Thread
from lib_dlhpc.spec.units import format_quantity


def run_here(
    measured: Callable[..., dict[str, Any]] = measure, thread: Thread = threading.Thread
) -> ipywidgets.VBox:
    """Return a button that measures ring, Rabenseifner and the library on MPI ranks of this machine."""
    figure, below = chart("measured", *measured_state([])), ipywidgets.VBox([])

    def work(runner: Runner) -> None:
        runner.say(f"{RANKS} ranks are at work ...")
        result = measured(run=stoppable(runner.stop))
        figure.update(*measured_state(result["rows"]))
        below.children = (figure,)
        runner.say(result_words(result))

    idle = "Not run yet. It takes a few seconds; everything else stays usable."
    runner = Runner(f"Run on {RANKS} MPI ranks", work, idle, thread=thread)
    box = ipywidgets.VBox([runner.widget, below])
    box.add_class("dlhpc-results")
    return box


def result_words(result: dict[str, Any]) -> str:
    """Say what the prediction is based on, how far off it is, and why."""
    rows = [row for row in result["rows"] if row["price"]]
    quiet = sorted(row["low"] / row["price"] for row in rows)
    usual = sorted(row["median"] / row["price"] for row in rows)
    cores = (
        len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    )
    crowd = (
        f"{result['ranks']} ranks share {cores} cores here, so they wait for a core, not only for data"
        if cores < result["ranks"]
        else "other programs take turns on the same cores"
    )
    alpha, rate = format_quantity(result["alpha"], "s"), 1 / max(result["beta"], 1e-15)
    return (
        f"<b>Predicted.</b> One exchange between neighbors gave α = {alpha} and 1/β = {format_quantity(rate, 'B/s')};"
        " each algorithm follows from these alone."
        f"<br><b>Error.</b> The quietest tenth of the runs takes {quiet[0]:.2g} to {quiet[-1]:.2g} times the"
        f" prediction,"
        f" the median {usual[0]:.2g} to {usual[-1]:.2g} times."
        f"<br><b>Why.</b> There is no network: messages are copies in one memory, which all ranks share, and"
        f" {escape(crowd)}. A run of one machine does not tell which algorithm a cluster should use."
    )
