"""Columns and sentences for the drawings of the lesson on input; see charts.py for their use."""

from collections.abc import Mapping
from itertools import pairwise
from typing import Any

import numpy as np

from lib_dlhpc.explore.blocks.charts import State, append
from lib_dlhpc.explore.blocks.lines import Curves, line_columns, value_at
from lib_dlhpc.results.palette import SERIES
from lib_dlhpc.spec.units import format_plain
from lib_dlhpc.spec.units import format_quantity as show

LINES = {  # no causes of time, so the series' colors; dash and symbol distinguish the lines without them
    "never waiting": (SERIES[6], [2, 3], "diamond"),
    "FanStore": (SERIES[0], [1, 0], "circle"),
    "shared file system": (SERIES[1], [6, 3], "square"),
    "cached fraction": (SERIES[6], [2, 3], "diamond"),
    "hit rate": (SERIES[0], [1, 0], "circle"),
    "read": (SERIES[0], [1, 0], "circle"),
    "sent": (SERIES[1], [6, 3], "square"),
}
WORDS = {
    "metadata servers": "metadata operations",
    "storage bandwidth": "storage bandwidth",
    "network": "network cards",
    "readers": "readers",
}


def limits_state(rates: Mapping[str, float], demand: float) -> State:
    """Samples/s that each limit allows, on a logarithmic axis, beside the demand of the GPUs."""
    known = {name: rate for name, rate in rates.items() if np.isfinite(rate)}
    low = 10 ** np.floor(np.log10(min([*known.values(), demand]) / 1.5))
    high = 3 * max([*known.values(), demand])
    least = min(known, key=lambda name: known[name], default="")
    holds = bool(least) and known[least] < demand
    names = ("limit", "start", "rate", "words", "holds", "order")
    bars: dict[str, list[Any]] = {n: [] for n in names}
    for order, (name, rate) in enumerate(rates.items()):
        own = holds and name == least
        value = format_plain(rate) if np.isfinite(rate) else "not used"
        append(
            bars,
            limit=WORDS[name],
            start=low,
            rate=rate if np.isfinite(rate) else low,
            words=f"{value}: limits" if own else value,
            holds=own,
            order=order,
        )
    late = demand > np.sqrt(low * high)
    data: dict[str, dict[str, Any]] = {
        "bars": bars,
        "demand": {
            "x": [demand],
            "words": [f"the GPUs: {format_plain(demand)}"],
            "side": ["right" if late else "left"],
            "shift": [-6 if late else 6],
        },
        "room": {"x": [low, high]},
    }
    said = ", ".join(f"{WORDS[name]} {format_plain(rate)}" for name, rate in known.items())
    end = f"held up by {WORDS[least]}" if holds else "the GPUs themselves are the limit"
    return data, (f"Samples a second: {said}; the GPUs would train {format_plain(demand)}: {end}.")


def reader_state(parts: Mapping[str, float]) -> State:
    """Seconds of one reader for a sample, by what it does."""
    whole = sum(parts.values())
    names = ("part", "seconds", "words")
    bars: dict[str, list[Any]] = {n: [] for n in names}
    for name, seconds in parts.items():
        share = seconds / whole if whole else 0.0
        append(
            bars,
            part=name,
            seconds=seconds,
            words=f"{show(seconds, 's')}, {share:.0%}" if seconds else "none",
        )
    most = max(parts, key=lambda name: parts[name])
    data: dict[str, dict[str, Any]] = {"bars": bars, "room": {"x": [0.0, 1.25 * max(whole, 1e-9)]}}
    first = f"One reader takes {show(whole, 's')} for a sample, {parts[most] / whole:.0%} of it for {most}"
    rest = "" if most == "transfer" else f", {parts['transfer'] / whole:.0%} for the transfer"
    return data, f"{first}{rest}."


def cache_state(shares: Any, found: Any, now: float, rule: str) -> State:
    """Hit rate of a policy, against the cached fraction of the data set."""
    # Where nothing is found, a logarithm of it would have no end; the labels' places are linear here.
    curves = {"cached fraction": (shares, shares + 1), "hit rate": (shares, found + 1)}
    columns, ends = line_columns(curves)
    columns["y"] = [y - 1 for y in columns["y"]]
    ends["place"] = [1.0, float(found[-1])]
    hit = float(np.interp(now, shares, found))
    late = now > 0.2
    data: dict[str, dict[str, Any]] = {
        "lines": columns,
        "ends": {**ends, "place": spread_labels(ends["place"], 0.09)},
        "now": {
            "x": [now],
            "y": [hit],
            "words": [f"{hit:.0%} hits"],
            "side": ["right" if late else "left"],
            "shift": [-11 if late else 11],
        },
    }
    return data, f"With {now:.0%} of the data set in the cache, policy {rule}: {hit:.0%} hits."


def policies_state(found: Mapping[str, float], share: float, chosen: str) -> State:
    """Hit rate of each policy, beside the cached fraction."""
    names = ("policy", "hit", "words", "chosen", "order")
    bars: dict[str, list[Any]] = {n: [] for n in names}
    for order, (name, hit) in enumerate(found.items()):
        append(
            bars,
            policy=name,
            hit=hit,
            words=f"{hit:.0%}{' (chosen)' * (name == chosen)}",
            chosen=name == chosen,
            order=order,
        )
    late = share > 0.4
    data: dict[str, dict[str, Any]] = {
        "bars": bars,
        "share": {
            "x": [share],
            "words": [f"cached: {share:.0%}"],
            "side": ["right" if late else "left"],
            "shift": [-6 if late else 6],
        },
    }
    hits = ", ".join(f"{name} {hit:.0%}" for name, hit in found.items())
    return data, f"{share:.0%} of the data set is cached. Hits: {hits}."


def efficiency_state(curves: Curves, now: int, published: tuple[int, float]) -> State:
    """Rate of each node over that of one that never waits, against nodes."""
    columns, ends = line_columns(curves)
    here = [(name, float(y[x == now][0])) for name, (x, y) in curves.items() if now in x]
    data: dict[str, dict[str, Any]] = {
        "lines": columns,
        "ends": {
            **ends,
            "place": spread_labels([float(y[-1]) for _, y in curves.values() if len(y)], 0.09),
        },
        "now": value_at(
            {n: c for n, c in curves.items() if n != "never waiting"}, now, lambda y: f"{y:.0%}"
        ),
        "published": {
            "x": [published[0]],
            "y": [published[1]],
            "words": [f"published: over {published[1]:.0%} at {published[0]} nodes"],
        },
    }
    words = ", ".join(f"{name} {value:.0%}" for name, value in here)
    return data, f"At {now:,} nodes, of a node that never waits: {words}."


def capacity_state(nodes: Any, held: Any, room: float, now: int) -> State:
    """Bytes of the data set that each node keeps, against nodes, with the wall of its SSD."""
    at = float(held[nodes == now][0])
    low, high = 0.5 * min(float(held.min()), room), 2 * max(float(held.max()), room)
    late = now > 20
    data: dict[str, dict[str, Any]] = {
        "line": {"x": nodes, "y": held},
        "wall": {"y": [room], "top": [high], "words": [f"the SSD of a node: {show(room, 'B')}"]},
        "room": {"y": [low, high]},
        "now": {
            "x": [now],
            "y": [at],
            "words": [show(at, "B")],
            "side": ["right" if late else "left"],
            "shift": [-11 if late else 11],
        },
    }
    verdict = "fits" if at <= room else "does not fit"
    return data, (
        f"Each of {now:,} nodes keeps {show(at, 'B')}, which {verdict} into its {show(room, 'B')}."
    )


def volume_state(curves: Curves, now: int) -> State:
    """Bytes that a device reads and sends, against its batch, both axes logarithmic."""
    columns, ends = line_columns(curves)
    data: dict[str, dict[str, Any]] = {
        "lines": columns,
        "ends": ends,
        "now": value_at(curves, now, lambda y: show(y, "B")),
    }
    sizes = [f"{show(float(y[x == now][0]), 'B')} {name}" for name, (x, y) in curves.items()]
    return data, f"With {now} samples, of each device: {', '.join(sizes)}."


def measured_state(rows: list[tuple[str, str, float]]) -> State:
    """Files/s on a folder and on a store: (where, way, files/s)."""
    bars: dict[str, list[Any]] = {n: [] for n in ("row", "rate", "words", "way", "order")}
    for order, (where, way, rate) in enumerate(rows):
        append(
            bars, row=f"{where}, {way}", rate=rate, words=format_plain(rate), way=way, order=order
        )
    if not rows:
        return {"bars": bars}, "Nothing read yet."
    rates = ", ".join(
        f"{row} {words}" for row, words in zip(bars["row"], bars["words"], strict=True)
    )
    return {"bars": bars}, f"Files a second: {rates}."


def spread_labels(places: list[float], gap: float) -> list[float]:
    """Move labels on a linear axis apart, the highest first, downwards."""
    moved = list(places)
    order = sorted(range(len(moved)), key=lambda k: -moved[k])
    for high, low in pairwise(order):
        moved[low] = min(moved[low], moved[high] - gap)
    return moved
