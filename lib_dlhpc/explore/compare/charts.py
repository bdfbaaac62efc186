"""Columns and sentences for the drawings of a comparison; see charts.py for their use."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from lib_dlhpc.comparison import Comparison, Sweep
from lib_dlhpc.comparison.bands import ALL
from lib_dlhpc.comparison.comparison import Expected
from lib_dlhpc.explore.blocks.charts import State, append
from lib_dlhpc.results import palette
from lib_dlhpc.spec.units import format_quantity as show

OTHER = "other"
CAUSES = {**palette.TERMS, OTHER: "#f5f5f5"}
ROWS = {
    "predicted": "predicted",
    "rounds": "simulated (rounds)",
    "events": "simulated (events)",
    "measured": "measured here",
}
LOOKS = {  # color and shape of a way where each is a point
    "predicted": ("#0072b2", "circle"),
    "simulated (rounds)": ("#009e73", "square"),
    "simulated (events)": ("#cc79a7", "triangle-up"),
    "measured here": ("#d55e00", "diamond"),
}

Terms = Mapping[str, Mapping[str, float]]  # way -> name -> s
Span = tuple[float, float]  # low and high
Spans = Mapping[str, Span]  # by way


def predicted_state(expected: Expected) -> State:
    """The ways there are before a run."""
    spans = {way: bands[ALL] for way, bands in expected.bands.items()}
    return stacked(expected.terms, spans, ALL)


def compared_state(of: Comparison) -> State:
    """All ways, by cause, each with what it may be off by."""
    terms = {
        way: {name: seconds[way] for name, seconds in of.terms.items() if way in seconds}
        for way in of.step
    }
    spans = {way: bands[ALL] for way, bands in of.bands.items()} | {"measured": of.spread}
    return stacked(terms, spans, ALL)


def stacked(terms: Terms, spans: Spans, title: str) -> State:
    """Bars of the causes of a step, a row for each way, and its span."""
    parts: dict[str, list[Any]] = {
        n: []
        for n in (
            "row",
            "part",
            "order",
            "start",
            "stop",
            "middle",
            "share",
            "part_of_axis",
            "time",
            "long",
            "short",
            "ink",
        )
    }
    sums: dict[str, list[Any]] = {n: [] for n in ("row", "stop", "words")}
    ends: dict[str, list[Any]] = {n: [] for n in ("row", "low", "high", "words")}
    longest = max([sum(each.values()) for each in terms.values()] + [s[1] for s in spans.values()])
    for way, seconds in terms.items():
        start, whole, row = 0.0, sum(seconds.values()), ROWS[way]
        for name, value in seconds.items():
            if value > 0:
                part, share = name if name in CAUSES else OTHER, f"{value / whole:.0%}"
                append(
                    parts,
                    row=row,
                    part=part,
                    order=len(parts["row"]),
                    start=start,
                    stop=start + value,
                    middle=start + value / 2,
                    share=share,
                    part_of_axis=value / longest,
                    time=show(value, "s"),
                    long=f"{part} {share}",
                    short=share,
                    ink="#ffffff" if part in palette.LIGHT_INK else "#000000",
                )
                start += value
        high = spans[way][1] if way in spans else start
        append(sums, row=row, stop=max(start, high), words=show(whole, "s"))
        if way in spans:
            kind = "p10 to p90 of its steps" if way == "measured" else "90 % band"
            words = f"{kind}: {show(spans[way][0], 's')} to {show(spans[way][1], 's')}"
            append(ends, row=row, low=spans[way][0], high=spans[way][1], words=words)
    rows = [f"{row} {words}" for row, words in zip(sums["row"], sums["words"], strict=True)]
    sentence = f"{title[0].upper()}{title[1:]}: {', '.join(rows)}."
    return {"parts": parts, "sums": sums, "ends": ends}, sentence


def swept_state(of: Sweep) -> State:
    """Every setting of a sweep: a point for each way, with its span."""
    rows = []
    for row in of.rows:
        found = row.comparison
        if found is not None:
            words = label(row.setting) + (" (cores shared)" if found.oversubscribed else "")
            known = {way: bands.get(ALL) for way, bands in found.bands.items()}
            rows.append((words, found.step, {**known, "measured": found.spread}))
    return points_state(rows, of.axes, " ".join(_swept_words(of)))


def points_state(
    rows: Iterable[tuple[str, Mapping[str, float], Mapping[str, Span | None]]],
    axes: Mapping[str, Sequence[Any]],
    words: str,
) -> State:
    """A point for each way of each row (setting, s by way, low and high by way), joined along one axis of numbers."""
    names = ("setting", "way", "seconds", "low", "high", "time", "joined", "place")
    points: dict[str, list[Any]] = {name: [] for name in names}
    joined = len(axes) == 1 and all(map(_number, *axes.values()))
    for at, (setting, step, spans) in enumerate(rows):
        for way, seconds in step.items():
            span = spans.get(way)
            low, high = span or (seconds, seconds)
            time = show(seconds, "s") + (f", {show(low, 's')} to {show(high, 's')}" if span else "")
            place = {"setting": setting, "way": ROWS[way], "seconds": seconds, "joined": joined}
            append(points, **place, place=at, low=low, high=high, time=time)
    return {"points": points}, words


def label(setting: Mapping[str, Any]) -> str:
    """Return the values of a setting, as the axis of a drawing has them."""
    return ", ".join(str(value).replace("_", " ") for value in setting.values())


def _number(value: Any) -> bool:
    """Whether a value is a number, or a quantity such as "1 MB"."""
    return isinstance(value, int | float) or str(value)[:1].isdigit()


def _swept_words(of: Sweep) -> list[str]:
    from lib_dlhpc.comparison.sweep_text import summary

    return [f"{line}." for line in (each.rstrip(".") for each in summary(of))]
