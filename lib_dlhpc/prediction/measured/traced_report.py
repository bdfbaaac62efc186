"""A trace beside its prediction: a table, a dictionary in SI units, and the calibrated experiment as commented TOML."""

from collections.abc import Sequence
from math import nan
from typing import Any

from lib_dlhpc.prediction.measured.traced import COMPUTE, Traced
from lib_dlhpc.spec.experiment import dumps
from lib_dlhpc.spec.units import count, format_quantity

NAME, WIDTH = 26, 12


def as_text(found: Traced) -> str:
    """Return each term as traced and predicted, with the error of the prediction."""
    heads = ("traced", "predicted", "error", "calibrated", "error")
    lines = [f"{'Mean step':<{NAME}}" + "".join(f"{head:>{WIDTH}}" for head in heads)]
    for term, (traced, before, after) in _rows(found).items():
        cells = [_time(traced), _time(before), _error(before, traced)]
        cells += [_time(after), _error(after, traced)]
        lines.append(f"{term:<{NAME}}" + "".join(f"{cell:>{WIDTH}}" for cell in cells))
    lines += [
        "",
        f"[calibration] rate = {found.rate:.6g} samples/s of one device, batch {found.batch}",
    ]
    if found.link_efficiency:
        share = found.link_efficiency
        lines.append(f"[calibration] link_efficiency = {share:.4g} of the line rate between nodes")
    return "\n".join([*lines, *(f"note: {note}" for note in found.notes)])


def as_dict(found: Traced) -> dict[str, Any]:
    """Return the same with errors as fractions of what was traced; null where that is 0."""
    return {
        "rate": found.rate,
        "batch": found.batch,
        "link_efficiency": found.link_efficiency,
        "steps": found.trace.steps,
        "terms": {
            term: {
                "traced": traced,
                "predicted": before,
                "error": _fraction(before, traced),
                "calibrated": after,
                "calibrated_error": _fraction(after, traced),
            }
            for term, (traced, before, after) in _rows(found).items()
        },
        "notes": found.notes,
    }


def as_toml(found: Traced, files: Sequence[str]) -> str:
    """Return the calibrated experiment, with where its rate is from as comments."""
    trace = found.trace
    seconds = format_quantity(found.traced[COMPUTE], "s", 6)
    head = [
        "[calibration] was taken from the trace of a job by `dlhpc trace calibrate`:",
        *(f"    {name}" for name in files),
        f"{count(trace.steps, 'step')} of {count(len(trace.rank), 'rank')}, by {trace.found}: a rank takes"
        f" {seconds} for {found.batch} samples, without its waits.",
        *(f"note: {note}" for note in found.notes),
    ]
    comments = "".join(f"# {_printable(line)}\n" for line in head)
    return f"{comments}\n{dumps(found.experiment)}"


def _rows(found: Traced) -> dict[str, tuple[float, float, float]]:
    """Return traced, predicted and calibrated seconds of the step and of each term that is not 0 in all."""
    ways = (found.traced, found.before, found.after)
    terms = {term: (ways[0][term], ways[1][term], ways[2][term]) for term in found.traced}
    whole = (sum(ways[0].values()), sum(ways[1].values()), sum(ways[2].values()))
    return {"step": whole} | {term: each for term, each in terms.items() if any(each)}


def _time(seconds: float) -> str:
    return format_quantity(seconds, "s")


def _fraction(predicted: float, traced: float) -> float:
    return predicted / traced - 1 if traced else nan


def _error(predicted: float, traced: float) -> str:
    return f"{round(100 * (predicted / traced - 1)) + 0:+d}%" if traced else "-"


def _printable(line: str) -> str:
    return "".join(sign if sign.isprintable() else "?" for sign in line)
