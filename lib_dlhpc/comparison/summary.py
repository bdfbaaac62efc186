"""Comparisons in words and as columns, for notebooks (see results/)."""

from math import nan
from typing import TYPE_CHECKING

from lib_dlhpc.comparison.text import title
from lib_dlhpc.prediction.measured.bands import ALL
from lib_dlhpc.results import Columns, Summary, shown

if TYPE_CHECKING:
    from lib_dlhpc.comparison.comparison import Comparison
    from lib_dlhpc.comparison.sweep import Sweep


def summary(of: "Comparison") -> Summary:
    """Return a step and its terms, predicted, simulated and measured."""
    facts = {way: shown(seconds, "s") for way, seconds in of.step.items()}
    error = of.error("predicted")
    if error is not None:
        facts["prediction off by"] = f"{error:+z.1%}"
    if of.no_verdict:
        facts["no verdict:"] = of.no_verdict
    rows = [
        (name, *(shown(seconds[way], "s") if way in seconds else "" for way in of.step))
        for name, seconds in {ALL: of.step, **of.terms}.items()
    ]
    return Summary(title(of), facts, ("term", *of.step), rows)


def columns(of: "Comparison") -> Columns:
    """Return a row for each term of each way; low, high: the 90% band, NaN where it is unknown."""
    experiment = of.placed.experiment
    model = experiment.model.name or experiment.model.family
    rows = [
        (model, of.placed.ranks, way, name, seconds, *of.bands.get(way, {}).get(name, (nan, nan)))
        for name, ways in of.terms.items()
        for way, seconds in ways.items()
    ]
    names = ("model", "ranks", "way", "term", "seconds", "low", "high")
    return {name: [row[index] for row in rows] for index, name in enumerate(names)}


def sweep_summary(of: "Sweep") -> Summary:
    """Return the step time of each setting, predicted, simulated and measured."""
    compared = [row.comparison for row in of.rows if row.comparison]
    ways = list(dict.fromkeys(way for each in compared for way in each.step))
    errors = [each.error("predicted") for each in compared]
    off = [abs(error) for error in errors if error is not None]
    facts = {"prediction off by": f"{max(off):.1%} at most"} if off else {}
    rows = [
        (
            ", ".join(f"{name} = {value}" for name, value in row.setting.items()),
            *_cells(row.comparison, ways, row.problem),
        )
        for row in of.rows
    ]
    heading = f"{len(of.rows)} settings of {', '.join(of.axes)}, {len(compared)} compared"
    return Summary(heading, facts, ("setting", *ways), rows)


def sweep_columns(of: "Sweep") -> Columns:
    """Return the rows of each comparison with its setting; settings that could not run have none."""
    found: Columns = {}
    for row in of.rows:
        if row.comparison is None:
            continue
        inner = columns(row.comparison)
        count = len(inner["term"])
        setting = {name: [value] * count for name, value in row.setting.items()}
        for name, values in {**inner, **setting}.items():
            found.setdefault(name, []).extend(values)
    return found


def sweep_steps(of: "Sweep") -> tuple[Columns, str]:
    """Return step time by setting and way, and the name of the setting with the most values."""
    x = max(of.axes, key=lambda name: len(of.axes[name]))
    found: Columns = {x: [], "series": [], "step_time": []}
    for row in of.rows:
        for way, seconds in (row.comparison.step if row.comparison else {}).items():
            others = [f"{name} = {value}" for name, value in row.setting.items() if name != x]
            found[x].append(row.setting[x])
            found["series"].append(", ".join([way, *others]))
            found["step_time"].append(seconds)
    return found, x


def _cells(of: "Comparison | None", ways: list[str], problem: str) -> list[str]:
    if of is None:
        return [problem, *[""] * (len(ways) - 1)]
    return [shown(of.step[way], "s") if way in of.step else "" for way in ways]
