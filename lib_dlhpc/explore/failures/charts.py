"""Columns and sentences for the drawings of the lesson on failures; see charts.py for their use."""

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from lib_dlhpc.explore.blocks.charts import State, append
from lib_dlhpc.explore.blocks.lines import line_columns
from lib_dlhpc.results import palette
from lib_dlhpc.spec.units import format_quantity as show

# Dash, symbol, hatching or height distinguish them without color.
LINES = {
    "checkpoints": (palette.CHECKPOINT, [6, 3], "square"),
    "repeated work": (palette.SERIES[1], [2, 2], "triangle-up"),
    "restarts": (palette.SERIES[6], [1, 3], "diamond"),
    "all losses": ("currentColor", [1, 0], "circle"),
}
LOST = {
    "checkpoints": palette.CHECKPOINT,
    "repeated work": palette.SERIES[1],
    "restarts": palette.IDLE,
}
# Color, height in a row, and whether it is hatched.
PHASES = {
    "training": (palette.FORWARD, 0.6, False),
    "repeated work": (palette.SERIES[1], 0.6, True),
    "checkpoint": (palette.CHECKPOINT, 1.0, False),
    "wait": (palette.BUBBLE, 0.6, False),
    "restart": (palette.IDLE, 0.3, False),
}
WAYS = ("synchronous", "asynchronous", "multilevel", "incremental")
LABELED = 14  # versions that have their bytes beside them
TICKS = [d * 10.0**k for k in range(-3, 1) for d in (1, 2, 5)]
TICKS += [60.0 * m for m in (0.25, 0.5, 1, 2, 5, 10, 20, 30, 60, 120, 180, 360, 720)]
TICKS += [86400.0 * d for d in (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000)]
LEAST = 1e-4  # share of the time, where the chart of losses ends
Floats: TypeAlias = NDArray[np.float64]
# s, mean loss, 10 % and 90 % of the runs, what the formula says
Simulated: TypeAlias = Sequence[tuple[float, float, float, float, float]]


def loss_state(
    at: Floats,
    parts: Mapping[str, Floats],
    lost: Floats,
    marks: Mapping[str, float],
    interval: float,
    simulated: Simulated,
) -> State:
    """Shares of the time against the interval in s: by cause and in all; where it would be the least.

    marks: intervals in s by whose formula they are.
    """
    curves = {**parts, "all losses": lost}
    curves = {name: np.where(y >= LEAST, y, np.nan) for name, y in curves.items()}
    shown = {name: (at[np.isfinite(y)], y[np.isfinite(y)]) for name, y in curves.items()}
    columns, ends = line_columns({name: (x, y) for name, (x, y) in shown.items() if len(x)})
    late = [x > at[-1] / 30 for x in ends["x"]]
    own = float(np.interp(np.log(interval), np.log(at), np.nan_to_num(lost, nan=1.0)))
    inside = [(name, x) for name, x in marks.items() if at[0] <= x <= at[-1]]
    right = interval > np.sqrt(at[0] * at[-1])
    data: dict[str, dict[str, Any]] = {
        "lines": columns,
        "ends": {**ends, "late": late},
        "marks": {
            "x": [x for _, x in inside],
            "words": [f"{name}: {show(x, 's')}" for name, x in inside],
            "dy": [-4 - 14 * k for k in range(len(inside))],
        },
        "now": {
            "x": [interval],
            "y": [max(own, LEAST)],
            "words": [f"now: {own:.1%} lost"],
            "side": ["right" if right else "left"],
            "shift": [-11 if right else 11],
        },
        "simulated": {
            "x": [p[0] for p in simulated],
            "y": [p[1] for p in simulated],
            "low": [max(p[2], LEAST) for p in simulated],
            "high": [p[3] for p in simulated],
        },
        "room": {"y": [LEAST, 1.0], "x": [float(at[0]), float(at[-1])]},
    }
    named = ", ".join(f"{name} {show(x, 's')}" for name, x in marks.items())
    words = f"With a checkpoint every {show(interval, 's')} {own:.1%} of the time is lost. Best intervals: {named}."
    if simulated:
        each = ", ".join(f"{mean:.1%} at {show(at, 's')}" for at, mean, *_ in simulated)
        words += f" Simulated runs lost {each}."
    return data, words


def phases_state(runs: Mapping[str, Sequence[Any]], span: float) -> State:
    """What each run did in its first `span` s. runs: phases (kind, start, stop, ended) by a run's name."""
    names = ("run", "kind", "start", "stop", "top", "bottom", "hatched", "details")
    bars: dict[str, list[Any]] = {name: [] for name in names}
    strikes: dict[str, list[Any]] = {"x": [], "top": [], "bottom": []}
    done = []
    for row, (name, phases) in enumerate(runs.items()):
        sums, before = dict.fromkeys(PHASES, 0.0), len(strikes["x"])
        for phase in phases:
            kind = "restart" if phase.kind == "first start" else phase.kind
            if kind not in PHASES or phase.start >= span:
                continue
            stop, high, middle = min(phase.stop, span), PHASES[kind][1], row + 0.5
            sums[kind] += stop - phase.start
            append(
                bars,
                run=name,
                kind=kind,
                start=phase.start,
                stop=stop,
                top=middle - 0.4 * high,
                bottom=middle + 0.4 * high,
                hatched=PHASES[kind][2],
                details=f"{kind}: {show(phase.stop - phase.start, 's')}",
            )
            if not phase.ended and phase.stop < span:
                append(strikes, x=phase.stop, top=row + 0.04, bottom=row + 0.96)
        count = len(strikes["x"]) - before
        parts = [f"{kind} {show(seconds, 's')}" for kind, seconds in sums.items() if seconds > 0]
        done.append(f"{name}: {', '.join(parts)}; {count} failure{'s' * (count != 1)}")
    data: dict[str, dict[str, Any]] = {
        "bars": bars,
        "strikes": strikes,
        "rows": {"name": list(runs), "middle": [row + 0.5 for row in range(len(runs))]},
        "room": {"x": [0.0, span], "y": [0.0, float(max(len(runs), 1))], "step": [_tick(span)] * 2},
    }
    return data, f"In the first {show(span, 's')}: {'. '.join(done)}."


def _tick(span: float) -> float:
    """Return the s between two marks of a clock, for about six of them."""
    return next((step for step in TICKS if span <= 7 * step), 7 * TICKS[-1])


def costs_state(
    ways: Mapping[str, tuple[float, float]], interval: float | None, words: Mapping[str, str]
) -> State:
    """Seconds that one checkpoint stalls training, and until it is durable, for each way to save.

    interval: s between two checkpoints, None where each way has its own.
    """
    names = ("way", "blocked", "safe", "still", "written", "details", "late", "split")
    points: dict[str, list[Any]] = {name: [] for name in names}
    low = min(blocked for blocked, _ in ways.values())
    high = max(blocked + behind for blocked, behind in ways.values())
    ends = (
        [low / 3, high * 6]
        if interval is None
        else [min(low, interval) / 3, max(high, interval) * 6]
    )
    for name, (blocked, behind) in ways.items():
        append(
            points,
            way=name,
            blocked=blocked,
            safe=blocked + behind,
            still=show(blocked, "s"),
            written=show(blocked + behind, "s"),
            details=f"{name}: {words[name]}",
            split=behind > 0,
            late=behind > 0,
        )
    data: dict[str, dict[str, Any]] = {
        "points": points,
        "interval": {
            "x": [] if interval is None else [interval],
            "words": [] if interval is None else [f"the next is due: {show(interval, 's')}"],
        },
        "room": {"x": ends},
    }
    each = "; ".join(
        f"{name}: training stalls for {still}" + (f", durable after {safe}" if split else "")
        for name, still, safe, split in zip(
            points["way"], points["still"], points["written"], points["split"], strict=True
        )
    )
    return data, f"One checkpoint. {each}."


def ways_state(ways: Mapping[str, tuple[Mapping[str, float], float]]) -> State:
    """What is lost, by cause, for each way to save: shares of the time, and the interval in s."""
    names = ("way", "part", "start", "stop", "middle", "share", "hatched")
    bars: dict[str, list[Any]] = {name: [] for name in names}
    ends: dict[str, list[Any]] = {"way": [], "x": [], "words": []}
    most = max(1 - shares["training"] for shares, _ in ways.values())
    for name, (shares, interval) in ways.items():
        start = 0.0
        for part in LOST:
            stop = start + shares[part]
            if shares[part] > 0:
                append(
                    bars,
                    way=name,
                    part=part,
                    start=start,
                    stop=stop,
                    middle=(start + stop) / 2,
                    share=f"{shares[part]:.1%}",
                    hatched=part == "repeated work",
                )
            start = stop
        kept = f"{shares['training']:.1%} goodput, every {show(interval, 's')}"
        append(ends, way=name, x=start, words=kept)
    best = max(ways, key=lambda name: ways[name][0]["training"])
    data = {"bars": bars, "ends": ends, "room": {"x": [0.0, 1.02 * most]}}
    each = ", ".join(f"{name} {shares['training']:.1%}" for name, (shares, _) in ways.items())
    return data, f"Goodput: {each}. The best is {best}."


def written_state(rows: Sequence[tuple[str, float, float, str]]) -> State:
    """What each version wrote: (name, B written, B of the whole state, words)."""
    few = len(rows) <= LABELED
    data: dict[str, dict[str, Any]] = {
        "bars": {
            "version": [r[0] for r in rows],
            "order": list(range(len(rows))),
            "written": [r[1] for r in rows],
            "label": [show(r[1], "B") if few else "" for r in rows],
            "details": [r[3] for r in rows],
        },
        "whole": {
            "y": [rows[0][2]] if rows else [],
            "words": [f"the whole state: {show(rows[0][2], 'B')}"] if rows else [],
        },
        "room": {"y": [0.0, 1.4 * rows[0][2] if rows else 1.0]},
    }
    if not rows:
        return data, "No version yet."
    each = ", ".join(f"{name} {show(written, 'B')}" for name, written, _, _ in rows[-8:])
    every = sum(r[1] for r in rows)
    return data, (
        f"Written by each version: {each}. In all {show(every, 'B')}; whole copies would be"
        f" {show(rows[0][2] * len(rows), 'B')}."
    )
