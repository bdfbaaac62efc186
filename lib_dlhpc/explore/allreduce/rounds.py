"""Rounds of an allreduce: choose an algorithm, see its messages, and chunks that move."""

from html import escape
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import anywidget
import numpy as np
import traitlets

from lib_dlhpc.explore.allreduce.charts import name_of
from lib_dlhpc.explore.allreduce.messages import MOST_RANKS, messages_chart, visible
from lib_dlhpc.explore.blocks.bench import Bench, Dropdown, Slider, View
from lib_dlhpc.explore.blocks.figure import Figure
from lib_dlhpc.schedules import COLLECTIVES, Round, Schedule, price, prove, schedule

STATIC = Path(__file__).parent / "static"


class Chunks(anywidget.AnyWidget):
    """Who holds which contributions, step by step: play, step or drag; chunks move between ranks."""

    _esm = STATIC / "chunks.js"
    _css = STATIC / "chunks.css"

    ranks = traitlets.Int(1).tag(sync=True)
    edges: Any = traitlets.List().tag(sync=True)  # where blocks begin, and the end
    # [round][rank][block], bit r set: the contribution of rank r is in it; negative: one more than once
    held: Any = traitlets.List().tag(sync=True)
    # [round][message]: [source, target, first block, last + 1, reduce]
    moves: Any = traitlets.List().tag(sync=True)
    words: Any = traitlets.List().tag(sync=True)  # what happened, a round
    round = traitlets.Int(0).tag(sync=True)
    serial = traitlets.Int(0).tag(sync=True)

    def show(self, plan: Schedule) -> None:
        """Show a schedule, right or wrong, from its start. Raises SpecError for what cannot be drawn."""
        self.plan = plan
        with self.hold_sync():
            self.edges, self.held, self.moves, self.words = _followed(plan)
            self.ranks, self.round = plan.ranks, 0
            self.serial += 1

    def lead(self, figure: Figure) -> None:
        """Let a figure of "messages" show the round that is shown here."""
        self.observe(lambda _: figure.update(*messages_chart(self.plan, self.round)), "round")


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


def _followed(plan: Schedule) -> tuple[list[int], list[Any], list[Any], list[str]]:
    """Return edges, held, moves and words of a schedule."""
    rounds = visible(plan)
    cut = [array for part in rounds for array in (part.offset, part.offset + part.count)]
    edges = np.unique(np.concatenate([np.array([0, plan.elements]), *cut]))
    # [rank, block, who]: how often the contribution of `who` is in it
    held = np.repeat(np.eye(plan.ranks, dtype=np.int64)[:, None], len(edges) - 1, axis=1)
    states, moves, words = [_coded(held)], [], ["Every rank holds its own contribution."]
    for number, part in enumerate(rounds, start=1):
        first, last = np.searchsorted(edges, [part.offset, part.offset + part.count])
        arrays = (part.source, part.target, first, last, part.reduce)
        moves.append([list(move) for move in zip(*(a.tolist() for a in arrays), strict=True)])
        before, held = held, held.copy()
        for source, target, start, stop, reduce in moves[-1]:
            sent = before[source, start:stop]
            held[target, start:stop] = held[target, start:stop] + sent if reduce else sent
        held = np.minimum(held, 100)
        states.append(_coded(held))
        words.append(f"Round {number}: {_round_words(part, held)}")
    return edges.tolist(), states, moves, words


def _coded(held: np.ndarray) -> list[list[int]]:
    mask = ((held > 0) * 2 ** np.arange(held.shape[2])).sum(2)
    return np.where((held > 1).any(2), -mask, mask).tolist()


def _round_words(part: Round, held: np.ndarray) -> str:
    reduces, repeated = int(part.reduce.sum()), int((held > 1).any(2).sum())
    kinds = {"reduce": reduces, "copy": len(part) - reduces}
    said = " and ".join(f"{count} {kind}" for kind, count in kinds.items() if count) or "no"
    complete, blocks = int((held == 1).all(2).sum()), held.shape[0] * held.shape[1]
    twice = f" {repeated} hold something twice." if repeated else ""
    return f"{said} message{'s' * (len(part) != 1)}; {complete} of {blocks} blocks are complete.{twice}"
