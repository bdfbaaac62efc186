"""Rounds of an allreduce: choose an algorithm, see its messages, and chunks that move."""

from html import escape
from typing import Annotated, NamedTuple

from lib_dlhpc.explore.allreduce.charts import name_of
from lib_dlhpc.explore.allreduce.chunks import Chunks
from lib_dlhpc.explore.allreduce.messages import MOST_RANKS, messages_chart
from lib_dlhpc.explore.blocks.bench import Bench, Dropdown, Slider, View
from lib_dlhpc.schedules import COLLECTIVES, Schedule, price, prove, schedule

NODE = 4  # ranks per node, for the algorithms that know of nodes
RANKS, ELEMENTS = range(2, MOST_RANKS + 1), (1, 2, 4, 8, 12, 16, 32)
ALLREDUCES = COLLECTIVES["allreduce"]


def capitalized(algorithm: str) -> str:
    """Return the name of an algorithm as a line begins with it."""
    name = name_of(algorithm)
    return name[0].upper() + name[1:]


class Example(NamedTuple):
    """An allreduce that can be drawn."""

    algorithm: Annotated[
        str, Dropdown("Algorithm", "Who sends what to whom", ALLREDUCES.keys(), capitalized)
    ] = "ring"
    ranks: Annotated[int, Slider("Ranks", "p", RANKS)] = 8
    elements: Annotated[int, Slider("Elements", "n, of each buffer", ELEMENTS)] = 8

    @property
    def plan(self) -> Schedule:
        """Its schedule; algorithms that know of nodes get nodes of NODE ranks, or fewer."""
        node = max(n for n in range(1, min(NODE, self.ranks) + 1) if self.ranks % n == 0)
        options = ALLREDUCES[self.algorithm].on_nodes(self.ranks, node)
        return schedule(self.algorithm, self.ranks, self.elements, **options)


def rounds_and_chunks() -> Bench[Example]:
    """Return the experiment of rounds."""
    chunks = Chunks()

    def view(setting: Example) -> View:
        plan = setting.plan
        chunks.show(plan)
        words = f"{escape(str(prove(plan)))} {_formula(plan)}"
        return View(words, _empty_wall(plan), {"messages": messages_chart(plan)})

    look = "how many rounds there are, and how full the messages of each are. Press play."
    bench = Bench(Example(), view, [chunks, "messages"], "No message is empty.", look)
    chunks.lead(bench.charts["messages"])
    return bench


def _formula(plan: Schedule) -> str:
    """Say the price in symbols: how often alpha, and how many buffers beta and gamma cover."""
    alpha, size = price(plan, alpha=1.0).latency, plan.elements * 4
    beta, gamma = price(plan, beta=1 / size).bandwidth, price(plan, gamma=1 / size).reduction
    return f"Price: {alpha:g} α + {beta:.3g} n β + {gamma:.3g} n γ."


def _empty_wall(plan: Schedule) -> str:
    """Say how many messages carry nothing and still cost their latency, or nothing."""
    empty = sum(int((part.count == 0).sum()) for part in plan)
    if not empty:
        return ""
    every = sum(len(part) for part in plan)
    return f"Too few elements to cut: {empty} of {every} messages are empty, and each still costs its latency."
