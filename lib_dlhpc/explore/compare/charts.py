"""Columns and sentences for the drawings of a comparison; see blocks/charts.py for their use."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from lib_dlhpc.comparison import Comparison, Sweep
from lib_dlhpc.comparison.comparison import Expected
from lib_dlhpc.comparison.steady import OTHER
from lib_dlhpc.comparison.sweep_text import summary
from lib_dlhpc.explore.blocks.bars import stacks
from lib_dlhpc.explore.blocks.charts import State, between, columns
from lib_dlhpc.prediction.measured.bands import ALL
from lib_dlhpc.results import palette
from lib_dlhpc.spec.units import format_quantity as show

CAUSES = {**palette.TERMS, OTHER: palette.IDLE_LIGHT}
ROWS = {
    "predicted": "predicted",
    "rounds": "simulated (rounds)",
    "events": "simulated (events)",
    "measured": "measured here",
}
LOOKS = {  # shape, dash, and opacity of its inside, of a way where each is a point
    "predicted": ("circle", [6, 3], 0.3),
    "simulated (rounds)": ("square", [2, 2], 0.0),
    "simulated (events)": ("triangle-up", [8, 2, 2, 2], 0.0),
    "measured here": ("diamond", [1, 0], 1.0),
}

Terms = Mapping[str, Mapping[str, float]]  # way -> name -> s
Spans = Mapping[str, tuple[float, float]]  # low and high, by way


def predicted_state(expected: Expected) -> State:
    """The ways there are before a run."""
    return _bars(expected.terms, {way: bands[ALL] for way, bands in expected.bands.items()})


def compared_state(of: Comparison) -> State:
    """All ways, by cause, each with what it may be off by."""
    terms = {
        way: {name: seconds[way] for name, seconds in of.terms.items() if way in seconds}
        for way in of.step
    }
    spans = {way: bands[ALL] for way, bands in of.bands.items()} | {"measured": of.spread}
    return _bars(terms, spans)


def _bars(terms: Terms, spans: Spans) -> State:
    """Bars of the causes of a step, a row for each way, and its span."""
    longest = max([sum(each.values()) for each in terms.values()] + [s[1] for s in spans.values()])
    data = stacks({ROWS[way]: parts for way, parts in terms.items()}, CAUSES, "s", longest)
    sums = data["sums"]
    sums["stop"] = [
        max(whole, spans.get(way, (0.0, whole))[1])
        for way, whole in zip(terms, sums["stop"], strict=True)
    ]
    ends = [
        {
            "row": ROWS[way],
            "low": spans[way][0],
            "high": spans[way][1],
            "words": _may_be(way, spans),
        }
        for way in terms
        if way in spans
    ]
    data["ends"] = columns(ends)
    each = map(" ".join, zip(sums["row"], sums["words"], strict=True))
    return data, f"One step: {', '.join(each)}."


def _may_be(way: str, spans: Spans) -> str:
    kind = "p10 to p90 of its steps" if way == "measured" else "90% band"
    return f"{kind}: {between(spans[way])}"


def swept_state(of: Sweep) -> State:
    """Every setting of a sweep: a point for each way, with its span."""
    rows = []
    for row in of.rows:
        found = row.comparison
        if found is not None:
            words = label(row.setting) + (" (cores shared)" if found.oversubscribed else "")
            known = {way: bands.get(ALL) for way, bands in found.bands.items()}
            rows.append((words, found.step, {**known, "measured": found.spread}))
    return points_state(rows, of.axes, " ".join(f"{line.rstrip('.')}." for line in summary(of)))


def points_state(
    rows: Iterable[tuple[str, Mapping[str, float], Mapping[str, tuple[float, float] | None]]],
    axes: Mapping[str, Sequence[Any]],
    words: str,
) -> State:
    """A point for each way of each row (setting, s by way, low and high by way), joined along one axis of numbers."""
    joined = len(axes) == 1 and all(map(_number, *axes.values()))
    points = []
    for place, (setting, step, spans) in enumerate(rows):
        for way, seconds in step.items():
            span = spans.get(way)
            low, high = span or (seconds, seconds)
            time = show(seconds, "s") + (f", {between(span)}" if span else "")
            point = {"setting": setting, "way": ROWS[way], "seconds": seconds, "time": time}
            points.append({**point, "low": low, "high": high, "joined": joined, "place": place})
    return {"points": columns(points)}, words


def label(setting: Mapping[str, Any]) -> str:
    """Return the values of a setting, as the axis of a drawing has them."""
    return ", ".join(str(value).replace("_", " ") for value in setting.values())


def _number(value: Any) -> bool:
    """Whether a value is a number, or a quantity such as "1 MB"."""
    return isinstance(value, int | float) or str(value)[:1].isdigit()
