"""What the explorer's charts over devices show: scaling, efficiency, cost, and what would help most.

Each `..._state` returns (data, summary), what Figure.update takes.
"""

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from lib_dlhpc.explore.blocks.charts import Data, State, append, spread_labels
from lib_dlhpc.spec.units import format_plain, format_quantity

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
