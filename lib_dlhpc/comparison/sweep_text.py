"""A sweep in a terminal: a row for each setting, and the error of each way over all of them."""

from statistics import median
from typing import TYPE_CHECKING

from lib_dlhpc.spec.units import count
from lib_dlhpc.spec.units import format_quantity as show

if TYPE_CHECKING:
    from lib_dlhpc.comparison.comparison import Comparison
    from lib_dlhpc.comparison.sweep import Sweep

ALL, MEASURED = "one step", "measured"
WITHOUT_RUN = ("predicted", "rounds", "events")


def as_text(of: "Sweep") -> str:
    """Return the rows, the errors over those with a verdict, what was moved along, and the notes."""
    lines = table(cells(of))
    found = [row.comparison for row in of.rows if row.comparison]
    notes = dict.fromkeys([*moved(of), *(note for each in found for note in each.notes)])
    known = dict.fromkeys(each.placed.calibration for each in found if each.placed.calibration)
    return "\n".join([*lines, "", *summary(of), *known, *(f"note: {note}" for note in notes)])


def moved(of: "Sweep") -> list[str]:
    """Return for each setting what was set besides, where something was."""
    return [row.moved for row in of.rows if row.moved]


def cells(of: "Sweep") -> list[list[str]]:
    """Return a header and a row of cells for each setting; a failed one is shorter and ends with the reason."""
    names = [name.rpartition(".")[2] for name in of.axes]
    rows = [
        [*names, *WITHOUT_RUN, MEASURED, "90% band", *(f"{way} off" for way in WITHOUT_RUN), ""]
    ]
    for row in of.rows:
        setting = [str(value) for value in row.setting.values()]
        cells_of_row = _cells(row.comparison) if row.comparison else [row.problem]
        rows.append([*setting, *cells_of_row])
    return rows


def table(cells: list[list[str]]) -> list[str]:
    """Return lines with right-aligned columns; a short row ends with its reason."""
    full = len(cells[0])
    widths = [
        max(len(row[index]) for row in cells if len(row) == full or index < len(row) - 1)
        for index in range(full)
    ]
    lines = []
    for row in cells:
        several = row if len(row) == full else row[:-1]
        line = "  ".join(cell.rjust(width) for cell, width in zip(several, widths, strict=False))
        lines.append((line if len(row) == full else f"{line}  {row[-1]}").rstrip())
    return lines


def summary(of: "Sweep") -> list[str]:
    """Return the median and largest error of each way, and how many steps lie within the bands."""
    from lib_dlhpc.comparison.errors import errors, inside

    judged = of.judged
    if not judged:
        return ["No verdict on any setting: ranks lacked cores, or no setting ran."]
    lines = []
    for way in WITHOUT_RUN:
        off = errors(judged, way)
        if off:
            lines.append(
                f"{way:<10} off by {median(off):.0%} in the median, {max(off):.0%} at worst"
            )
    held, many = inside(judged)
    if many:
        lines.append(
            f"{held} of {count(many, 'measured step')} inside the 90% bands of the prediction"
        )
    return lines


def _cells(of: "Comparison") -> list[str]:
    shown = [show(of.step[way], "s") if way in of.step else "-" for way in (*WITHOUT_RUN, MEASURED)]
    band = of.bands.get("predicted", {}).get(ALL)
    shown.append(f"{show(band[0], 's')} to {show(band[1], 's')}" if band else "-")
    if of.no_verdict:
        return [*shown, *["-" for _ in WITHOUT_RUN], f"no verdict: {of.no_verdict}"]
    off = [of.error(way) for way in WITHOUT_RUN if way in of.step]
    errors_text = ["-" if error is None else f"{error:+z.0%}" for error in off]
    errors_text += ["-"] * (len(WITHOUT_RUN) - len(errors_text))
    return [*shown, *errors_text, "" if of.inside() in (True, None) else "outside"]
