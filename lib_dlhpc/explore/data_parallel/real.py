"""The gradients of a step, allreduced on MPI ranks of this machine; live.py trains whole steps."""

import threading
from collections.abc import Callable
from typing import Any

import ipywidgets

from lib_dlhpc.explore.allreduce.measured import RANKS
from lib_dlhpc.explore.blocks.charts import chart
from lib_dlhpc.explore.blocks.ranks import stoppable
from lib_dlhpc.explore.blocks.runner import Runner, Thread
from lib_dlhpc.explore.data_parallel.charts import step_exchange_state
from lib_dlhpc.explore.data_parallel.here import MODEL, measure
from lib_dlhpc.spec.units import format_quantity

BUSY = 100e-6  # s; no message in one memory takes so long by itself


def exchange_here(
    measured: Callable[..., dict[str, Any]] = measure, thread: Thread = threading.Thread
) -> ipywidgets.VBox:
    """Return a button that exchanges the gradients of one step on MPI ranks, for several bucket sizes."""
    figure, below = chart("step_exchange", *step_exchange_state([])), ipywidgets.VBox([])

    def work(runner: Runner) -> None:
        runner.say(f"{RANKS} ranks are at work ...")
        result = measured(run=stoppable(runner.stop))
        figure.update(*step_exchange_state(result["rows"]))
        below.children = (figure,)
        runner.say(exchange_words(result))

    idle = "Not run yet. It takes some ten seconds; the page stays usable."
    runner = Runner(f"Exchange on {RANKS} MPI ranks", work, idle, thread=thread)
    box = ipywidgets.VBox([runner.widget, below])
    box.add_class("dlhpc-results")
    return box


def exchange_words(result: dict[str, Any]) -> str:
    """Say what the prediction was based on, how far off it is, and what no single machine can show."""
    rows = result["rows"]
    off = sorted(row["median"] / row["price"] for row in rows)
    many, one = rows[0], rows[-1]
    alpha, rate = format_quantity(result["alpha"], "s"), 1 / max(result["beta"], 1e-15)
    busy = ""
    if result["alpha"] > BUSY:
        busy = " An α this long is the scheduler's: even the calibrating message waited for a core."
    return (
        f"<b>Measured.</b> The gradients of {MODEL} in {many['buckets']} buckets take"
        f" {format_quantity(many['median'], 's')}, in one {format_quantity(one['median'], 's')}."
        f"<br><b>Predicted.</b> One exchange between neighbors gave α = {alpha} and 1/β ="
        f" {format_quantity(rate, 'B/s')}; the buckets follow from these alone, as rings."
        f"<br><b>Error.</b> The medians are {off[0]:.2g} to {off[-1]:.2g} times the prediction."
        " Above it: ranks that share a core wait for it in every round, and small buckets have the"
        " most rounds. Below it: large blocks that move faster than the one that calibrated."
        f"{busy}<br><b>Not seen here.</b> A network, and backward to overlap with."
    )
