"""What the explorer's charts over devices show: scaling, efficiency, cost, and what would help most.

Each `..._state` returns (data, summary), what Figure.update takes.
"""

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from lib_dlhpc.explore.blocks.charts import Data, State, columns, spread_labels
from lib_dlhpc.spec.units import count, format_energy, format_plain, format_quantity

HIDDEN, EXPOSED = "all hidden (bound)", "nothing hidden (bound)"
LINES = {  # color and dash
    "predicted": ("#0072b2", [1, 0]),
    "ideal": ("#999999", [2, 3]),
    HIDDEN: ("#009e73", [8, 3]),
    EXPOSED: ("#d55e00", [5, 2, 1, 2]),
}
TOTALS = {
    "time": ("#0072b2", [1, 0]),
    "energy": ("#d55e00", [6, 3]),
    "device-hours": ("#009e73", [2, 2]),
}


def scaling_state(
    devices: Iterable[float],
    predicted: Iterable[float],
    hidden: Iterable[float] | None = None,
    exposed: Iterable[float] | None = None,
    now: tuple[float, float] | None = None,
) -> State:
    """Speedup over one device for each number of devices, for "scaling" and "efficiency".

    hidden, exposed: the bounds with everything and with nothing hidden. now: (devices, speedup) of the present choice.
    """
    count = np.asarray(list(devices), dtype=float)
    curves = {"predicted": predicted, "ideal": count, HIDDEN: hidden, EXPOSED: exposed}
    known = {name: np.asarray(list(y), dtype=float) for name, y in curves.items() if y is not None}
    lines = [
        {"line": name, "devices": x, "speedup": y, "efficiency": y / x}
        for name, curve in known.items()
        for x, y in zip(count, curve, strict=True)
    ]
    low, high = known.get(EXPOSED, np.array([])), known.get(HIDDEN, np.array([]))
    x = count[: len(low)]
    band = {"devices": x, "speedup": low, "high": high}
    band |= {"efficiency": low / x, "high_efficiency": high / x}
    data: Data = {"lines": columns(lines), "band": band, "points": {}}
    if now is None:
        return data, ""
    data["points"] = columns([_point(*now, float(count.max()))])
    times, share = format_plain(now[1]), now[1] / now[0]
    words = f"{now[0]:,.0f} devices are {times} times as fast as one: {share:.0%} of the ideal."
    return data, words


def _point(devices: float, speedup: float, most: float) -> dict[str, Any]:
    # The lines run from lower left to upper right: words stand below them at first, above later.
    late = devices > most**0.6
    share = speedup / devices
    words = f"now: {format_plain(speedup)}× ({share:.0%})"
    place = {"side": "right", "shift": -12, "drop": -15} if late else {"side": "left", "shift": 12}
    point = {"devices": devices, "speedup": speedup, "efficiency": share, "words": words}
    return {**point, "drop": 16, "fall": 18, **place}


def totals_state(
    devices: Iterable[float],
    time: Iterable[float],
    energy: Iterable[float],
    device_hours: Iterable[float],
    now: float,
) -> State:
    """Seconds, joules and device-hours of the run for each number of devices; `now` is one of them."""
    x = np.asarray(list(devices), dtype=float)
    here = int(np.argmin(np.abs(x - now)))
    curves, ends, spoken = [], [], []
    for quantity, curve in zip(TOTALS, (time, energy, device_hours), strict=True):
        amounts = np.asarray(list(curve), dtype=float)
        relative = amounts / amounts[here]
        said = _amount(quantity, amounts[here])
        spoken.append(f"{quantity} {said}")
        curves += [
            {"quantity": quantity, "devices": d, "relative": r, "amount": _amount(quantity, amount)}
            for d, r, amount in zip(x, relative, amounts, strict=True)
        ]
        words = f"{quantity} ({said} now)"
        ends.append({"devices": x[-1], "place": relative[-1], "words": words})
    shown = {"curves": columns(curves), "ends": columns(ends)}
    shown["ends"]["place"] = spread_labels(shown["ends"]["place"], shown["curves"]["relative"])
    words = count(now, "device")
    data: Data = {**shown, "now": {"devices": [now], "words": [words]}}
    return data, f"On {words}: {', '.join(spoken)}."


def _amount(quantity: str, value: float) -> str:
    if quantity == "time":
        return format_quantity(value, "s")
    return format_energy(value) if quantity == "energy" else format_plain(value)


def sensitivity_state(shorter: Mapping[str, float]) -> State:
    """The fraction by which a step shortens when a part is twice as good; the eight largest."""
    order = sorted(shorter, key=lambda part: -shorter[part])[:8]
    values = [max(0.0, float(shorter[part])) for part in order]
    words = [f"{value:.1%}" if value < 0.1 else f"{value:.0%}" for value in values]
    columns = {"part": order, "order": list(range(len(order))), "shorter": values, "words": words}
    said = "No single part matters: each would shorten the step by less than 0.5%."
    if values and values[0] >= 0.005:
        said = f"Twice the {order[0]} would shorten a step by {values[0]:.0%}."
    return {"parts": columns}, said
