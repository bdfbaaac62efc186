"""A schedule on the screen: `draw` it in space and time, `animate` it chunk by chunk, or play with both.

draw(schedule("ring", ranks=4, elements=8))
animate(schedule("ring", ranks=4, elements=8))
rounds_and_chunks()                             an experiment with controls
try_out(my_allreduce)                           proof or mistake, price, drawing, animation
"""

from collections.abc import Callable, Sequence
from html import escape
from pathlib import Path
from typing import Any, NamedTuple

import anywidget
import ipywidgets
import numpy as np
import traitlets

from lib_dlhpc.errors import SpecError
from lib_dlhpc.explore.allreduce.charts import messages_state, name_of
from lib_dlhpc.explore.blocks.charts import chart
from lib_dlhpc.explore.blocks.figure import Figure
from lib_dlhpc.explore.blocks.plain_text import Column
from lib_dlhpc.explore.blocks.style import PAGE_STYLE
from lib_dlhpc.explore.blocks.workbench import dropdown, slider, wall_html, workbench
from lib_dlhpc.schedules import COLLECTIVES, ProofError, Round, Schedule, price, prove, schedule
from lib_dlhpc.schedules.checks import checked
from lib_dlhpc.schedules.rounds import Rounds
from lib_dlhpc.spec.units import format_quantity

HERE = Path(__file__).parent
MOST_RANKS, MOST_BLOCKS, MOST_ROUNDS = 16, 32, 64  # what can still be seen
NODE = 4  # ranks a node, for the algorithms that know of nodes
TRIED = {"ranks": 4, "elements": 8}
PRICED = (1_000, 1_000_000)  # B, at which a tried algorithm is priced
ALPHA, BETA = 10e-6, 1 / 1e9  # s, s/B of the network it is priced on


class Story(NamedTuple):
    """What a schedule does to the blocks of every rank's buffer.

    edges: where blocks begin, and the end. held: [round][rank][block], bit r set: the contribution of
    rank r is in it; negative: some contribution is in it more than once. words: what happened, a round.
    """

    rounds: list[Round]
    edges: list[int]
    held: list[list[list[int]]]
    words: list[str]


class Chunks(anywidget.AnyWidget):
    """Who holds which contributions, step by step: play, step or drag; chunks move between ranks."""

    _esm = HERE / "static" / "chunks.js"
    _css = HERE / "static" / "chunks.css"

    ranks = traitlets.Int(1).tag(sync=True)
    edges: Any = traitlets.List().tag(sync=True)
    held: Any = traitlets.List().tag(sync=True)
    moves: Any = traitlets.List().tag(
        sync=True
    )  # a round: [source, target, first block, last + 1, reduce]
    words: Any = traitlets.List().tag(sync=True)
    round = traitlets.Int(0).tag(sync=True)
    serial = traitlets.Int(0).tag(sync=True)

    def __repr__(self) -> str:
        return f"Chunks({self.ranks} ranks, {len(self.moves)} rounds)"


def follow(rounds: Sequence[Round], ranks: int, elements: int) -> Story:
    """Return what every rank holds after every round; right or wrong, the schedule is followed."""
    cut = [array for part in rounds for array in (part.offset, part.offset + part.count)]
    edges = np.unique(np.concatenate([np.array([0, elements]), *cut]))
    held = np.zeros((ranks, len(edges) - 1, ranks), dtype=np.int64)  # how often who is in it
    held[np.arange(ranks), :, np.arange(ranks)] = 1
    states, words = [held], ["Every rank holds its own contribution."]
    for number, part in enumerate(rounds, start=1):
        after = states[-1].copy()
        for s, t, o, c, reduce in zip(*(a.tolist() for a in part.arrays), strict=True):
            blocks = slice(*np.searchsorted(edges, [o, o + c]).tolist())
            sent = states[-1][s, blocks]
            after[t, blocks] = after[t, blocks] + sent if reduce else sent
        after = np.minimum(after, 100)
        states.append(after)
        words.append(f"Round {number}: {_round_words(part, after)}")
    return Story(list(rounds), edges.tolist(), [_coded(state) for state in states], words)


def draw(plan: Schedule, now: int = 0) -> Figure:
    """Return the space-time diagram of `plan`: ranks down, rounds across, a line for each message.

    now: the round to show bright, from 1; 0 shows none. Raises SpecError for what cannot be drawn.
    """
    rounds = _seen(plan)
    return chart(
        "messages", *messages_state(rounds, plan.ranks, plan.elements, now, name_of(plan.name))
    )


def animate(plan: Schedule) -> Chunks:
    """Return the animation of `plan`, with its own slider and play button. Raises SpecError as `draw`."""
    widget = Chunks()
    _tell(widget, follow(_seen(plan), plan.ranks, plan.elements), plan.ranks)
    return widget


def rounds_and_chunks() -> ipywidgets.Box:
    """Return the experiment of rounds: choose an algorithm, see its messages, and chunks that move."""
    names = list(COLLECTIVES["allreduce"])
    controls = {
        "algorithm": dropdown(
            "Algorithm", "Who sends what to whom", [(_named(n), n) for n in names], "ring"
        ),
        "ranks": slider("Ranks", "p", [(str(p), p) for p in range(2, MOST_RANKS + 1)], 8),
        "elements": slider(
            "Elements", "n, of each buffer", [(str(n), n) for n in (1, 2, 4, 8, 12, 16, 32)], 8
        ),
    }
    facts, wall = ipywidgets.HTML(), ipywidgets.HTML()
    figure, chunks = chart("messages"), Chunks()

    def plan() -> Schedule:
        return example(
            controls["algorithm"].value, controls["ranks"].value, controls["elements"].value
        )

    def show() -> None:
        now = plan()
        rounds = _seen(now)
        _tell(chunks, follow(rounds, now.ranks, now.elements), now.ranks)
        facts.value = f'<p class="dlhpc-verdict">{escape(str(prove(now)))} {_formula(now)}</p>'
        wall.value = wall_html(empty_wall(rounds), "No message is empty.")
        picture(None)

    def picture(_: Any) -> None:
        now = plan()
        figure.update(
            *messages_state(_seen(now), now.ranks, now.elements, chunks.round, name_of(now.name))
        )

    chunks.observe(picture, "round")
    note = "how many rounds there are, and how full the messages of each are. Press play."
    return workbench(controls, [facts, wall, chunks, figure], show, note)


def example(algorithm: str, ranks: int, elements: int) -> Schedule:
    """Return the schedule of an allreduce; those that know of nodes get nodes of NODE ranks, or fewer."""
    node = max(n for n in range(1, min(NODE, ranks) + 1) if ranks % n == 0)
    options = COLLECTIVES["allreduce"][algorithm].on_nodes(ranks, node)
    return schedule(algorithm, ranks, elements, **options)


def empty_wall(rounds: Sequence[Round]) -> str:
    """Say how many messages carry nothing and still cost their latency, or nothing."""
    empty = sum(int((part.count == 0).sum()) for part in rounds)
    every = sum(map(len, rounds))
    if not empty:
        return ""
    return f"Too few elements to cut: {empty} of {every} messages are empty, and each still costs its latency."


def try_out(
    algorithm: Callable[..., Rounds], ranks: int = TRIED["ranks"], elements: int = TRIED["elements"]
) -> ipywidgets.VBox:
    """Prove, price, draw and animate your own allreduce, or show where it goes wrong.

    algorithm: def f(ranks, elements) that yields rounds, lists of messages
    (source, target, offset, count, "reduce" or "copy").
    """
    parts: list[Any] = [ipywidgets.HTML(PAGE_STYLE)]
    start = 0
    try:
        plan = schedule(algorithm, ranks, elements)
        try:
            said = wall_html("", f"{escape(str(prove(plan)))} {_compared(algorithm, ranks)}")
        except ProofError as error:
            said = wall_html(str(error), "").replace("Wall.", "Not an allreduce yet.")
            start = 0 if error.round is None else error.round + 1
        parts.append(ipywidgets.HTML(said))
        figure, chunks = draw(plan, start), animate(plan)
        chunks.round = start
        chunks.observe(lambda move: figure.update(*_picture(plan, move["new"])), "round")
        parts += [chunks, figure]
    except SpecError as error:
        if len(parts) == 1:
            parts.append(ipywidgets.HTML(wall_html(str(error), "")))
    except Exception as error:  # whatever a learner's function may raise is shown, not raised
        problem = f"Your function stopped with {type(error).__name__}: {error}"
        parts.append(ipywidgets.HTML(wall_html(problem, "")))
    box = Column(parts)
    box.add_class("dlhpc-results")
    return box


def _picture(plan: Schedule, now: int) -> Any:
    return messages_state(_seen(plan), plan.ranks, plan.elements, now, name_of(plan.name))


def _compared(algorithm: Callable[..., Rounds], ranks: int) -> str:
    """Say what the algorithm costs at two sizes, beside a ring."""
    prices = []
    for size in PRICED:
        mine, ring = (
            price(schedule(a, ranks, size // 4), ALPHA, BETA).total for a in (algorithm, "ring")
        )
        prices.append(
            f"{format_quantity(size, 'B')} take {format_quantity(mine, 's')} (ring {format_quantity(ring, 's')})"
        )
    return f"At 10 µs and 1 GB/s {', '.join(prices)}."


def _seen(plan: Schedule) -> list[Round]:
    rounds = checked(plan)
    if plan.ranks > MOST_RANKS or plan.elements > MOST_BLOCKS or len(rounds) > MOST_ROUNDS:
        raise SpecError(
            f"{plan.name}: a picture shows at most {MOST_RANKS} ranks, {MOST_BLOCKS} elements and {MOST_ROUNDS}"
            f" rounds; here: {plan.ranks}, {plan.elements}, {len(rounds)}."
        )
    return rounds


def _tell(widget: Chunks, story: Story, ranks: int) -> None:
    edges = np.asarray(story.edges)
    with widget.hold_sync():
        widget.ranks, widget.edges, widget.held = ranks, story.edges, story.held
        widget.moves = [
            [
                [s, t, *np.searchsorted(edges, [o, o + c]).tolist(), reduce]
                for s, t, o, c, reduce in zip(*(a.tolist() for a in part.arrays), strict=True)
            ]
            for part in story.rounds
        ]
        widget.words, widget.round = story.words, 0
        widget.serial += 1


def _coded(state: np.ndarray) -> list[list[int]]:
    mask = ((state > 0) * 2 ** np.arange(state.shape[2])).sum(2)
    coded: list[list[int]] = np.where((state > 1).any(2), -mask, mask).tolist()
    return coded


def _round_words(part: Round, after: np.ndarray) -> str:
    complete, repeated = int((after == 1).all(2).sum()), int((after > 1).any(2).sum())
    whole = after.shape[0] * after.shape[1]
    kinds = [
        f"{n} {kind}"
        for n, kind in ((int(part.reduce.sum()), "reduce"), (int((~part.reduce).sum()), "copy"))
        if n
    ]
    said = f"{' and '.join(kinds) or 'no'} message{'s' * (len(part) != 1)}; {complete} of {whole} blocks are complete."
    return said + (f" {repeated} hold something twice." if repeated else "")


def _named(name: str) -> str:
    words = name_of(name)
    return words[0].upper() + words[1:]


def _formula(plan: Schedule) -> str:
    """The price in symbols: how often alpha, and how many buffers beta and gamma cover."""
    alpha = price(plan, alpha=1.0).latency
    size = max(plan.elements, 1) * 4
    beta, gamma = price(plan, beta=1 / size).bandwidth, price(plan, gamma=1 / size).reduction
    return f"Price: {alpha:g} α + {beta:.3g} n β + {gamma:.3g} n γ."
