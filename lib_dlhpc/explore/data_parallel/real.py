"""The gradients of a step, allreduced on MPI ranks of this machine; live.py trains whole steps."""

import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import ipywidgets

from lib_dlhpc.explore.allreduce.panel import Result, calibrated_words, measuring_panel
from lib_dlhpc.explore.blocks.charts import State, columns
from lib_dlhpc.explore.blocks.runner import Thread
from lib_dlhpc.explore.data_parallel.here import MODEL, measure
from lib_dlhpc.spec.units import format_quantity

BUSY = 100e-6  # s; no message in one memory takes so long by itself


def exchange_here(
    measured: Callable[..., Result] = measure, thread: Thread = threading.Thread
) -> ipywidgets.VBox:
    """Return a button that exchanges the gradients of one step on MPI ranks, for several bucket sizes."""
    idle = "Not run yet. It takes some ten seconds; the page stays usable."
    parts = (measured, "step_exchange", exchange_chart, exchange_words)
    return measuring_panel("Exchange", idle, *parts, thread)


def exchange_chart(rows: Sequence[Mapping[str, Any]]) -> State:
    """Return measured p10, median, p90 in s of all buckets of a step, and their price, for each bucket size."""
    words = [
        f"{row['buckets']} of {format_quantity(row['size'], 'B')}: {format_quantity(row['median'], 's')},"
        f" priced {format_quantity(row['price'], 's')}"
        for row in rows
    ]
    return {"points": {**columns(rows), "words": words}}, f"Medians: {'; '.join(words)}."


def exchange_words(result: Result) -> str:
    """Say what the prediction was based on, how far off it is, and what no single machine can show."""
    rows = result["rows"]
    off = sorted(row["median"] / row["price"] for row in rows)
    many, one = rows[0], rows[-1]
    busy = ""
    if result["alpha"] > BUSY:
        busy = " An α this long is the scheduler's: even the calibrating message waited for a core."
    return (
        f"<b>Measured.</b> The gradients of {MODEL} in {many['buckets']} buckets take"
        f" {format_quantity(many['median'], 's')}, in one {format_quantity(one['median'], 's')}."
        f"<br>{calibrated_words(result)} the predictions of the buckets, as rings, use only these."
        f"<br><b>Error.</b> The medians are {off[0]:.2g} to {off[-1]:.2g} times the prediction."
        " They are above it where ranks that share a core wait for it in every round, and small buckets have"
        " the most rounds; they are below it where large blocks move faster than the one used for calibration."
        f"{busy}<br><b>Not seen here.</b> A network, and backward to overlap with."
    )
