"""What each chart shows: columns for its drawing, and the same in a sentence.

A drawing is made once (see drawings.py and built.py); here numbers become the columns of its named
datasets.  Each `..._state` returns (data, summary), what Figure.update takes:

    step = chart("step")
    step.update(*step_state(breakdown.terms))
"""

from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from lib_dlhpc.explore.blocks.built import drawings
from lib_dlhpc.explore.blocks.figure import Figure
from lib_dlhpc.results import palette
from lib_dlhpc.spec.units import format_plain, format_quantity

Data = dict[str, dict[str, Any]]
State = tuple[Data, str]

PARTS, LEDGER, LIGHT_INK = palette.TERMS, palette.MEMORY, palette.LIGHT_INK
LINES = {  # color and dash
    "predicted": ("#0072b2", [1, 0]),
    "ideal": ("#999999", [2, 3]),
    "all hidden (bound)": ("#009e73", [8, 3]),
    "nothing hidden (bound)": ("#d55e00", [5, 2, 1, 2]),
}
TOTALS = {
    "time": ("#0072b2", [1, 0]),
    "energy": ("#d55e00", [6, 3]),
    "device-hours": ("#009e73", [2, 2]),
}
HIDDEN, EXPOSED = "all hidden (bound)", "nothing hidden (bound)"


def drawing(name: str) -> dict[str, Any]:
    """Return the compiled drawing called `name`; KeyError names the legal ones."""
    known = drawings()
    if name not in known:
        raise KeyError(f"no drawing {name!r}; there are: {', '.join(known)}")
    return known[name]


def chart(name: str, data: Data | None = None, summary: str = "") -> Figure:
    """Return a Figure of the drawing called `name`, empty or with its first state."""
    return Figure(drawing(name), data or {}, summary)


def step_state(
    terms: Mapping[str, float],
    bound: Mapping[str, float] | None = None,
    best: float | None = None,
    bands: Mapping[str, tuple[float, float]] | None = None,
) -> State:
    """Seconds of one step by cause (keys of PARTS); `bound`: the same with nothing hidden.

    best: seconds of a step that hides all it can, a lower bound. bands: (low, high) s that "one step" and its
    terms may take, by name, where that is known.
    """
    known = bands or {}
    total = float(sum(terms.values()))
    whole_band = known.get("one step")
    longest = max(total, float(sum((bound or {}).values())), whole_band[1] if whole_band else 0.0)
    columns: dict[str, list[Any]] = {
        name: []
        for name in (
            "row",
            "bound",
            "part",
            "start",
            "stop",
            "middle",
            "share",
            "share_of_axis",
            "time",
            "long",
            "short",
            "ink",
        )
    }
    for row, parts in (("predicted", terms), ("nothing hidden", bound or {})):
        start, whole = 0.0, float(sum(parts.values()))
        for part, value in parts.items():
            seconds = float(value)
            share = f"{seconds / whole:.0%}" if whole else "0%"
            time = format_quantity(seconds, "s")
            if row == "predicted" and part in known:
                time += f" ({between(known[part])})"
            if seconds > 0:
                append(
                    columns,
                    row=row,
                    bound=row != "predicted",
                    part=part,
                    start=start,
                    stop=start + seconds,
                    middle=start + seconds / 2,
                    share=share,
                    share_of_axis=seconds / longest,
                    time=time,
                    long=f"{part} {share}",
                    short=share,
                    ink="#ffffff" if part in LIGHT_INK else "#000000",
                )
            start += seconds
    data: Data = {"parts": columns}
    data["best"] = {"seconds": [], "words": [], "side": [], "shift": []}
    if best is not None and best < 0.98 * total:
        late = best > 0.6 * longest
        append(
            data["best"],
            seconds=best,
            words=f"all hidden: {format_quantity(best, 's')}",
            side="right" if late else "left",
            shift=-5 if late else 5,
        )
    data["span"] = {"row": [], "low": [], "high": [], "words": []}
    taken = format_quantity(total, "s")
    if whole_band:
        taken += f" ({between(whole_band)})"
        words = f"90 % band: {between(whole_band)}"
        append(data["span"], row="predicted", low=whole_band[0], high=whole_band[1], words=words)
    return data, _step_words(terms, total, bound, taken)


def between(band: tuple[float, float]) -> str:
    """Return the ends of a band of seconds, in words."""
    return f"{format_quantity(band[0], 's')} to {format_quantity(band[1], 's')}"


def _step_words(
    terms: Mapping[str, float], total: float, bound: Mapping[str, float] | None, taken: str
) -> str:
    order = sorted(terms, key=lambda part: -terms[part])[:3]
    named = [f"{part} {terms[part] / total:.0%}" for part in order if terms[part] > 0.005 * total]
    words = f"One step takes {taken}: {', '.join(named)}."
    if bound:
        words += f" With nothing hidden it would take {format_quantity(sum(bound.values()), 's')}."
    return words


def scaling_state(
    devices: Iterable[float],
    predicted: Iterable[float],
    hidden: Iterable[float] | None = None,
    exposed: Iterable[float] | None = None,
    now: tuple[float, float] | None = None,
) -> State:
    """Speed-up over one device for each number of devices, for "scaling" and "efficiency".

    hidden, exposed: the bounds with everything and with nothing hidden.  now: (devices, speed-up)
    of the present choice.
    """
    count = np.asarray(list(devices), dtype=float)
    curves = {"predicted": predicted, "ideal": count, HIDDEN: hidden, EXPOSED: exposed}
    lines: dict[str, list[Any]] = {n: [] for n in ("line", "devices", "speedup", "efficiency")}
    for name, curve in curves.items():
        for x, y in zip(count, [] if curve is None else list(curve), strict=False):
            append(lines, line=name, devices=x, speedup=float(y), efficiency=float(y) / x)
    data: Data = {"lines": lines, "band": {}, "points": _points(count, now)}
    names = ("devices", "speedup", "high", "efficiency", "high_efficiency")
    data["band"] = {name: [] for name in names}
    if hidden is not None and exposed is not None:
        low, high = np.asarray(list(exposed)), np.asarray(list(hidden))
        values = (count, low, high, low / count, high / count)
        data["band"] = dict(zip(names, values, strict=True))
    words = ""
    if now:
        words = (
            f"{now[0]:,.0f} devices are {format_plain(now[1])} times as fast as one: "
            f"{now[1] / now[0]:.0%} of the ideal."
        )
    return data, words


def _points(count: np.ndarray, now: tuple[float, float] | None) -> dict[str, list[Any]]:
    names = ("devices", "speedup", "efficiency", "words", "side", "shift", "drop", "fall")
    points: dict[str, list[Any]] = {name: [] for name in names}
    if now:
        x, y = now
        # The lines run from lower left to upper right: words stand below them at first, above later.
        late = bool(count.size) and x > count.max() ** 0.6
        append(
            points,
            devices=x,
            speedup=y,
            efficiency=y / x,
            words=f"now: {format_plain(y)}× ({y / x:.0%})",
            side="right" if late else "left",
            shift=-12 if late else 12,
            drop=-15 if late else 16,
            fall=18,
        )
    return points


def memory_state(ledger: Mapping[str, float], capacity: float) -> State:
    """Bytes by term (keys of LEDGER) on one device, and the bytes that it has."""
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
                size=format_quantity(stop - start, "B"),
                over=over,
                over_start=stop - over,
            )
        start = stop
    fits = total <= capacity
    have, need = format_quantity(capacity, "B"), format_quantity(total, "B")
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
    return {"terms": columns, "wall": wall}, words + f"{format_quantity(ledger[largest], 'B')}."


def totals_state(
    devices: Iterable[float],
    time: Iterable[float],
    energy: Iterable[float],
    device_hours: Iterable[float],
    now: float,
) -> State:
    """Seconds, joules and device-hours of the run for each number of devices; `now` is one of them."""
    x = np.asarray(list(devices), dtype=float)
    values = {"time": time, "energy": energy, "device-hours": device_hours}
    here = int(np.argmin(np.abs(x - now)))
    curves: dict[str, list[Any]] = {n: [] for n in ("quantity", "devices", "relative", "amount")}
    ends: dict[str, list[Any]] = {n: [] for n in ("devices", "place", "words")}
    spoken = []
    for quantity, curve in values.items():
        amounts = np.asarray(list(curve), dtype=float)
        for count, amount in zip(x, amounts, strict=True):
            append(
                curves,
                quantity=quantity,
                devices=count,
                relative=amount / amounts[here],
                amount=_amount(quantity, amount),
            )
        said = _amount(quantity, amounts[here])
        spoken.append(f"{quantity} {said}")
        append(
            ends, devices=x[-1], place=amounts[-1] / amounts[here], words=f"{quantity} ({said} now)"
        )
    ends["place"] = spread_labels(ends["place"], curves["relative"])
    words = f"{now:,.0f} device{'s' * (now != 1)}"
    data: Data = {"curves": curves, "ends": ends, "now": {"devices": [now], "words": [words]}}
    return data, f"On {words}: {', '.join(spoken)}."


def _amount(quantity: str, value: float) -> str:
    if quantity == "time":
        return format_quantity(value, "s")
    if quantity == "energy":
        return format_quantity(value / 3600, "Wh")
    return format_plain(value)


def spread_labels(places: Sequence[float], shown: Iterable[float]) -> list[float]:
    """Move labels on a logarithmic axis apart until a line of text fits between them."""
    all_places = np.log(np.asarray(list(shown)))
    gap = max(float(all_places.max() - all_places.min()), 0.05) * 0.085
    order = np.argsort(places)
    moved = np.log(np.asarray(places, dtype=float))
    for _ in range(4):  # each pass halves what still overlaps
        for low, high in pairwise(order):
            missing = gap - (moved[high] - moved[low])
            if missing > 0:
                moved[low] -= missing / 2
                moved[high] += missing / 2
    return [float(place) for place in np.exp(moved)]


def sensitivity_state(shorter: Mapping[str, float], most: int = 8) -> State:
    """The fraction by which a step shortens when a part is twice as good; the `most` largest."""
    order = sorted(shorter, key=lambda part: -shorter[part])[:most]
    values = [max(0.0, float(shorter[part])) for part in order]
    columns = {
        "part": order,
        "order": list(range(len(order))),
        "shorter": values,
        "words": [f"{value:.1%}" if value < 0.1 else f"{value:.0%}" for value in values],
    }
    if not values or values[0] < 0.005:
        return {
            "parts": columns
        }, "No single part matters: each would shorten the step by less than 0.5%."
    return {"parts": columns}, f"Twice the {order[0]} would shorten a step by {values[0]:.0%}."


def append(columns: dict[str, list[Any]], **row: Any) -> None:
    """Append one row to columns."""
    for name, value in row.items():
        columns[name].append(value)
