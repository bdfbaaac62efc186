"""A comparison in a terminal: a table of the terms, a bar for each way, and the verdict."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from lib_dlhpc.comparison.energy import REST
from lib_dlhpc.spec.plain import plain_tables
from lib_dlhpc.spec.strategy import exchange_in_words
from lib_dlhpc.spec.units import count, format_energy
from lib_dlhpc.spec.units import format_quantity as show

if TYPE_CHECKING:
    from lib_dlhpc.comparison.comparison import Comparison

ALL = "one step"
NAME, TIME, OFF = 26, 10, 11  # minimum width of the columns
BAR = 60  # characters of the longest step
# A letter for each cause, in the order of a step; others are "?".
LETTERS = {
    "input stall": "i",
    "forward": "f",
    "backward": "b",
    "exposed communication": "c",
    "waiting for the slowest": "w",
    "pipeline bubble": ".",
    "update": "u",
    "checkpoint": "k",
    "other": "o",
}


def as_text(of: "Comparison") -> str:
    """Return the full comparison: header, table, bars, verdict, notes."""
    parts = [*_head(of), "", *_table(of), "", *_energy(of), *_bars(of), "", *of.verdict]
    parts += [f"note: {note}" for note in of.notes]
    parts += [f"The run is in {of.folder}."] if of.folder else []
    return "\n".join(parts)


def as_dict(of: "Comparison") -> dict[str, Any]:
    """Return the comparison as plain values in SI units, ready for JSON."""
    return {
        "experiment": plain_tables(of.placed.experiment),
        "ranks": of.placed.ranks,
        "cores": of.placed.cores,
        "oversubscribed": of.oversubscribed,
        "calibration": of.placed.calibration or None,
        "pace": of.slowdown and dict(zip(("work", "calls"), of.slowdown, strict=True)),
        "load": {
            "core_wait": of.load.core_wait,
            "steps_left_out": of.load.left_out,
            "paces": [
                dict(zip(("work", "calls"), slowdown, strict=True))
                for slowdown in of.load.slowdowns
            ],
            "step_slowest_over_quickest": of.load.apart,
        },
        "steps": of.steps,
        "step": dict(of.step),
        "spread": list(of.spread),
        "terms": {name: dict(ways) for name, ways in of.terms.items()},
        "errors": {
            name: {way: of.error(way, name) for way in of.step if way != "measured"}
            for name in (ALL, *of.terms)
        },
        "joules": {way: dict(each) for way, each in of.joules.items() if each},
        "power": of.power and of.power._asdict(),
        "bands": {
            way: {name: list(band) for name, band in bands.items() if name in (ALL, *of.terms)}
            for way, bands in of.bands.items()
        },
        "inside": {way: of.inside(way) for way in of.bands},
        "judged": not of.no_verdict,
        "no_verdict": of.no_verdict or None,
        "verdict": list(of.verdict),
        "notes": list(of.notes),
        "folder": str(of.folder) if of.folder else None,
    }


def title(of: "Comparison") -> str:
    """Return the compared experiment, in one line."""
    e = of.placed.experiment
    return (
        f"{e.model.name or e.model.family} on {count(of.placed.ranks, 'rank')} of this machine,"
        f" {exchange_in_words(e.strategy, e.training)}, {count(e.global_batch, 'sample')} per step"
    )


def _head(of: "Comparison") -> list[str]:
    lines = []
    if of.oversubscribed:
        lines.append(
            f"OVERSUBSCRIBED: {count(of.placed.ranks, 'rank')} share {count(of.placed.cores, 'core')}."
            " Times say nothing about the method; errors get no verdict."
        )
    calibration = [of.placed.calibration] if of.placed.calibration else []
    return [*lines, title(of), *calibration]


def _table(of: "Comparison") -> list[str]:
    """Return the lines of the table: seconds of each way, and its error relative to the measurement."""
    ways = list(of.step)
    expected = [way for way in ways if way != "measured"]
    rows: dict[str, Mapping[str, float]] = {ALL: of.step}
    rows |= {f"  {name}": seconds for name, seconds in of.terms.items()}
    times, errors = [ways], [expected]
    for seconds in rows.values():
        times.append([show(seconds[way], "s") if way in seconds else "" for way in ways])
        off = [(seconds.get(way, 0.0) - seconds.get("measured", 0.0)) for way in expected]
        errors.append([f"{each / of.step['measured']:+z.1%}" for each in off])
    left = _column(["", *rows], NAME, "<")
    left = [name + row for name, row in zip(left, _columns(times, TIME), strict=True)]
    right = _columns(errors, OFF)
    over = "off by, of the measured step"
    lines = [" " * len(left[0]) + over.rjust(len(right[0]))]
    lines += [line + row for line, row in zip(left, right, strict=True)]
    lines += [
        f"  {way + ', 90% band':<30}{show(band[ALL][0], 's')} to {show(band[ALL][1], 's')}"
        for way, band in of.bands.items()
    ]
    low, high = of.spread
    many = count(of.steps, "step")
    lines.append(f"  {'measured, p10 to p90':<30}{show(low, 's')} to {show(high, 's')}, of {many}")
    return lines


def _energy(of: "Comparison") -> list[str]:
    """Return the energy of devices in a step each way, and of the rest where that is known; [] without a run's."""
    if of.power is None:
        return []
    ways = {way: each for way, each in of.joules.items() if each}
    names = [name for name in of.terms if any(name in way for way in ways.values())]
    of_devices = {way: sum(each.get(name, 0.0) for name in names) for way, each in ways.items()}
    rows: dict[str, Mapping[str, float]] = {"energy of a step, devices": of_devices}
    for name in (*names, REST):
        rows[f"  {name}"] = {way: each[name] for way, each in ways.items() if name in each}
    kind = "measured" if of.power.measured else "modeled"
    cells = [[f"run, {kind}" if way == "measured" else way for way in ways]]
    cells += [
        [format_energy(row[way]) if way in row else "" for way in ways] for row in rows.values()
    ]
    left = _column(["", *rows], NAME, "<")
    lines = [name + row for name, row in zip(left, _columns(cells, TIME), strict=True)]
    return [*lines, f"  run: {of.power.source}", ""]


def _columns(rows: Sequence[Sequence[str]], least: int) -> list[str]:
    """Return a line for each row, with right-aligned columns of `least` characters or more."""
    columns = [_column(column, least, ">") for column in zip(*rows, strict=True)]
    return ["".join(row) for row in zip(*columns, strict=True)]


def _column(words: Sequence[str], least: int, side: str) -> list[str]:
    """Return the padded cells, `least` characters wide or more, with a space between columns."""
    wide = max(least, *(len(word) + 1 for word in words))
    return [f"{word:{side}{wide}}" for word in words]


def _bars(of: "Comparison") -> list[str]:
    """Return a bar for each way, a letter for each part of it."""
    longest = max(of.step.values())
    lines, used = [], dict[str, str]()
    order = sorted(of.terms, key=lambda name: list(LETTERS).index(name) if name in LETTERS else -1)
    for way in of.step:
        done, bar = 0.0, ""
        for name in order:
            done += of.terms[name].get(way, 0.0)
            many = round(BAR * done / longest) - len(bar)
            bar += LETTERS.get(name, "?") * many
            if many:
                used[LETTERS.get(name, "?")] = name
        lines.append(f"  {way:<10} |{bar}")
    return [*lines, "  " + ", ".join(f"{letter} {name}" for letter, name in used.items())]
