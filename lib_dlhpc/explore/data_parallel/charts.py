"""Columns and sentences for the drawings of the lesson on data parallelism; see charts.py for their use."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from lib_dlhpc.explore.blocks.charts import State, append
from lib_dlhpc.explore.blocks.lines import Curves, Floats, line_columns, value_at, values_at
from lib_dlhpc.results.palette import SERIES
from lib_dlhpc.spec.units import format_plain, format_quantity

# No causes of time, so the series' colors; dash and symbol distinguish the lines without them.
LINES = {
    "during backward": (SERIES[0], [1, 0], "circle"),
    "after backward": (SERIES[1], [6, 3], "square"),
    "weak": (SERIES[0], [1, 0], "circle"),
    "strong": (SERIES[1], [6, 3], "square"),
    "ideal": (SERIES[6], [2, 3], "diamond"),
    "synchronous": (SERIES[0], [1, 0], "circle"),
    "asynchronous": (SERIES[1], [6, 3], "square"),
    "local": (SERIES[2], [2, 2], "triangle-up"),
}
SHARES = 129  # steps of the staircase at most: more ranks are shown by evenly spaced ones
LOWEST = 1e-3  # of the loss, where the chart ends


def buckets_state(
    sizes: Floats, lines: Mapping[str, Any], compute: float, bucket: float, step: float
) -> State:
    """Seconds of a step over bucket sizes in B; compute: the floor; bucket, step: the present choice."""
    columns, ends = line_columns({name: (sizes, np.asarray(y)) for name, y in lines.items()})
    data: dict[str, dict[str, Any]] = {
        "lines": columns,
        "ends": ends,
        "floor": {"y": [compute], "words": [f"computing alone: {format_quantity(compute, 's')}"]},
        "now": _now(sizes, bucket, step, format_quantity(step, "s")),
    }
    best = {name: format_quantity(float(np.min(y)), "s") for name, y in lines.items()}
    return data, (
        f"With buckets of {format_quantity(bucket, 'B')} a step takes {format_quantity(step, 's')}. The shortest"
        f" there is takes {best['during backward']} with the allreduce during backward, {best['after backward']}"
        " with it after."
    )


def ranks_state(times: Floats) -> State:
    """Compute time over its mean of every rank in one step, fastest first; what is above it is idle time."""
    order = np.sort(times)
    count = len(order)
    # The last bar is the slowest alone, however many ranks there are.
    edges = np.append(np.unique(np.linspace(0, count - 1, SHARES).astype(int)), count)
    shown = np.add.reduceat(order, edges[:-1]) / np.diff(edges)
    slowest = float(order[-1])
    bars = {
        "start": edges[:-1],
        "stop": edges[1:],
        "time": shown,
        "slowest": [slowest] * len(shown),
        "floor": [0.0] * len(shown),
    }
    waiting = 1 - float(order.mean()) / slowest
    data: dict[str, dict[str, Any]] = {
        "bars": bars,
        "slowest": {"y": [slowest], "words": [f"the slowest: {slowest:.3g}"]},
    }
    return data, (
        f"The last of the steps: the fastest of {count:,} needs {order[0]:.3g} times the mean, the slowest"
        f" {slowest:.3g}; {waiting:.1%} of all GPU time is idle."
    )


def slowest_state(
    counts: Floats, line: Floats, means: Floats, spread: Floats, now: int, slow: float
) -> State:
    """Step over mean compute time for each number of ranks: the formula, and mean, p10 and p90 of draws."""
    at = int(np.argmin(np.abs(counts - now)))
    top = max(float(means.max()), float(spread.max()), float(line.max()))
    data: dict[str, dict[str, Any]] = {
        "line": {"x": counts, "y": line},
        "points": {
            "x": counts,
            "y": means,
            "low": spread[:, 0],
            "high": spread[:, 1],
            "words": [f"{int(p):,} GPUs: {y - 1:+.1%}" for p, y in zip(counts, means, strict=True)],
        },
        "now": {
            "x": [now],
            "y": [float(means[at])],
            "words": [f"{now:,} GPUs: {means[at] - 1:+.1%}"],
            "side": ["right" if now > 90 else "left"],
            "shift": [-10 if now > 90 else 10],
        },
        "slow": {
            "y": [slow] if slow > 1 else [],
            "words": ["the slow GPU alone"] if slow > 1 else [],
        },
        "room": {"y": [1.0, max(1.02, top)]},
    }
    return data, (
        f"A step of {now:,} GPUs takes {means[at] - 1:.1%} longer than the mean, as drawn; of"
        f" {int(counts[-1]):,} {means[-1] - 1:.1%} longer."
    )


def race_state(curves: Curves, target: float, lasts: float) -> State:
    """Loss over the loss at the start against seconds, for each way to train."""
    shown = {}
    for name, (time, loss) in curves.items():
        known = np.isfinite(loss)
        shown[name] = (time[known], np.clip(loss[known], LOWEST, 10.0))
    columns, ends = line_columns(shown)
    data: dict[str, dict[str, Any]] = {
        "lines": columns,
        "ends": {**ends, "x": [lasts] * len(shown)},
        "target": {"y": [target], "words": ["a tenth of the loss"]},
    }
    left = ", ".join(f"{name} {y[-1]:.2g}" for name, (_, y) in shown.items())
    return data, f"Loss after {format_quantity(lasts, 's')}, over that at the start: {left}."


def staleness_state(histogram: Floats) -> State:
    """Share of the updates by their staleness."""
    share = histogram / histogram.sum()
    mean = float((np.arange(len(histogram)) * share).sum())
    bars = {
        "staleness": np.arange(len(histogram)),
        "share": share,
        "words": [f"{s:.0%}" for s in share],
    }
    data: dict[str, dict[str, Any]] = {
        "bars": bars,
        "mean": {"x": [mean], "words": [f"mean {mean:.3g}"]},
    }
    usual = int(np.argmax(histogram))
    return data, f"Staleness is most often {usual} updates, {mean:.3g} on average."


def left_state(curves: Curves, published: Sequence[tuple[int, float, str]], now: int) -> State:
    """Rate of each GPU over that in one node, against GPUs; with the published points."""
    columns, ends = line_columns(curves)
    points: dict[str, list[Any]] = {n: [] for n in ("x", "y", "words", "error")}
    weak = curves["weak"]
    for gpus, left, words in published:
        predicted = float(np.interp(np.log(gpus), np.log(weak[0]), weak[1]))
        append(
            points,
            x=gpus,
            y=left,
            words=f"{gpus:,} GPUs, {words}: {left:.0%}",
            error=f"{predicted / left - 1:+.1%}",
        )
    data: dict[str, dict[str, Any]] = {
        "lines": columns,
        "ends": ends,
        "published": points,
        "now": value_at(curves, now, lambda y: f"{y:.0%}"),
    }
    here = [f"{name} {y:.0%}" for name, y in values_at(curves, now)]
    return data, (
        f"At {now:,} GPUs: {', '.join(here) or 'nothing to predict'}. Published: {points['y'][0]:.0%} at"
        f" {points['x'][0]:,}, which weak scaling meets with an error of {points['error'][0]}."
    )


def rate_state(curves: Curves, now: int) -> State:
    """Images a second against GPUs, log-log."""
    columns, ends = line_columns(curves)
    data: dict[str, dict[str, Any]] = {
        "lines": columns,
        "ends": ends,
        "now": value_at({k: v for k, v in curves.items() if k != "ideal"}, now, format_plain),
    }
    gpus, rate = curves["strong"]
    if not len(rate):
        return data, "Strong scaling fits nowhere here."
    best = int(np.argmax(rate))
    return data, (
        f"Strong scaling is the fastest at {int(gpus[best]):,} GPUs, {format_plain(rate[best])} images a second."
    )


def step_exchange_state(rows: Sequence[Mapping[str, Any]]) -> State:
    """Measured p10, median, p90 in s of all buckets of a step, and their price, for each bucket size."""
    names = ("size", "low", "median", "high", "price", "words")
    points: dict[str, list[Any]] = {name: [] for name in names}
    for row in rows:
        words = (
            f"{row['buckets']} of {format_quantity(row['size'], 'B')}: {format_quantity(row['median'], 's')},"
            f" priced {format_quantity(row['price'], 's')}"
        )
        append(points, **{name: row[name] for name in names[:-1]}, words=words)
    if not rows:
        return {"points": points}, "Nothing measured yet."
    return {"points": points}, f"Medians: {'; '.join(points['words'])}."


def _now(sizes: Floats, x: float, y: float, words: str) -> dict[str, list[Any]]:
    late = x > np.sqrt(float(sizes[0]) * float(sizes[-1]))
    return {
        "x": [x],
        "y": [y],
        "words": [f"now: {words}"],
        "side": ["right" if late else "left"],
        "shift": [-11 if late else 11],
    }
