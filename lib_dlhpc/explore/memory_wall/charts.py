"""What the charts of the lesson on memory show: columns for their drawings, and a sentence."""

from collections.abc import Mapping, Sequence
from itertools import product
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from lib_dlhpc.explore.blocks.charts import State, beside, columns, marked, stacked
from lib_dlhpc.explore.blocks.lines import FIRST, IDEAL, Curves, line_columns, value_at, values_at
from lib_dlhpc.prediction import Breakdown
from lib_dlhpc.prediction.memory.timeline import BACKWARD, FORWARD, UPDATE, MemoryTimeline
from lib_dlhpc.results.palette import SERIES
from lib_dlhpc.spec.units import format_quantity as show

POINTS = 400  # of a course, at most
KINDS = {  # no causes of time, so the series' colors; the symbol distinguishes them without
    "as it is": (SERIES[6], "circle"),
    "recompute": (SERIES[2], "square"),
    "shard": (SERIES[0], "triangle-up"),
    "split": (SERIES[1], "diamond"),
    "offload": (SERIES[3], "cross"),
    "combined": (SERIES[4], "triangle-down"),
}
LINES = {
    "in core": IDEAL,
    "prefetched": FIRST,
    "page by page": (SERIES[1], [2, 2], "triangle-up"),
    "recompute": (SERIES[2], [6, 3], "square"),
}
LABEL, LETTER = 13.0, 6.2  # px that a line of words takes, and a letter
WIDE, HIGH = 620.0, 300.0  # px of the drawing of ways, nearly


class Way(NamedTuple):
    """A way around the wall, predicted. memory: B of the fullest GPU; seconds: of a step."""

    name: str
    kind: str
    memory: float
    seconds: float
    prediction: Breakdown


def memory_state(ledger: Mapping[str, float], capacity: float) -> State:
    """Bytes by term (keys of palette.MEMORY) on one device, and the bytes that it has."""
    terms = columns(
        {
            "term": term,
            "order": order,
            "start": start,
            "stop": stop,
            "size": show(stop - start, "B"),
            "over": max(0.0, stop - max(start, capacity)),
            "over_start": min(stop, max(start, capacity)),
        }
        for order, (term, start, stop) in enumerate(stacked(ledger))
    )
    total = float(sum(ledger.values()))
    fits, have, need = total <= capacity, show(capacity, "B"), show(total, "B")
    verdict = f"fits: {need} of {have}" if fits else f"does not fit: {need} in {have}"
    end = max(total, capacity) * 1.06
    wall = {
        "capacity": capacity,
        "end": end,
        "words": f"{'✓' if fits else '✗'} {verdict}",
        "side": "right" if capacity > 0.4 * end else "left",
    }
    largest = max(ledger, key=ledger.__getitem__)
    return {"terms": terms, "wall": columns([wall])}, (
        f"{verdict[0].upper()}{verdict[1:]}. The largest part is {largest}, {show(ledger[largest], 'B')}."
    )


def course_state(found: MemoryTimeline, capacity: float) -> State:
    """Memory of a device against time, with the wall and the peak."""
    kept, at = thinned(found.bytes), int(np.argmax(found.bytes))
    times, held = found.time[kept].tolist(), found.bytes[kept].tolist()
    highest, when = float(found.bytes[at]), float(found.time[at])
    where = f"{found.what[at]} of {found.layer[at]}" if found.layer[at] else "the update"
    size, have = show(highest, "B"), show(capacity, "B")
    top = 1.18 * (max(capacity, highest) if capacity < 3 * highest else highest)
    starts = [found.what.index(word) for word in (FORWARD, BACKWARD, UPDATE)]
    late, words = when > 0.5 * found.end, f"{size}: {where}"
    return {
        "held": {
            "time": [*times, found.end],
            "bytes": [*held, held[-1]],
            "fixed": [found.fixed] * (len(times) + 1),
        },
        "peak": marked(words, late, 10, time=when, bytes=highest),
        "wall": columns(
            [{"y": capacity, "top": top, "words": f"the GPU has {have}"}] * (capacity <= top)
        ),
        "phases": columns({"time": float(found.time[k]), "words": found.what[k]} for k in starts),
        "room": {"y": [0.0, top]},
    }, (
        f"{show(found.fixed, 'B')} are there all the time. The peak, {size}, is in {where}, after"
        f" {when / found.end:.0%} of the step, {'below' if highest <= capacity else 'beyond'} the {have} of the GPU."
    )


def thinned(values: NDArray[Any]) -> NDArray[Any]:
    """Return which points to draw: of each few neighbors the highest."""
    each = max(1, -(-len(values) // POINTS))
    starts = range(0, len(values), each)
    return np.array([start + int(np.argmax(values[start : start + each])) for start in starts])


def ways_state(ways: Sequence[Way], capacity: float, words: Mapping[str, str]) -> State:
    """Time of a step against memory for each way. words: what a way does."""
    memory, seconds = np.array([(way.memory, way.seconds) for way in ways]).T
    low, high = min(memory.min(), capacity) * 0.8, max(memory.max(), capacity) * 1.15
    across = np.log(memory / low) / np.log(high / low)
    up = np.log(seconds.max() / seconds) / max(np.log(seconds.max() / seconds.min()), 0.1)
    places = labels([way.name for way in ways], WIDE * across, HIGH * (0.1 + 0.8 * up))
    points = columns(
        {
            "name": way.name,
            "kind": way.kind,
            "memory": way.memory,
            "seconds": way.seconds,
            "details": f"{way.name}: {show(way.memory, 'B')}, {show(way.seconds, 's')}. {words[way.name]}",
            "label": way.name if way.memory <= capacity else f"({way.name})",
            "dy": shift,
            "side": side,
            "dx": -9 if side == "right" else 9,
        }
        for way, (shift, side) in zip(ways, places, strict=True)
    )
    inside = [way for way in ways if way.memory <= capacity]
    said = "None of these configurations fits."
    if inside:
        best = min(inside, key=lambda way: (way.seconds, way.name))
        said = (
            f"{len(inside)} of {len(ways)} configurations fit; the fastest of them is"
            f" {best.name}, {show(best.seconds, 's')} per step."
        )
    return {
        "ways": points,
        "wall": {"x": [capacity], "end": [high], "words": [f"the GPU has {show(capacity, 'B')}"]},
        "room": {"x": [low, high], "y": [seconds.min() / 1.2, seconds.max() * 1.2]},
    }, said


Box = tuple[float, float, float, float]  # left, top, right, bottom, in px


def labels(names: Sequence[str], x: NDArray[Any], y: NDArray[Any]) -> list[tuple[float, str]]:
    """Return how far each name is moved up or down, and which of its ends is at its point (px).

    Each takes the first place where it covers no point and no other name.
    """
    taken: list[Box] = [(a - 7, b - 7, a + 7, b + 7) for a, b in zip(x, y, strict=True)]
    places = [(0.0, "left")] * len(x)
    for k in np.argsort(y):
        long = LETTER * len(names[k])
        for step, side in product(range(9), ("left", "right")):
            dy = LABEL * (-1) ** step * ((step + 1) // 2)
            start = x[k] + 10 if side == "left" else x[k] - 10 - long
            box = (start, y[k] + dy - LABEL / 2, start + long, y[k] + dy + LABEL / 2)
            if 0 < start < WIDE - long and all(_apart(box, other) for other in taken):
                places[k] = dy, side
                taken.append(box)
                break
    return places


def _apart(one: Box, other: Box) -> bool:
    return one[2] < other[0] or other[2] < one[0] or one[3] <= other[1] or other[3] <= one[1]


def link_state(curves: Curves, now: int, required: float, there: Mapping[str, float]) -> State:
    """Time of a step (s) against bandwidth (B/s), out of core and in; there: what links have."""
    moving = {name: curves[name] for name in ("prefetched", "page by page")}
    lowest = min(float(y.min()) for _, y in curves.values())
    first, last = (float(v) for v in curves["in core"][0][[0, -1]])
    needed = {"x": required, "words": f"needed: {show(required, 'B/s')}"}
    needed |= beside(required > np.sqrt(first * last), 6)
    times = [f"{name} {show(taken, 's')}" for name, taken in values_at(curves, now)]
    # Labels of falling lines are below them, where they do not overlap.
    below = {"dy": [16] * len(values_at(moving, now))}
    return (
        {
            **line_columns(curves),
            "now": value_at(moving, now, lambda y: show(y, "s")) | below,
            "room": {"y": [lowest / 8]},
            "required": columns([needed] * (first <= required <= last)),
            "links": {"x": list(there.values()), "words": list(there)},
        },
        f"At {show(now, 'B/s')}: {'; '.join(times)} per step. {show(required, 'B/s')} hide all of it.",
    )
