"""What the charts of the lesson on input show: columns for their drawings, and a sentence."""

from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from lib_dlhpc.explore.blocks import lines
from lib_dlhpc.explore.blocks.charts import State, columns, marked
from lib_dlhpc.spec.units import count, format_plain
from lib_dlhpc.spec.units import format_quantity as show

LINES = {
    "never waiting": lines.IDEAL,
    "FanStore": lines.FIRST,
    "shared file system": lines.SECOND,
    "cached fraction": lines.IDEAL,
    "hit rate": lines.FIRST,
    "read": lines.FIRST,
    "sent": lines.SECOND,
}
WORDS = {
    "metadata servers": "metadata operations",
    "storage bandwidth": "storage bandwidth",
    "network": "NICs",
    "readers": "readers",
}
HOW = ("predicted", "simulated", "measured")


def limits_state(rates: Mapping[str, float], demand: float) -> State:
    """Samples/s that each limit allows, on a logarithmic axis, beside the demand of the GPUs."""
    known = {name: rate for name, rate in rates.items() if np.isfinite(rate)}
    low = 10 ** np.floor(np.log10(min([*known.values(), demand]) / 1.5))
    high = 3 * max([*known.values(), demand])
    held = min((name for name in known if known[name] < demand), key=known.__getitem__, default="")
    shown, gpus = {name: format_plain(known[name]) for name in known}, format_plain(demand)
    bars = ranked(
        {
            "limit": WORDS[name],
            "start": low,
            "rate": known.get(name, low),
            "words": shown.get(name, "not used") + ": limits" * (name == held),
            "holds": name == held,
        }
        for name in rates
    )
    said = ", ".join(f"{WORDS[name]} {rate}" for name, rate in shown.items())
    end = f"limited by {WORDS[held]}" if held else "the GPUs themselves are the limit"
    return {
        "bars": bars,
        "demand": marked(f"the GPUs: {gpus}", demand > np.sqrt(low * high), 6, x=demand),
        "room": {"x": [low, high]},
    }, f"Samples per second: {said}; the GPUs would train {gpus}: {end}."


def reader_state(parts: Mapping[str, float]) -> State:
    """Seconds of one reader for a sample, by what it does."""
    whole = sum(parts.values())
    words = [
        f"{show(each, 's')}, {each / whole:.0%}" if each else "none" for each in parts.values()
    ]
    bars = {"part": list(parts), "seconds": list(parts.values()), "words": words}
    most = max(parts, key=parts.__getitem__)
    first = f"One reader takes {show(whole, 's')} for a sample, {parts[most] / whole:.0%} of it for {most}"
    rest = "" if most == "transfer" else f", {parts['transfer'] / whole:.0%} for the transfer"
    return {"bars": bars, "room": {"x": [0.0, 1.25 * max(whole, 1e-9)]}}, f"{first}{rest}."


def writes_state(times: Mapping[str, float], limits: Mapping[str, str]) -> State:
    """Seconds in which a checkpoint is written, by way, and what limits each."""
    words = [f"{show(times[way], 's')}, by {limits[way]}" for way in times]
    bars = {"way": list(times), "seconds": list(times.values()), "words": words}
    said = ", ".join(f"{way} {word}" for way, word in zip(times, words, strict=True))
    room = {"x": [0.0, 1.4 * max(times.values())]}
    return {"bars": bars, "room": room}, f"A checkpoint is written in: {said}."


def cache_state(shares: Any, found: Any, now: float, rule: str) -> State:
    """Hit rate of a policy, against the cached fraction of the data set."""
    # line_columns spreads labels on a logarithmic axis, where no hits would have no place.
    curves = {"cached fraction": (shares, shares + 1), "hit rate": (shares, found + 1)}
    data, hit = lines.line_columns(curves), float(np.interp(now, shares, found))
    data["lines"]["y"] = [y - 1 for y in data["lines"]["y"]]
    data["ends"]["place"] = spread_labels([1.0, float(found[-1])])
    data["now"] = marked(f"{hit:.0%} hits", now > 0.2, 11, x=now, y=hit)
    return data, f"With {now:.0%} of the data set in the cache, policy {rule}: {hit:.0%} hits."


def policies_state(found: Mapping[str, float], share: float, chosen: str) -> State:
    """Hit rate of each policy, beside the cached fraction."""
    words = {name: f"{hit:.0%}{' (chosen)' * (name == chosen)}" for name, hit in found.items()}
    bars = ranked(
        {"policy": name, "hit": found[name], "words": words[name], "chosen": name == chosen}
        for name in found
    )
    hits = ", ".join(f"{name} {hit:.0%}" for name, hit in found.items())
    cached = marked(f"cached: {share:.0%}", share > 0.4, 6, x=share)
    return {"bars": bars, "share": cached}, f"{share:.0%} of the data set is cached. Hits: {hits}."


def efficiency_state(curves: lines.Curves, now: int, published: tuple[int, float]) -> State:
    """Rate of each node over that of one that never waits, against nodes."""
    data = lines.line_columns(curves)
    data["ends"]["place"] = spread_labels([float(y[-1]) for _, y in curves.values() if len(y)])
    waiting = {name: curve for name, curve in curves.items() if name != "never waiting"}
    x, y = published
    star = {"x": x, "y": y, "words": f"published: over {y:.0%} at {x} nodes"}
    data |= {"now": lines.value_at(waiting, now, "{:.0%}".format), "published": columns([star])}
    words = ", ".join(f"{name} {value:.0%}" for name, value in lines.values_at(curves, now))
    return data, f"At {count(now, 'node')}, of a node that never waits: {words}."


def capacity_state(nodes: Any, held: Any, room: float, now: int) -> State:
    """Bytes of the data set that each node keeps, against nodes, with the wall of its SSD."""
    at = float(held[nodes == now][0])
    low, high = 0.5 * min(float(held.min()), room), 2 * max(float(held.max()), room)
    verdict = "fits" if at <= room else "does not fit"
    return (
        {
            "line": {"x": nodes, "y": held},
            "wall": {
                "y": [room],
                "top": [high],
                "words": [f"the SSD of a node: {show(room, 'B')}"],
            },
            "room": {"y": [low, high]},
            "now": marked(show(at, "B"), now > 20, 11, x=now, y=at),
        },
        f"Each of {count(now, 'node')} keeps {show(at, 'B')}, which {verdict} into its {show(room, 'B')}.",
    )


def volume_state(curves: lines.Curves, now: int) -> State:
    """Bytes that a device reads and sends, against its batch, both axes logarithmic."""
    sizes = [f"{show(size, 'B')} {name}" for name, size in lines.values_at(curves, now)]
    beside = lines.value_at(curves, now, lambda y: show(y, "B"))
    words = f"With {now} samples, of each device: {', '.join(sizes)}."
    return {**lines.line_columns(curves), "now": beside}, words


def measured_state(rates: Mapping[str, Sequence[float]]) -> State:
    """Files/s of each way to read, predicted, simulated and measured."""
    bars = ranked(
        {"row": f"{way}, {how}", "rate": rate, "words": format_plain(rate), "way": how}
        for way, own in rates.items()
        for how, rate in zip(HOW, own, strict=True)
    )
    said = ", ".join(map(" ".join, zip(bars["row"], bars["words"], strict=True)))
    return {"bars": bars}, f"Files per second: {said}."


def ranked(rows: Iterable[Mapping[str, Any]]) -> dict[str, list[Any]]:
    """Return the columns of rows that stay in their order."""
    return columns({**row, "order": order} for order, row in enumerate(rows))


def spread_labels(places: Sequence[float], gap: float = 0.09) -> list[float]:
    """Move labels on a linear axis apart, the highest first, downwards."""
    moved = list(places)
    for high, low in pairwise(sorted(range(len(moved)), key=lambda k: -moved[k])):
        moved[low] = min(moved[low], moved[high] - gap)
    return moved
