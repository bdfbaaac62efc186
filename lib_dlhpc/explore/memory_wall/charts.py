"""Columns and sentences for the drawings of the lesson on memory; see charts.py for their use."""

from collections.abc import Mapping, Sequence
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lib_dlhpc.explore.blocks.charts import State, append
from lib_dlhpc.explore.blocks.lines import Curves, line_columns, value_at
from lib_dlhpc.prediction.memory_timeline import BACKWARD, FORWARD, UPDATE, MemoryTimeline
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
    "in core": (SERIES[6], [2, 3], "diamond"),
    "prefetched": (SERIES[0], [1, 0], "circle"),
    "page by page": (SERIES[1], [2, 2], "triangle-up"),
    "recompute": (SERIES[2], [6, 3], "square"),
}
LABEL, LETTER = 13.0, 6.2  # px that a line of words takes, and a letter
WIDE, HIGH = 620.0, 300.0  # px of the drawing of ways, nearly


def memory_state(ledger: Mapping[str, float], capacity: float) -> State:
    """Bytes by term (keys of palette.MEMORY) on one device, and the bytes that it has."""
    columns: dict[str, list[Any]] = {
        n: [] for n in ("term", "order", "start", "stop", "size", "over", "over_start")
    }
    total = float(sum(ledger.values()))
    start = 0.0
    for term, value in ledger.items():
        stop = start + float(value)
        if stop > start:
            over = max(0.0, stop - max(start, capacity))
            append(
                columns,
                term=term,
                order=len(columns["order"]),
                start=start,
                stop=stop,
                size=show(stop - start, "B"),
                over=over,
                over_start=stop - over,
            )
        start = stop
    fits = total <= capacity
    have, need = show(capacity, "B"), show(total, "B")
    verdict = f"fits: {need} of {have}" if fits else f"does not fit: {need} in {have}"
    end = max(total, capacity) * 1.06
    wall = {
        "capacity": [capacity],
        "end": [end],
        "words": [f"{'✓' if fits else '✗'} {verdict}"],
        "side": ["right" if capacity > 0.4 * end else "left"],
    }
    largest = max(ledger, key=lambda term: ledger[term])
    words = f"{verdict[0].upper()}{verdict[1:]}. The largest part is {largest}, "
    return {"terms": columns, "wall": wall}, words + f"{show(ledger[largest], 'B')}."


def course_state(found: MemoryTimeline, capacity: float) -> State:
    """Memory of a device against time, with the wall and the peak."""
    kept = thinned(found.bytes)
    at = int(np.argmax(found.bytes))
    times, held = [*found.time[kept].tolist(), found.end], [*found.bytes[kept].tolist(), 0.0]
    held[-1] = held[-2]
    fits = found.bytes[at] <= capacity
    where = f"{found.what[at]} of {found.layer[at]}" if found.layer[at] else "the update"
    size = show(float(found.bytes[at]), "B")
    late = found.time[at] > 0.5 * found.end
    starts = [found.what.index(word) for word in (FORWARD, BACKWARD, UPDATE)]
    top = 1.18 * max(capacity if capacity < 3 * found.bytes[at] else 0.0, float(found.bytes[at]))
    shown = capacity <= top
    data: dict[str, dict[str, Any]] = {
        "held": {"time": times, "bytes": held, "fixed": [found.fixed] * len(times)},
        "peak": {
            "time": [float(found.time[at])],
            "bytes": [float(found.bytes[at])],
            "words": [f"{size}: {where}"],
            "side": ["right" if late else "left"],
            "shift": [-10 if late else 10],
        },
        "wall": {
            "y": [capacity] if shown else [],
            "top": [top] if shown else [],
            "words": [f"the GPU has {show(capacity, 'B')}"] if shown else [],
        },
        "phases": {
            "time": [float(found.time[k]) for k in starts],
            "words": [found.what[k] for k in starts],
        },
        "room": {"y": [0.0, top]},
    }
    verdict = "below" if fits else "beyond"
    return data, (
        f"{show(found.fixed, 'B')} are there all the time. The peak, {size}, is in {where}, after"
        f" {found.time[at] / found.end:.0%} of the step, {verdict} the {show(capacity, 'B')} of the GPU."
    )


def thinned(values: NDArray[Any]) -> NDArray[Any]:
    """Return which points to draw: of each few neighbors the highest."""
    each = max(1, -(-len(values) // POINTS))
    starts = range(0, len(values), each)
    return np.array([start + int(np.argmax(values[start : start + each])) for start in starts])


def ways_state(
    ways: Sequence[tuple[str, str, float, float]], capacity: float, words: Mapping[str, str]
) -> State:
    """Time of a step (s) against memory (B) for each way: (name, kind, memory, seconds)."""
    names = ("name", "kind", "memory", "seconds", "details", "fits", "label", "dy", "side", "dx")
    points: dict[str, list[Any]] = {n: [] for n in names}
    memory, seconds = np.array([w[2] for w in ways]), np.array([w[3] for w in ways])
    low, high = min(memory.min(), capacity) * 0.8, max(memory.max(), capacity) * 1.15
    shifts, sides = _labels(ways, low, high)
    for k, (name, kind, size, took) in enumerate(ways):
        fits = size <= capacity
        details = f"{name}: {show(size, 'B')}, {show(took, 's')}. {words.get(name, '')}".strip()
        append(
            points,
            name=name,
            kind=kind,
            memory=size,
            seconds=took,
            details=details,
            fits=fits,
            label=name if fits else f"({name})",
            dy=shifts[k],
            side=sides[k],
            dx=-9 if sides[k] == "right" else 9,
        )
    data: dict[str, dict[str, Any]] = {
        "ways": points,
        "wall": {"x": [capacity], "end": [high], "words": [f"the GPU has {show(capacity, 'B')}"]},
        "room": {"x": [low, high], "y": [seconds.min() / 1.2, seconds.max() * 1.2]},
    }
    inside = sorted((took, name) for name, _, size, took in ways if size <= capacity)
    if not inside:
        return data, "None of these ways fits."
    (best, name), rest = inside[0], len(ways) - len(inside)
    return data, (
        f"{len(inside)} of {len(ways)} ways fit, {rest} do not; the quickest that fits is {name},"
        f" {show(best, 's')} a step."
    )


Box = tuple[float, float, float, float]  # left, top, right, bottom, in px


def _labels(
    ways: Sequence[tuple[str, str, float, float]], low: float, high: float
) -> tuple[list[float], list[str]]:
    """Return how far each name is moved up or down, and which of its ends is at the point.

    Each takes the first place where it covers no point and no other name.
    """
    memory, seconds = np.array([w[2] for w in ways]), np.array([w[3] for w in ways])
    x = WIDE * np.log(memory / low) / np.log(high / low)
    spread = max(float(np.log(seconds.max() / seconds.min())), 0.1)
    y = 0.1 * HIGH + 0.8 * HIGH * np.log(seconds.max() / seconds) / spread
    taken: list[Box] = [(a - 7, b - 7, a + 7, b + 7) for a, b in zip(x, y, strict=True)]
    shifts, sides = [0.0] * len(x), ["left"] * len(x)
    for k in np.argsort(y):
        long = LETTER * len(ways[k][0])
        for step, side in product(range(9), ("left", "right")):
            dy = LABEL * (-1) ** step * ((step + 1) // 2)
            start = x[k] + 10 if side == "left" else x[k] - 10 - long
            box = (start, y[k] + dy - LABEL / 2, start + long, y[k] + dy + LABEL / 2)
            free = not any(_meet(box, other) for other in taken)
            if free and start > 0 and start + long < WIDE:
                shifts[k], sides[k] = dy, side
                taken.append(box)
                break
    return shifts, sides


def _meet(one: Box, other: Box) -> bool:
    apart = one[2] < other[0] or other[2] < one[0] or one[3] <= other[1] or other[3] <= one[1]
    return not apart


def link_state(
    curves: Curves, now: int, required: float, there: Sequence[tuple[str, float]]
) -> State:
    """Time of a step (s) against bandwidth (B/s), out of core and in; there: what links have."""
    columns, ends = line_columns(curves)
    moving = {name: curves[name] for name in ("prefetched", "page by page")}
    lowest = min(float(y.min()) for _, y in curves.values())
    first, last = (float(v) for v in next(iter(curves.values()))[0][[0, -1]])
    late = required > np.sqrt(first * last)
    inside = first <= required <= last
    data: dict[str, dict[str, Any]] = {
        "lines": columns,
        "ends": ends,
        "now": value_at(moving, now, lambda y: show(y, "s")),
        "room": {"y": [lowest / 8]},
        "required": {
            "x": [required] * inside,
            "words": [f"needed: {show(required, 'B/s')}"] * inside,
            "side": ["right" if late else "left"] * inside,
            "shift": [-6 if late else 6] * inside,
        },
        "links": {"x": [b for _, b in there], "words": [name for name, _ in there]},
    }
    times = [f"{name} {show(float(y[x == now][0]), 's')}" for name, (x, y) in curves.items()]
    return data, (
        f"At {show(now, 'B/s')}: {'; '.join(times)} a step. {show(required, 'B/s')} hide all of it."
    )
