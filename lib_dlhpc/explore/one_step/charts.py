"""Columns and sentences for the drawings of the lesson on one step; see charts.py for their use."""

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from lib_dlhpc.explore.blocks.charts import State, append
from lib_dlhpc.results import palette
from lib_dlhpc.spec.units import format_plain as plain
from lib_dlhpc.spec.units import format_quantity as show

if TYPE_CHECKING:
    from lib_dlhpc.explore.one_step.roofline import Point

BETWEEN = "between layers"
PASSES = {name: palette.TERMS[name] for name in ("forward", "backward", "update")} | {
    BETWEEN: "#f5f5f5"
}
RAW, FIT = "each repeat", "the fit"
WIDEST = (0.02, 20_000.0)  # FLOP/B of the picture: no layer of the sliders is beyond


def roofline_state(
    path: Sequence["Point"],
    batches: Sequence[int],
    here: "Point",
    batch: int,
    peak: float,
    ridge: float,
    efficiency: float,
) -> State:
    """FLOP/s against FLOP a byte: the roof, the layer at every batch, and where it stands."""
    slope = [(x, min(peak, peak * x / ridge)) for x in (WIDEST[0], ridge, WIDEST[1])]
    points: dict[str, list[Any]] = {n: [] for n in ("x", "y", "details", "batch")}
    for each, many in zip(path, batches, strict=True):
        details = f"batch {many:,}: {show(each.rate, 'FLOP/s')}, {show(each.seconds, 's')}"
        append(points, x=each.intensity, y=each.rate, details=details, batch=many)
    lowest = min(each.rate for each in path)
    data: dict[str, dict[str, Any]] = {
        "roof": {"x": [x for x, _ in slope], "y": [y for _, y in slope]},
        "reached": {
            "y": [efficiency * peak],
            "x": [ridge],
            "end": [WIDEST[1]],
            "words": ["large products"],
        },
        "path": points,
        "now": {
            "x": [here.intensity],
            "y": [here.rate],
            "roof": [min(peak, peak * here.intensity / ridge)],
            "words": [f"batch {batch:,}: {show(here.rate, 'FLOP/s')}"],
        },
        "names": {"x": [WIDEST[1]], "y": [peak], "words": [f"peak {show(peak, 'FLOP/s')}"]},
        "room": {"x": list(WIDEST), "y": [min(lowest / 3, peak * WIDEST[0] / ridge) / 2, 3 * peak]},
    }
    below = data["now"]["roof"][0] / here.rate
    return data, (
        f"Batch {batch:,}: {plain(here.intensity)} FLOP a byte, {show(here.rate, 'FLOP/s')}, {plain(below)} times"
        f" below the roof; the slope ends at {plain(ridge)} FLOP a byte, the roof is at {show(peak, 'FLOP/s')}."
    )


def layers_state(rows: Sequence[tuple[str, Mapping[str, float], str]]) -> State:
    """Seconds of each layer by pass; rows: name, seconds by pass, what bounds it."""
    parts: dict[str, list[Any]] = {
        n: [] for n in ("row", "order", "part", "start", "stop", "details", "ink")
    }
    ends: dict[str, list[Any]] = {n: [] for n in ("row", "order", "stop", "words")}
    whole = sum(sum(seconds.values()) for _, seconds, _ in rows)
    for order, (name, passes, bound) in enumerate(rows):
        start = 0.0
        for part, seconds in passes.items():
            if seconds > 0:
                details = f"{name}, {part}: {show(seconds, 's')}, {seconds / whole:.1%}"
                append(
                    parts,
                    row=name,
                    order=order,
                    part=part,
                    start=start,
                    stop=start + seconds,
                    details=details,
                    ink="white" if part in palette.LIGHT_INK else "black",
                )
                start += seconds
        words = f"{start / whole:.0%}{', ' + bound if bound else ''}"
        append(ends, row=name, order=order, stop=start, words=words)
    longest = max(range(len(rows)), key=lambda k: ends["stop"][k])
    longest_words = f"{rows[longest][0]} takes most, {ends['words'][longest]}"
    return {"parts": parts, "ends": ends}, f"{show(whole, 's')} in all; {longest_words}."


def batch_state(
    batches: Sequence[int], seconds: Sequence[float], now: int, walls: Iterable[int]
) -> State:
    """Time of a step against the batch, and what it would be in proportion to the samples."""
    lines: dict[str, list[Any]] = {n: [] for n in ("line", "x", "y")}
    for x, y in zip(batches, seconds, strict=True):
        append(lines, line="a step", x=x, y=y)
    for x in (batches[0], batches[-1]):
        append(lines, line="in proportion", x=x, y=seconds[-1] * x / batches[-1])
    at = list(batches).index(now)
    took, one = seconds[at], seconds[-1] / batches[-1]
    beyond = sorted(walls)
    late = bool(beyond) and beyond[0] > batches[len(batches) // 2]
    words = f"{show(took, 's')}, {show(took / now, 's')} a sample"
    data: dict[str, dict[str, Any]] = {
        "lines": lines,
        "now": {"x": [now], "y": [took], "words": [f"batch {now:,}: {words}"]},
        "wall": {
            name: [value] * bool(beyond)
            for name, value in (
                ("x", beyond[0] if beyond else 0),
                ("end", batches[-1]),
                ("words", "does not fit"),
                ("side", "right" if late else "left"),
                ("shift", -6 if late else 6),
            )
        },
        "room": {"y": [min(seconds[0], seconds[-1] / batches[-1]) / 1.5, 2 * seconds[-1]]},
    }
    return data, (
        f"Batch {now:,}: {words}; at the largest batch {show(one, 's')} a sample, so that"
        f" {max(0.0, 1 - one * now / took):.0%} of this step is not in proportion to its samples."
    )


Fitted = tuple[Sequence[float], Sequence[float], Sequence[float], Sequence[float]]


def measured_state(
    raw: Mapping[str, Sequence[tuple[float, float]]],
    fitted: Fitted,
    now: tuple[float, float, float],
    step: float,
    units: tuple[str, str],
    said: str,
) -> State:
    """Raw points by kind (x, y), the fit (x, low, value, high), where the slider stands: x, measured, fitted.

    step: x of a step that shows, 0 for none. units: of x and y. said: the end of the summary.
    """
    points: dict[str, list[Any]] = {n: [] for n in ("kind", "x", "y", "details")}
    for kind, pairs in raw.items():
        for x, y in pairs:
            append(
                points,
                kind=kind,
                x=x,
                y=y,
                details=f"{kind}, {show(x, units[0])}: {show(y, units[1])}",
            )
    x, measured, value = now
    every = [float(y) for y in (*points["y"], *fitted[1], *fitted[3])]
    middle = fitted[0][len(fitted[0]) // 2]
    late = step > middle
    words = [f"measured {show(measured, units[1])}", f"fit {show(value, units[1])}"]
    data: dict[str, dict[str, Any]] = {
        "points": points,
        "fit": dict(zip(("x", "low", "y", "high"), map(list, fitted), strict=True)),
        "now": {"x": [x], "y": [measured], "words": ["\n".join(words)]},
        "step": {
            name: [value] * bool(step)
            for name, value in (
                ("x", step),
                ("words", f"another way from {show(step, units[0])}"),
                ("side", "right" if late else "left"),
                ("shift", -6 if late else 6),
            )
        },
        "room": {"y": [min(every) / 1.5, 2.2 * max(every)]},
    }
    return data, (
        f"At {show(x, units[0])}: {', '.join(words)}, the fit {value / measured - 1:+.0%} off. {said}"
    )
