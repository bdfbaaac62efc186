"""What the charts of the lesson on language models show: columns for their drawings, and a sentence."""

from collections.abc import Mapping

import numpy as np

from lib_dlhpc.explore.blocks.bars import stacks
from lib_dlhpc.explore.blocks.charts import Data, State, marked
from lib_dlhpc.explore.blocks.lines import FIRST, SECOND, Curves, line_columns, value_at
from lib_dlhpc.prediction import Breakdown
from lib_dlhpc.results import palette
from lib_dlhpc.spec.units import format_quantity as show

CAUSES = {  # of the seconds of a step, in the order in which they are stacked
    "forward": palette.FORWARD,
    "backward": palette.BACKWARD,
    "recomputation": palette.BACKWARD,
    "update": palette.UPDATE,
    "waiting for the slowest": palette.IDLE,
    "tensor collectives": palette.COLLECTIVES,
    "context exchange": palette.CONTEXT,
    "experts' all-to-all": palette.EXPERTS,
    "stage to stage": palette.NEIGHBORS,
    "gradients, weights": palette.GRADIENTS,
    "pipeline bubble": palette.BUBBLE,
}
WORDS = 0.12  # of the longest bar: the room of the words behind one
HATCHED = ("recomputation", "pipeline bubble")
EXPOSED = {  # causes, and the purposes of messages
    "tensor collectives": "tensor",
    "context exchange": "context",
    "experts' all-to-all": "experts",
    "stage to stage": "pipeline",
    "gradients, weights": "data",
}
LINES = {"ring": FIRST, "heads": SECOND}


def causes(step: Breakdown) -> dict[str, float]:
    """Return the seconds of a step by cause: a key for each of CAUSES."""
    again = float(step.recomputation)
    own = {
        "forward": step.forward,
        "backward": step.backward - again,
        "recomputation": again,
        "update": step.update,
        "waiting for the slowest": step.straggler_wait,
        **{cause: step.exposed[purpose] for cause, purpose in EXPOSED.items()},
        "pipeline bubble": step.pipeline_bubble,
    }
    return {cause: float(own[cause]) for cause in CAUSES}


def steps_state(
    runs: Mapping[str, Mapping[str, float]], said: Mapping[str, str], published: tuple[float, str]
) -> State:
    """Steps by cause, in s. said: what stands behind each bar. published: s, and its words."""
    data, (at, words) = stacks(runs, CAUSES, "s", words=said), published
    longest = max([at, *data["sums"]["stop"]])
    late = at > 0.5 * longest
    data["sums"]["stop"] = [  # words that the line would cross stand behind it
        at if stop <= at < stop + WORDS * longest else stop for stop in data["sums"]["stop"]
    ]
    data["published"] = marked(words, late, 4, x=at)
    own = next(iter(runs.values()))
    largest = sorted((c for c in own if own[c]), key=lambda c: -own[c])[:4]
    each = ", ".join(f"{cause} {show(own[cause], 's')}" for cause in largest)
    ends = "; ".join(f"{name} {said[name]}" for name in runs)
    return data, f"A step: {ends}; {words}, {show(at, 's')}. Most of the first: {each}."


def context_state(curves: Curves, now: int, exchange: str) -> State:
    """Share of a step that waits for keys and values, against the tokens of a sequence."""
    shown = {name: curve for name, curve in curves.items() if now in curve[0]}
    shares = np.concatenate([y for _, y in curves.values()])
    data: Data = {
        **line_columns(curves),
        "now": value_at(shown, now, lambda y: f"{y:.2%}"),
        "room": {"y": [float(shares.min()) / 1.3, 1.3 * float(shares.max())]},
    }
    each = [f"{name} {float(y[x == now][0]):.2%}" for name, (x, y) in shown.items()]
    only = "" if "heads" in curves else " Heads cannot be divided: there are more ranks."
    return data, (
        f"Exposed with {now:,} tokens: {', '.join(each)} of a step; chosen: {exchange}.{only}"
    )
