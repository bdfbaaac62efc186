"""The drawings of the lesson on serving, in Altair."""

from typing import Any

import altair as alt

from lib_dlhpc.explore.blocks import drawing as kit
from lib_dlhpc.explore.blocks.drawing import HALO, SI, Layers, data, drawing
from lib_dlhpc.explore.blocks.lines import LOOKS, THIRD
from lib_dlhpc.explore.serving import pools
from lib_dlhpc.explore.serving.drafts import DRAFT, MODELS, PARTS
from lib_dlhpc.explore.serving.lengths import LENGTHS as TOKENS
from lib_dlhpc.explore.serving.lengths import NAMES
from lib_dlhpc.explore.serving.load import CHUNKED, CONTINUOUS, RATES, STATIC
from lib_dlhpc.explore.serving.memory import GROUPED, MEMORY, MULTI, SHARED
from lib_dlhpc.explore.serving.prefixes import MEMORIES
from lib_dlhpc.explore.serving.replicas import SHAPES
from lib_dlhpc.explore.serving.served import COLORS
from lib_dlhpc.results.palette import SERIES

TICKS = [n * 10.0**k for k in range(-4, 9) for n in (1, 2, 5)]
DECADES = [10.0**k for k in range(-6, 18)]
ROUND: dict[str, Any] = {  # a logarithmic axis with round labels, and room for words at its ends
    "log": 10,
    "values": TICKS,
    "labelOverlap": True,
    "scale": {"padding": 10},
}
OLD, NEW = (SERIES[1], [1, 0], "square"), (SERIES[0], [6, 3], "circle")
PHASES = {"prefill": OLD, "decode": NEW}
ATTENTION = {MULTI: OLD, GROUPED: NEW, SHARED: THIRD}
WAYS = {STATIC: OLD, CONTINUOUS: NEW, CHUNKED: THIRD}
LENGTHS = dict(zip(NAMES, LOOKS, strict=True))
REPLICAS = dict(zip(SHAPES.values(), LOOKS, strict=True))
DRAFTS = dict(zip(MODELS, LOOKS, strict=False))
STORED = dict(zip(MEMORIES, LOOKS, strict=False))
POOLS = dict(zip((pools.MIXED, pools.CHUNKED, pools.APART), LOOKS, strict=False))


@kit.parts_of("phase", "term", "time", height=92, left=110, right=76, top=8)
def serving_answer() -> Layers:
    """Where does the time of an answer go?"""
    return kit.stacked_bars("time", "s", COLORS, 106, tickCount=5)


@drawing(
    height=250,
    left=100,
    top=20,
    path={"line": "phase", "size": "tokens or batch", "x": "FLOP per byte", "y": "FLOP/s"},
)
def serving_roofline() -> Layers:
    """How far below the roof? Squares: prompts of 128 to 32,768 tokens; circles: batches of 1 to 256."""
    title = "arithmetic intensity (FLOP per byte)"
    x = kit.x_axis("x:Q", title, "format(datum.value, ',~r')", log=10, values=DECADES, grid=False)
    y = kit.y_axis("y:Q", "rate", SI.format("FLOP/s"), log=10, values=DECADES)
    color, dash, shape = kit.looks("line:N", PHASES, key=True)
    path, now = data("path", x=x, y=y, color=color), data("now", x=x, y=y, color=color)
    words: dict[str, Any] = {**kit.BESIDE, "fontWeight": "bold", **HALO}
    words["dy"] = alt.expr("datum.dy")
    peak = data("names", x=x, y=y, text="words:N")
    return (
        kit.room().encode(x=x, y=y),
        data("roof", x=x, y=y).mark_line(strokeWidth=3, color="currentColor"),
        path.mark_line(strokeWidth=1.5, opacity=0.7).encode(strokeDash=dash, order="size:Q"),
        path.mark_point(filled=True, size=34, opacity=0.8).encode(
            shape=shape, tooltip=kit.tooltip_of("details")
        ),
        peak.mark_text(align="left", baseline="bottom", dx=4, dy=-5, **HALO),
        kit.symbols(now, 150, stroke="white").encode(shape=shape),
        now.mark_text(**words).encode(text="words:N"),
    )


@drawing(
    height=112,
    left=132,
    right=114,
    top=20,
    parts={"row": "attention", "part": "part", "size": "bytes"},
)
def serving_memory() -> Layers:
    """What fills a GPU? H100; sequences are added until it is full."""
    bars = kit.stacked_bars("memory of a GPU", "B", MEMORY, 128, tickCount=5)
    return *bars, *kit.upright("full")


@kit.lines_of("attention", "batch", "tokens/s", height=210, left=80, right=96, top=20)
def serving_batches() -> Layers:
    """How many tokens/s until the memory is full? Each line ends there."""
    x = kit.x_axis("x:Q", "sequences decoded at once", kit.WHOLE, log=2, grid=False)
    y = kit.y_axis("y:Q", "tokens/s decoded", kit.WHOLE, **ROUND)
    walls = data("walls", x=x, y=y).mark_point(
        shape="stroke", angle=90, size=260, strokeWidth=3, color="currentColor", opacity=1
    )
    return (*kit.line_marks(x, y, ATTENTION), walls, *kit.point(x, y))


# A million tokens cost less than $1,000, and more than a kilojoule.
DOLLARS_OR_JOULES = f"datum.value < 1e3 ? '$' + format(datum.value, '~s') : {SI.format('J')}"
LONG: dict[str, Any] = {"height": 190, "left": 80, "right": 150, "top": 20}


@kit.lines_of("layers", "tokens", "s", **LONG)
def serving_lengths() -> Layers:
    """How long does it take? Predicted."""
    x = kit.x_axis("x:Q", "tokens of a sequence", kit.WHOLE, log=2, grid=False, values=TOKENS)
    y = kit.y_axis("y:Q", "time", SI.format("s"), log=10, values=DECADES, scale={"padding": 10})
    return *kit.line_marks(x, y, LENGTHS), kit.marker(x)


@kit.lines_of("layers", "tokens", "B", **LONG)
def serving_states() -> Layers:
    """What do the sequences leave in memory? Dashed: what the weights leave free."""
    x = kit.x_axis("x:Q", "tokens of a sequence", kit.WHOLE, log=2, grid=False, values=TOKENS)
    y = kit.y_axis("y:Q", "bytes", SI.format("B"), log=10, values=DECADES, scale={"padding": 10})
    free = kit.level("free", y, left=True)
    return *kit.line_marks(x, y, LENGTHS), kit.marker(x), *free


@kit.lines_of("batching", "requests/s", "s", height=210, left=80, right=150, top=20)
def serving_latency() -> Layers:
    """How long does a user wait? Simulated."""
    x = kit.x_axis("x:Q", "requests/s", grid=False, values=list(RATES), scale={"padding": 8})
    y = kit.y_axis("y:Q", "time", SI.format("s"), **ROUND)
    return *kit.line_marks(x, y, WAYS), kit.marker(x), *kit.point(x, y)


@drawing(
    height=150,
    left=80,
    top=20,
    running={"x": "from (s)", "y": "in the batch"},
    queued={"x": "from (s)", "y": "in the queue"},
)
def serving_batch() -> Layers:
    """Who is in the batch, who is in the queue? Filled: batch; line: queue."""
    x = kit.x_axis("x:Q", "time", SI.format("s"), grid=False, scale={"domainMin": 0})
    y = kit.y_axis("y:Q", "requests", kit.WHOLE, scale={"domainMin": 0})
    running = data("running", x=x, y=y)
    running = running.mark_area(interpolate="step-after", color=SERIES[0], opacity=0.55)
    queued = data("queued", x=x, y=y)
    line = queued.mark_line(interpolate="step-after", color=SERIES[1], strokeWidth=2)
    return running, line, *kit.level("most", y)


@kit.lines_of("replicas", "time of a token (s)", "cost", height=260, left=84, right=100, top=20)
def serving_price() -> Layers:
    """What do a million tokens cost, and how long does one take? Along a line: larger batches."""
    x = kit.x_axis("x:Q", "time per output token", SI.format("s"), grid=False, **ROUND)
    y = kit.y_axis("y:Q", "cost of a million tokens", DOLLARS_OR_JOULES, **ROUND)
    return *kit.line_marks(x, y, REPLICAS), *kit.point(x, y)


@kit.parts_of("decoding", "term", "time", height=92, left=110, right=76, top=8)
def serving_drafts() -> Layers:
    """What does a token wait for? Of each sequence; hatched: the draft model."""
    return kit.stacked_bars("time of a token", "s", PARTS, 106, (DRAFT,), tickCount=5)


@kit.lines_of("draft model", "batch", "times as fast", height=210, left=80, right=110, top=20)
def serving_gain() -> Layers:
    """Until which batch do drafts help? Below 1: slower."""
    x = kit.x_axis("x:Q", "sequences decoded at once", kit.WHOLE, log=2, grid=False)
    values = [2.0**k for k in range(-3, 4)]
    y = kit.y_axis("y:Q", "times as fast as without", log=2, values=values, scale={"padding": 14})
    lines = kit.line_marks(x, y, DRAFTS)
    return *lines, *kit.level("even", y, left=True, below=True), *kit.point(x, y)


@drawing(height=100, left=150, right=120, top=8, bars={"label": "", "words": "tokens/s"})
def serving_here() -> Layers:
    """What does the batch gain here?"""
    x = kit.x_axis("rate:Q", "tokens/s", kit.WHOLE, tickCount=4, scale={"domainMin": 0})
    y = kit.rows_axis("label:N", kit.ORDER, 146)
    bars = data("bars", x=x, y=y)
    guess = bars.transform_filter("datum.what == 'predicted'")
    return (
        bars.transform_filter("datum.what == 'measured'").mark_bar(color=SERIES[0]),
        guess.mark_bar(color=SERIES[0], opacity=0.35),
        kit.words_beside(bars, "words:N"),
    )


@kit.parts_of("prompt", "term", "time", height=112, left=120, right=76, top=8)
def serving_first() -> Layers:
    """What does a first token wait for?"""
    return kit.stacked_bars("time to the first token", "s", COLORS, 116, tickCount=5)


@kit.lines_of("memory", "prefixes", "find theirs", height=210, left=80, right=170, top=20)
def serving_hits() -> Layers:
    """How many requests find their prefix stored? Lines: predicted; point: simulated."""
    x = kit.x_axis("x:Q", "different prefixes", kit.WHOLE, log=2, grid=False)
    y = kit.y_axis("y:Q", "requests", "format(datum.value, '.0%')", scale={"domain": [0, 1.08]})
    return *kit.line_marks(x, y, STORED), *kit.point(x, y)


@kit.lines_of("replicas", "requests/s", "s", height=230, left=80, right=110, top=20)
def serving_pools() -> Layers:
    """How long does a user wait? Lines: predicted, until saturated; symbols: simulated."""
    x = kit.x_axis("x:Q", "requests/s", kit.WHOLE, log=2, grid=False)
    y = kit.y_axis("y:Q", "time", SI.format("s"), **ROUND)
    color, _, shape = kit.looks("line:N", POOLS)
    now = data("now", x=x, y=y, color=color)
    lines = kit.line_marks(x, y, POOLS)
    seen = kit.symbols(now, 150, stroke="white").encode(shape=shape)
    return *lines, *kit.level("limit", y, left=True), seen


@kit.parts_of("replicas", "waits for", "time", height=112, left=110, right=76, top=8)
def serving_apart() -> Layers:
    """What does an answer of 64 tokens wait for?"""
    return kit.stacked_bars("time of an answer", "s", pools.PARTS, 106, tickCount=5)
