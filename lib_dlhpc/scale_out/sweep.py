"""sweep_points: predictions of a grid of any size; the best are kept, and all can be written as files of rows.

No list of the points is ever made: a point is a number, a chunk a range of them.
"""

import errno
import os
import shutil
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from lib_dlhpc.errors import SpecError, listed
from lib_dlhpc.lifetime.files import replacing
from lib_dlhpc.prediction import predict
from lib_dlhpc.prediction.sweeps.grid import (
    QUANTITIES,
    Axes,
    Refused,
    check_axes,
    count,
    predict_points,
    refuse,
    values_at,
)
from lib_dlhpc.prediction.sweeps.sweep import nothing_fits
from lib_dlhpc.prediction.what_if import what_if
from lib_dlhpc.results import Columns, Result, Summary
from lib_dlhpc.scale_out.engines import results
from lib_dlhpc.scale_out.places import HERE, Place
from lib_dlhpc.scale_out.rows import FORMATS, check_format, write_rows
from lib_dlhpc.scale_out.work import Arrays, Work, experiment_of, open_folder, part
from lib_dlhpc.spec.experiment import Experiment, dumps
from lib_dlhpc.spec.units import format_energy
from lib_dlhpc.spec.units import format_quantity as show

if TYPE_CHECKING:
    import altair as alt

SIZE = 2**18  # points of a chunk
BEST = 10
MOST_IS_BEST = ("throughput",)  # of all others, the least


@dataclass(frozen=True, repr=False)
class Points(Result):
    """The best points of a sweep, in order.

    points, fitting: how many there are, and fit in memory. best: the values of the axes at each of the best, and its
    quantities. ranges: least and most of each quantity, of the points that fit. illegal: how many points break a rule,
    by what it says of the first of them.
    """

    experiment: Experiment
    axes: Axes
    by: str
    points: int
    fitting: int
    best: Columns
    ranges: Mapping[str, tuple[float, float]]
    illegal: Mapping[str, int]

    def summary(self) -> Summary:
        """Return how many points there are, the ranges of quantities, and the best points, in words."""
        facts = {"points": f"{self.points:,}", "fit in memory": f"{self.fitting:,}"}
        if self.illegal:
            reasons = (f"{many:,} such as {said}" for said, many in self.illegal.items())
            facts["not legal"] = " ".join(reasons)
        for name, (least, most) in self.ranges.items():
            facts[name.replace("_", " ")] = f"{_shown(name, least)} to {_shown(name, most)}"
        shown = ("step_time", "throughput", "memory_total", self.by)
        names = [*self.axes, *dict.fromkeys(shown)]
        rows = [
            [
                _given(value) if name in self.axes else _shown(name, value)
                for name, value in zip(names, row, strict=True)
            ]
            for row in zip(*(self.best[name] for name in names), strict=True)
        ]
        where = self.experiment.machine.name or "a machine"
        title = f"sweep of {self.experiment.model.name or 'a model'} on {where}, best by {self.by}"
        return Summary(title, facts, names, rows)

    def to_columns(self) -> Columns:
        """Return a row for each of the best points: its axes and quantities."""
        return self.best

    def plot(self) -> "alt.Chart":
        """Return the step time of the best points over the first axis."""
        from lib_dlhpc.results.charts import points

        return points(self.best, next(iter(self.axes)), "step_time", "fits", self.summary().title)


def sweep_points(
    experiment: Experiment,
    axes: Axes,
    by: str = "throughput",
    best: int = BEST,
    where: Place = HERE,
    rows: Path | None = None,
    format: str = FORMATS[0],
) -> Points:
    """Predict every combination of `axes`, and return the best that fit in memory; of equal ones, the first.

    axes: as of `prediction.sweep`; a range stays a range. by: one of QUANTITIES. where: see `place`. rows: a new
    folder, in which a file for each chunk has a row for each point, in order; it is whole or absent. format: "csv" or
    "parquet". Illegal points are counted by reason.
    Raises SpecError for an illegal axis, for a folder `rows` that exists or whose parent does not, and where no point
    is legal and fits; LostError where workers are lost.
    """
    if by not in QUANTITIES:
        raise SpecError(listed(f"by = {by!r}:", by, QUANTITIES))
    if best < 1:
        raise SpecError(f"best = {best}: legal: 1 and more.")
    points = count(axes)
    check_axes(experiment, axes)
    check_format(format)
    if rows is not None and rows.exists():
        raise SpecError(f"{rows}: exists already; name another folder for the rows.")
    if rows is not None and not rows.absolute().parent.is_dir():
        raise SpecError(f"{rows}: no such folder: {rows.parent}; create it first.")
    with ExitStack() as stack:
        unfinished, at_end = (None, None) if rows is None else _unfinished(rows, where, stack)
        arguments = {
            "experiment": dumps(experiment),
            "axes": {name: _plain(values) for name, values in axes.items()},
            "by": by,
            "best": best,
            "size": SIZE,
            "rows": None if unfinished is None else str(unfinished),
            "format": format,
        }
        work = Work("lib_dlhpc.scale_out.sweep:chunk", arguments, -(-points // SIZE))
        if where.folder is not None:
            open_folder(where.folder, work)
        if unfinished is not None:
            unfinished.mkdir(exist_ok=True)
        found = None
        for each in results(work, where, at_end):
            found = each if found is None else _merged(found, each, by, best)
    assert found is not None
    return _points(experiment, axes, by, points, found)


def _shown(name: str, value: float) -> str:
    """Return a quantity in words; energy in watt-hours, as a prediction and a plan have it."""
    unit = QUANTITIES[name]
    return format_energy(value) if unit == "J" else show(value, unit)


def _given(value: Any) -> str:
    """Return a value of an axis as it may be written: 1.5e+13 rather than 15000000000000.0."""
    return f"{value:.12g}" if isinstance(value, float) else str(value)


def _unfinished(
    rows: Path, where: Place, stack: ExitStack
) -> tuple[Path, Callable[[], None] | None]:
    """Return the folder to write rows into until all are there, and what is to be called then."""
    if where.folder is not None:  # the same command resumes in it
        unfinished = where.folder / "rows"
        return unfinished, partial(_in_place, unfinished, rows)
    return Path(os.path.abspath(stack.enter_context(replacing(rows, guarded=True)))), None


def _in_place(unfinished: Path, rows: Path) -> None:
    """Rename a folder of rows that are all there; copy it where it is on another file system."""
    try:
        os.rename(unfinished, rows)
    except OSError as error:
        if error.errno != errno.EXDEV:
            raise
        with replacing(rows, guarded=True) as temporary:
            shutil.copytree(unfinished, temporary)


def chunk(arguments: Mapping[str, Any], number: int) -> Arrays:
    """Predict a chunk of the grid, write its rows if asked, and return its best points and what is counted."""
    axes = {name: _values(plain) for name, plain in arguments["axes"].items()}
    start, stop = part(arguments["size"], number, count(axes))
    refused: Refused = {}
    found = predict_points(experiment_of(arguments["experiment"]), axes, start, stop, refused)
    points = np.arange(start, stop)
    if arguments["rows"] is not None:
        columns = values_at(axes, points) | found
        write_rows(Path(arguments["rows"]), number, columns, arguments["format"])
    legal = found.pop("legal")
    fits = found.pop("fits") & legal
    smallest = np.min(found["memory_total"][legal], initial=np.inf)
    kept: Arrays = {"point": points[fits]} | {name: each[fits] for name, each in found.items()}
    least = {f"least {name}": np.min(kept[name], initial=np.inf) for name in QUANTITIES}
    most = {f"most {name}": np.max(kept[name], initial=-np.inf) for name in QUANTITIES}
    return {
        **_best(kept, arguments["by"], arguments["best"]),
        **{name: np.array(each) for name, each in (least | most).items()},
        "fitting": np.array(len(kept["point"])),
        "smallest": np.array(smallest),
        **_as_arrays(refused),
    }


def _as_arrays(refused: Refused) -> Arrays:
    counts = np.array([*refused.values()], np.int64).reshape(-1, 2)
    return {"rules": np.array(list(refused), str), "refused": counts}


def _refused(of: Arrays) -> Refused:
    rows = of["refused"].tolist()
    return {
        name: (many, first) for name, (many, first) in zip(of["rules"].tolist(), rows, strict=True)
    }


def _best(of: Arrays, by: str, best: int) -> Arrays:
    order = np.argsort(-of[by] if by in MOST_IS_BEST else of[by], kind="stable")[:best]
    return {name: of[name][order] for name in ("point", *QUANTITIES)}


def _merged(one: Arrays, other: Arrays, by: str, best: int) -> Arrays:
    both = {name: np.concatenate([one[name], other[name]]) for name in ("point", *QUANTITIES)}
    found = _best(both, by, best) | {"fitting": one["fitting"] + other["fitting"]}
    refused = _refused(one)
    for name, (many, first) in _refused(other).items():
        refuse(refused, name, many, first)
    found |= _as_arrays(refused) | {"smallest": np.minimum(one["smallest"], other["smallest"])}
    for name in QUANTITIES:
        for end, of in (("least", np.minimum), ("most", np.maximum)):
            found[f"{end} {name}"] = of(one[f"{end} {name}"], other[f"{end} {name}"])
    return found


def _points(experiment: Experiment, axes: Axes, by: str, points: int, found: Arrays) -> Points:
    fitting, illegal = int(found["fitting"]), Counter[str]()
    for name, (many, first) in _refused(found).items():
        illegal[_said(experiment, axes, first, name)] += many
    if not fitting:
        legal = sum(illegal.values()) < points
        why = nothing_fits(float(found["smallest"])) + " " if legal else ""
        what = f"{sum(illegal.values()):,} of {points:,} points are not legal: " * bool(illegal)
        reasons = " ".join(said for said, _ in illegal.most_common())
        raise SpecError(f"{why}{what}{reasons}".strip())
    best: Columns = {name: each.tolist() for name, each in values_at(axes, found["point"]).items()}
    best |= {name: found[name].tolist() for name in QUANTITIES}
    ranges = {
        name: (float(found[f"least {name}"]), float(found[f"most {name}"])) for name in QUANTITIES
    }
    return Points(experiment, axes, by, points, fitting, best, ranges, dict(illegal.most_common()))


def _said(experiment: Experiment, axes: Axes, point: int, rule: str) -> str:
    """Return what is said of an illegal point; the rule, where only arrays with it are illegal."""
    at = {name: each[0].item() for name, each in values_at(axes, np.array([point])).items()}
    try:
        predict(what_if(experiment, at))
    except SpecError as error:
        return str(error)
    return rule


def _plain(values: Sequence[Any]) -> Any:
    """Return the values of an axis for JSON: a range by its ends."""
    if isinstance(values, range):
        return {"range": [values.start, values.stop, values.step]}
    return [each.item() if isinstance(each, np.generic) else each for each in values]


def _values(plain: Any) -> Sequence[Any]:
    return range(*plain["range"]) if isinstance(plain, dict) else plain
