"""The panel that runs allreduces for real: one button, and the page stays alive while the ranks work."""

import os
import threading
from collections.abc import Callable
from html import escape
from typing import Any

import ipywidgets

from lib_dlhpc.explore.allreduce.charts import measured_state
from lib_dlhpc.explore.allreduce.measured import RANKS, MpiMissing, measure
from lib_dlhpc.explore.blocks.charts import chart
from lib_dlhpc.explore.blocks.panels import problem_html
from lib_dlhpc.explore.blocks.style import PAGE_STYLE
from lib_dlhpc.explore.blocks.workbench import verdict_html
from lib_dlhpc.spec.units import format_quantity


def run_here(measured: Callable[[], dict[str, Any]] = measure) -> ipywidgets.VBox:
    """Return a button that measures ring, Rabenseifner and the library on MPI ranks of this machine.

    measured: what does it, in a thread of its own; MpiMissing is told in the place of a result.
    """
    button = ipywidgets.Button(
        description=f"Run on {RANKS} MPI ranks",
        button_style="primary",
        layout={"width": "auto", "align_self": "flex-start"},
        tooltip="Takes a few seconds; the page stays usable",
    )
    said = ipywidgets.HTML(
        verdict_html("Not run yet. It takes a few seconds; everything else stays usable.")
    )
    figure = chart("measured", *measured_state([]))
    below = ipywidgets.VBox([])

    def work() -> None:
        try:
            result = measured()
        except MpiMissing as reason:
            said.value = problem_html(
                f"{reason} Without MPI this part stays empty; the experiments above need none of it."
            )
        else:
            figure.update(*measured_state(result["rows"]))
            below.children = (figure,)
            said.value = result_words(result)
        finally:
            button.disabled = False

    def start(_: Any) -> None:
        button.disabled = True
        said.value = verdict_html(f"{RANKS} ranks are at work ...")
        threading.Thread(target=work, daemon=True).start()

    button.on_click(start)
    box = ipywidgets.VBox([ipywidgets.HTML(PAGE_STYLE), button, said, below])
    box.add_class("dlhpc-results")
    return box


def result_words(result: dict[str, Any]) -> str:
    """Say what the price was made of, how far off it is, and why."""
    rows = [row for row in result["rows"] if row["price"]]
    quiet = sorted(row["low"] / row["price"] for row in rows)
    usual = sorted(row["median"] / row["price"] for row in rows)
    cores = (
        len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    )
    crowd = (
        f"{result['ranks']} ranks share {cores} cores here, so they wait for each other's turn, not only for data"
        if cores < result["ranks"]
        else "other programs take turns on the same cores"
    )
    alpha, rate = format_quantity(result["alpha"], "s"), 1 / max(result["beta"], 1e-15)
    return verdict_html(
        f"<b>Price.</b> One exchange between neighbors gave α = {alpha} and 1/β = {format_quantity(rate, 'B/s')};"
        " from these alone each algorithm is priced."
        f"<br><b>Error.</b> The quietest tenth of the runs takes {quiet[0]:.2g} to {quiet[-1]:.2g} times the price,"
        f" the median {usual[0]:.2g} to {usual[-1]:.2g} times."
        f"<br><b>Why.</b> There is no network: messages are copies in one memory, which all ranks share, and"
        f" {escape(crowd)}. A run of one machine does not tell which algorithm a cluster should use."
    )
