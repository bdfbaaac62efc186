"""`dlhpc sweep FILE --over KEY=1-64`: a run predicted at each point of a grid of any size."""

import argparse
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from lib_dlhpc.commands.experiment import add_experiment, change
from lib_dlhpc.commands.on_machine import add_machine, read_on_machine
from lib_dlhpc.commands.output import add_output, failed, print_note, print_result
from lib_dlhpc.commands.scale_out import add_scale_out, place_of
from lib_dlhpc.errors import SpecError

OBJECTIVES = {  # of a plan, as quantities
    "time": "time_to_train",
    "energy": "energy_to_train",
    "cost": "device_hours",
    "memory": "memory_total",
}
RANGE = re.compile(r"(\d+)-(\d+)(?::(\d+))?")


def add(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add `sweep` to the command line."""
    one = subparsers.add_parser(
        "sweep",
        help="predict a run at every point of a grid of any size",
        description="Predicts every combination of values, in chunks of the grid, and prints the best points that fit"
        " in memory. --rows writes all of them. Chunks run in this process, in worker processes, over Dask, or as a job"
        " array.",
    )
    add_experiment(one)
    add_machine(one, banded=False)
    one.add_argument(
        "--over",
        action="extend",
        nargs="+",
        required=True,
        metavar="KEY=VALUES",
        help="values of a field: 1-64, 8-512:8 (every eighth), A,B,C, or a TOML list; the last one varies fastest",
    )
    one.add_argument(
        "--by",
        default="throughput",
        metavar="QUANTITY",
        help="step_time, throughput (default), memory_total, time_to_train, energy_to_train or device_hours;"
        " or, as in a plan, time, energy, cost or memory",
    )
    one.add_argument(
        "--best", type=int, default=10, metavar="N", help="number of points to print (default: 10)"
    )
    one.add_argument(
        "--rows", metavar="DIR", help="write every point as a row, in files of a new folder"
    )
    one.add_argument("--format", default="csv", help="format of --rows: csv (default) or parquet")
    add_scale_out(one)
    add_output(one)
    one.set_defaults(command=_sweep)


def _sweep(options: argparse.Namespace) -> int:
    from lib_dlhpc.scale_out import LostError
    from lib_dlhpc.scale_out.sweep import sweep_points

    axes = dict[str, Sequence[Any]]()
    for key, values in map(axis, options.over):
        if key in axes:
            raise SpecError(f"--over {key}: given twice; write its values in one list.")
        axes[key] = values
    by = OBJECTIVES.get(options.by, options.by)
    where, rows = place_of(options), options.rows and Path(options.rows)
    experiment, notes = read_on_machine(options)
    for note in notes:
        print_note(f"dlhpc: note: {note}")
    try:
        found = sweep_points(experiment, axes, by, options.best, where, rows, options.format)
    except LostError as error:
        return failed(error)
    title, facts, header, table, _ = found.summary()
    cells = [list(header), *map(list, table)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    lines = [title, *(f"  {name}: {text}" for name, text in facts.items()), ""]
    for row in cells:
        each = (cell.rjust(width) for cell, width in zip(row, widths, strict=True))
        lines.append(f"  {'  '.join(each)}")
    plain = {"points": found.points, "fitting": found.fitting, "by": found.by}
    plain |= {"illegal": dict(found.illegal)}
    plain |= {"ranges": {name: list(ends) for name, ends in found.ranges.items()}}
    names = found.best
    best = [dict(zip(names, row, strict=True)) for row in zip(*names.values(), strict=True)]
    print_result(options, plain | {"best": best}, *lines)
    return 0


def axis(text: str) -> tuple[str, Sequence[Any]]:
    """Return the field and the values of KEY=VALUES; 1-64:8 is a range with both ends. Raises SpecError."""
    key, values = change(text, "--over")
    if isinstance(values, list):
        return key, values
    if not isinstance(values, str):
        return key, [values]
    if found := RANGE.fullmatch(values):
        first, last, step = (int(each or 1) for each in found.groups())
        if step < 1 or last < first:
            raise SpecError(
                f"--over {text}: expected FIRST-LAST:STEP, with LAST not below FIRST, and STEP 1 or more."
            )
        return key, range(first, last + 1, step)
    return key, [change(f"{key}={each}")[1] for each in values.split(",")]
