"""The drawings of the lesson on language models, in Altair."""

from lib_dlhpc.explore.blocks import drawing as kit
from lib_dlhpc.explore.blocks.drawing import Layers, drawing
from lib_dlhpc.explore.language_model.charts import CAUSES, HATCHED, LINES
from lib_dlhpc.explore.language_model.rollouts import HATCHED as EMPTY
from lib_dlhpc.explore.language_model.rollouts import PARTS
from lib_dlhpc.results.palette import BUBBLE, SERIES

LENGTHS = [2**k for k in range(13, 18)]
SHARES = [d * 10.0**k for k in range(-4, 1) for d in (1, 2, 5)]
SHARE = "format(datum.value, '.2~%')"


@kit.parts_of("run", "cause", "time", height=112, left=98, right=130, top=22)
def llm_step() -> Layers:
    """Where does the time of a step go? Hatched: recomputation, bubble."""
    *bars, words = kit.stacked_bars("time of a step", "s", CAUSES, 94, HATCHED)
    return *bars, *kit.upright("published"), words


@drawing(
    height=84,
    left=80,
    right=140,
    top=8,
    bars={"label": "schedule", "words": "idle, and holds", "held": "activations of"},
)
def llm_bubbles() -> Layers:
    """How long is a rank idle, and what does it hold? Closed forms, equal stages."""
    x = kit.x_axis("idle:Q", "bubble", kit.SI.format("s"), tickCount=4, scale={"domainMin": 0})
    bars = kit.data("bars", x=x, y=kit.rows_axis("label:N", kit.ORDER, 76))
    drawn = bars.mark_bar(color=BUBBLE)
    return drawn, kit.hatched(bars), kit.words_beside(bars, "words:N")


@kit.lines_of("exchange", "tokens", "share of a step", height=240, right=80, top=16)
def llm_context() -> Layers:
    """What does a step wait for, and from which length on is it hidden?"""
    x = kit.x_axis("x:Q", "tokens of a sequence", kit.WHOLE, log=2, values=LENGTHS, grid=False)
    axis = {"values": SHARES, "labelOverlap": True, "scale": {"padding": 14}}
    y = kit.y_axis("y:Q", "exposed exchange, of a step", SHARE, log=10, **axis)
    return (kit.room("y"), kit.marker(x), *kit.line_marks(x, y, LINES), *kit.values_beside(x, y))


@kit.parts_of("GPUs", "part", "time", height=170, left=134, right=76, top=8)
def llm_rollout() -> Layers:
    """What do GPUs do in an iteration? Hatched: idle."""
    return kit.stacked_bars("time of an iteration", "s", PARTS, 130, EMPTY, tickCount=5)


@drawing(
    height=150,
    left=80,
    top=8,
    all={"x": "until (s)", "y": "not ended, all GPUs"},
    pool={"x": "until (s)", "y": "not ended, pool"},
)
def llm_flight() -> Layers:
    """How many answers are still being written? Filled: on all GPUs; line: on the pool."""
    x = kit.x_axis("x:Q", "time", kit.SI.format("s"), grid=False, scale={"domainMin": 0})
    y = kit.y_axis("y:Q", "answers", kit.WHOLE, scale={"domainMin": 0})
    every, pool = (kit.data(name, x=x, y=y) for name in ("all", "pool"))
    area = every.mark_area(interpolate="step-before", color=SERIES[0], opacity=0.55)
    line = pool.mark_line(interpolate="step-before", color=SERIES[1], strokeWidth=2)
    return area, line
