"""Columns and sentences for the drawings of the allreduce lesson; see charts.py for how they are used."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from lib_dlhpc.explore.blocks.charts import State, append, spread_labels
from lib_dlhpc.prediction.collectives import Cost
from lib_dlhpc.results.palette import SERIES
from lib_dlhpc.spec.units import format_quantity

# No causes of time, so the series' colors; dash and symbol distinguish the lines without them.
LINES = {
    "recursive_doubling": (SERIES[1], [1, 0], "circle"),
    "rabenseifner": (SERIES[0], [9, 3], "square"),
    "ring": (SERIES[2], [2, 2], "triangle-up"),
    "torus_2d": (SERIES[3], [7, 2, 2, 2], "diamond"),
    "binomial": (SERIES[4], [4, 4], "cross"),
    "hierarchical": (SERIES[5], [1, 2], "triangle-down"),
    "MPI_Allreduce": (SERIES[6], [1, 1], "cross"),
}
NAMES = {"rabenseifner": "Rabenseifner", "torus_2d": "2-D torus"}
CAUSES = {"latency": SERIES[4], "bandwidth": SERIES[0], "reduction": SERIES[2]}
SYMBOL_EVERY = 9  # points of a line between two symbols


def name_of(algorithm: str) -> str:
    """Return how a chart calls an algorithm."""
    return NAMES.get(algorithm, algorithm.replace("_", " "))


def sizes_state(
    sizes: np.ndarray, times: Mapping[str, np.ndarray], intervals: Sequence[Any], size: float
) -> State:
    """Seconds of each algorithm over sizes in B; `intervals` (algorithm, start, stop) of the winners."""
    lines: dict[str, list[Any]] = {n: [] for n in ("line", "size", "seconds", "symbol")}
    ends: dict[str, list[Any]] = {n: [] for n in ("line", "words", "seconds", "place")}
    for i, (name, curve) in enumerate(times.items()):
        for k, (x, y) in enumerate(zip(sizes, curve, strict=True)):
            marked = k % SYMBOL_EVERY == (2 * i) % SYMBOL_EVERY and k < len(sizes) - 1
            append(lines, line=name, size=float(x), seconds=float(y), symbol=marked)
        append(ends, line=name, words=name_of(name), seconds=float(curve[-1]), place=0.0)
    everything = np.concatenate([np.asarray(c) for c in times.values()])
    ends["place"] = spread_labels(ends["seconds"], [everything.min(), everything.max()])
    regions: dict[str, list[Any]] = {n: [] for n in ("line", "start", "stop", "middle", "words")}
    last = float(sizes[-1])
    for algorithm, start, stop in intervals:
        low, high = max(float(start), float(sizes[0])), min(float(stop), last)
        if low < high:
            append(
                regions,
                line=algorithm,
                start=low,
                stop=high,
                middle=float(np.sqrt(low * high)),
                words=name_of(algorithm),
            )
    turns: dict[str, list[Any]] = {"size": [], "words": []}
    for x in regions["start"][1:]:
        append(turns, size=x, words=format_quantity(x, "B"))
    marker = {
        "size": [size],
        "words": [f"{format_quantity(size, 'B')} now"],
        "side": ["right" if size > 1e7 else "left"],
        "shift": [-6 if size > 1e7 else 6],
    }
    near = int(np.argmin(np.abs(np.log(sizes / size))))
    order = sorted(times, key=lambda name: times[name][near])
    shown = ", ".join(f"{name_of(n)} {format_quantity(float(times[n][near]), 's')}" for n in order)
    return (
        {"lines": lines, "ends": ends, "regions": regions, "turns": turns, "marker": marker},
        f"At about {format_quantity(size, 'B')}: {shown}.",
    )


def nics_state(times: Mapping[str, Cost], carried: Mapping[str, float], size: float) -> State:
    """Seconds of each algorithm by cause, fastest first, and buffers that leave the busiest node."""
    parts: dict[str, list[Any]] = {
        n: [] for n in ("algorithm", "cause", "order", "start", "stop", "time")
    }
    ends: dict[str, list[Any]] = {n: [] for n in ("algorithm", "order", "stop", "room", "words")}
    longest = max(float(cost.total) for cost in times.values())
    for order, (name, cost) in enumerate(times.items()):
        start = 0.0
        for cause in CAUSES:
            seconds = float(getattr(cost, cause))
            append(
                parts,
                algorithm=name_of(name),
                cause=cause,
                order=order,
                start=start,
                stop=start + seconds,
                time=format_quantity(seconds, "s"),
            )
            start += seconds
        append(
            ends,
            algorithm=name_of(name),
            order=order,
            stop=start,
            room=1.42 * longest,
            words=f"{format_quantity(start, 's')}, {carried[name]:.3g} × through the NICs",
        )
    first, last = next(iter(times)), list(times)[-1]
    return {"parts": parts, "ends": ends}, (
        f"{name_of(first)} is the fastest for {format_quantity(size, 'B')}, {name_of(last)} the slowest."
    )


def messages_state(rounds: Sequence[Any], ranks: int, elements: int, now: int, names: str) -> State:
    """The messages of a schedule as lines from (round, source) to (round + 1, target); `now`: round shown."""
    arrows: dict[str, list[Any]] = {
        n: [] for n in ("from", "to", "source", "target", "kind", "share", "now", "words")
    }
    for k, part in enumerate(rounds):
        for s, t, o, c, reduce in zip(*(a.tolist() for a in part.arrays), strict=True):
            kind = "reduce" if reduce else "copy"
            append(
                arrows,
                **{
                    "from": k,
                    "to": k + 1,
                    "source": s,
                    "target": t,
                    "kind": kind,
                    "share": c / max(elements, 1),
                    "now": now in (0, k + 1),
                    "words": f"round {k + 1}: {s} to {t}, {kind}, {c} elements from {o} on",
                },
            )
    count = len(rounds)
    points = {
        "round": [k for k in range(count + 1) for _ in range(ranks)],
        "rank": [r for _ in range(count + 1) for r in range(ranks)],
    }
    stage = {"start": [now - 1] if now else [], "stop": [now] if now else []}
    reduces = sum(kind == "reduce" for kind in arrows["kind"])
    key = {
        "kind": ["reduce", "copy"],
        "at": [8, 258],
        "words": ["reduce: combined with what is there", "copy: takes its place"],
    }
    return {"arrows": arrows, "points": points, "stage": stage, "key": key}, (
        f"{names} on {ranks} ranks: {count} rounds, {reduces} messages that are combined (solid, filled"
        f" disc), {len(arrows['kind']) - reduces} that are copied (dashed, open square)."
    )


def measured_state(rows: Sequence[Mapping[str, Any]]) -> State:
    """Measured p10, median, p90 in s for each size, and the prediction where there is one."""
    columns = ("algorithm", "size", "low", "median", "high", "price", "place", "time", "expected")
    points: dict[str, list[Any]] = {n: [] for n in columns}
    names = list(dict.fromkeys(row["algorithm"] for row in rows))
    for row in rows:
        shift = 1.16 ** (names.index(row["algorithm"]) - (len(names) - 1) / 2)
        price = row.get("price")
        append(
            points,
            algorithm=row["algorithm"],
            size=row["size"],
            low=row["low"],
            median=row["median"],
            high=row["high"],
            price=price,
            place=row["size"] * shift,
            time=format_quantity(row["median"], "s"),
            expected=format_quantity(price, "s") if price else "none",
        )
    if not rows:
        return {"points": points}, "Nothing measured yet."
    last = max(row["size"] for row in rows)
    medians = [
        f"{name_of(r['algorithm'])} {format_quantity(r['median'], 's')}"
        + (f" (predicted {format_quantity(r['price'], 's')})" if r.get("price") else "")
        for r in rows
        if r["size"] == last
    ]
    return {"points": points}, f"Medians at {format_quantity(last, 'B')}: {', '.join(medians)}."
