"""Your own allreduce: proof or mistake, price, drawing and animation."""

from collections.abc import Callable
from html import escape
from typing import Any

import ipywidgets

from lib_dlhpc.errors import SpecError
from lib_dlhpc.explore.allreduce.messages import messages_chart
from lib_dlhpc.explore.allreduce.rounds import Chunks
from lib_dlhpc.explore.blocks.charts import chart
from lib_dlhpc.explore.blocks.plain_text import Column
from lib_dlhpc.explore.blocks.style import PAGE_STYLE
from lib_dlhpc.explore.blocks.workbench import wall_html
from lib_dlhpc.schedules import ProofError, Rounds, Schedule, price, prove, schedule
from lib_dlhpc.spec.units import format_quantity

PRICED = (1_000, 1_000_000)  # B, at which an algorithm is priced
ALPHA, BETA = 10e-6, 1 / 1e9  # s, s/B of the network it is priced on


def try_out(algorithm: Callable[..., Rounds], ranks: int = 4, elements: int = 8) -> Column:
    """Prove, price, draw and animate your own allreduce, or show where it goes wrong.

    algorithm: def f(ranks, elements) that yields rounds, lists of messages
    (source, target, offset, count, "reduce" or "copy").
    """
    said, shown = "", []
    try:
        plan = schedule(algorithm, ranks, elements)
        said, wrong = _proved(plan, algorithm)
        figure, chunks = chart("messages", *messages_chart(plan, wrong)), Chunks()
        chunks.show(plan)
        chunks.lead(figure)
        chunks.round = wrong
        shown = [chunks, figure]
    except SpecError as error:
        said = said or wall_html(str(error), "")
    except Exception as error:  # whatever a learner's function may raise is shown, not raised
        said += wall_html(f"Your function stopped with {type(error).__name__}: {error}", "")
    box = Column([ipywidgets.HTML(PAGE_STYLE), ipywidgets.HTML(said), *shown])
    box.add_class("dlhpc-results")
    return box


def _proved(plan: Schedule, algorithm: Callable[..., Rounds]) -> tuple[str, int]:
    """Return the proof with the price, or the mistake; and the round that is wrong, from 1, or 0."""
    try:
        proof = escape(str(prove(plan)))
        return wall_html("", f"{proof} {_compared(algorithm, plan.ranks)}"), 0
    except ProofError as error:
        said = wall_html(str(error), "").replace("Wall.", "Not an allreduce yet.")
        return said, 0 if error.round is None else error.round + 1


def _compared(algorithm: Callable[..., Rounds], ranks: int) -> str:
    """Say what the algorithm costs at two sizes, beside a ring."""

    def takes(name: Any, size: int) -> str:
        return format_quantity(price(schedule(name, ranks, size // 4), ALPHA, BETA).total, "s")

    prices = [
        f"{format_quantity(size, 'B')} take {takes(algorithm, size)} (ring {takes('ring', size)})"
        for size in PRICED
    ]
    return f"At 10 µs and 1 GB/s {', '.join(prices)}."
