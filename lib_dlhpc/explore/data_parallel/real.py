"""The panel that exchanges the gradients of a step for real: one button, and the page stays alive.

The exchange only, without backward to hide behind: live.py trains whole steps.
"""

import threading
from collections.abc import Callable
from typing import Any

import ipywidgets

from lib_dlhpc.explore.allreduce.measured import RANKS, MpiMissing
from lib_dlhpc.explore.blocks.charts import chart
from lib_dlhpc.explore.blocks.panels import problem_html
from lib_dlhpc.explore.blocks.style import PAGE_STYLE
from lib_dlhpc.explore.blocks.workbench import verdict_html
from lib_dlhpc.explore.data_parallel.charts import step_exchange_state
from lib_dlhpc.explore.data_parallel.here import MODEL, measure
from lib_dlhpc.spec.units import format_quantity

BUSY = 100e-6  # s; no message in one memory takes so long by itself


def exchange_here(measured: Callable[[], dict[str, Any]] = measure) -> ipywidgets.VBox:
    """Return a button that exchanges the gradients of one step on MPI ranks, for several bucket sizes.

    measured: what does it, in a thread of its own; MpiMissing is told in the place of a result.
    """
    button = ipywidgets.Button(
        description=f"Exchange on {RANKS} MPI ranks",
        button_style="primary",
        layout={"width": "auto", "align_self": "flex-start"},
        tooltip="Takes some ten seconds; the page stays usable",
    )
    said = ipywidgets.HTML(
        verdict_html("Not run yet. It takes some ten seconds; the page stays usable.")
    )
    figure, below = chart("step_exchange", *step_exchange_state([])), ipywidgets.VBox([])

    def work() -> None:
        try:
            result = measured()
        except MpiMissing as reason:
            said.value = problem_html(
                f"{reason} Without MPI this part stays empty; the experiments above need none of it."
            )
        else:
            figure.update(*step_exchange_state(result["rows"]))
            below.children = (figure,)
            said.value = exchange_words(result)
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


def exchange_words(result: dict[str, Any]) -> str:
    """Say what the price was made of, how far off it is, and what no single machine can show."""
    rows = result["rows"]
    off = sorted(row["median"] / row["price"] for row in rows)
    many, one = rows[0], rows[-1]
    alpha, rate = format_quantity(result["alpha"], "s"), 1 / max(result["beta"], 1e-15)
    busy = ""
    if result["alpha"] > BUSY:
        busy = (
            " An α this long is the scheduler's: even the calibrating exchange waited for a core."
        )
    return verdict_html(
        f"<b>Measured.</b> The gradients of {MODEL} in {many['buckets']} buckets take"
        f" {format_quantity(many['median'], 's')}, in one {format_quantity(one['median'], 's')}."
        f"<br><b>Price.</b> One exchange between neighbors gave α = {alpha} and 1/β ="
        f" {format_quantity(rate, 'B/s')}; from these alone the buckets are priced, as a ring."
        f"<br><b>Error.</b> The medians are {off[0]:.2g} to {off[-1]:.2g} times the price."
        " Above it: ranks that share a core wait for their turn in every round, and small buckets have the"
        " most rounds. Below it: large blocks that move faster than the one that calibrated."
        f"{busy}<br><b>Not seen here.</b> A network, and backward to hide behind."
    )
