"""`dlhpc compare FILE -n 4`: one step predicted, simulated and measured on this machine, term by term."""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lib_dlhpc.commands.experiment import add_experiment, change, read
from lib_dlhpc.commands.output import add_output, failed, print_result
from lib_dlhpc.errors import SpecError

if TYPE_CHECKING:
    from lib_dlhpc.launch.local import Job

SECONDS = 5.0  # of real steps
NO_VERDICT = 3  # exit status: the run has no verdict, because of load or shared cores


def add(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add `compare` to the command line."""
    one = subparsers.add_parser(
        "compare",
        help="predict, simulate and run a few steps here, side by side, term by term",
        epilog=f"Exit status: 0 with a verdict, {NO_VERDICT} without one, because ranks lacked cores.",
    )
    add_experiment(one)
    one.add_argument(
        "-n", "--ranks", type=int, help="MPI ranks (default: the run's devices and servers)"
    )
    one.add_argument(
        "--machine",
        metavar="FILE",
        help="what `dlhpc calibrate --out FILE` measured (default: your own calibration)",
    )
    one.add_argument("--steps", type=int, help="real steps to run (default: set by --seconds)")
    one.add_argument(
        "--seconds",
        type=float,
        default=SECONDS,
        help=f"rough duration of the real steps (default: {SECONDS:g})",
    )
    one.add_argument(
        "--sweep",
        action="extend",
        nargs="+",
        default=[],
        metavar="KEY=A,B",
        help="compare each value: --sweep strategy.batch=8,16,32 ranks=1,2; several keys form a grid",
    )
    one.add_argument(
        "--repeats", type=int, default=1, help="with --sweep: runs of each setting, interleaved"
    )
    one.add_argument(
        "--gantt",
        metavar="FILE",
        help="draw a step as predicted, simulated and measured: .html, .svg or .png",
    )
    one.add_argument("--out", metavar="DIR", help="keep the runs there (default: they are removed)")
    add_output(one)
    one.set_defaults(command=_compare)


def _compare(options: argparse.Namespace) -> int:
    from lib_dlhpc.comparison import compare, sweep
    from lib_dlhpc.launch import JobError
    from lib_dlhpc.spec.measured_machine import load_measured

    experiment = read(options.experiment, options.set)
    if not 0 < options.seconds <= 3600:
        raise SpecError(f"--seconds {options.seconds:g}: expected a number above 0, at most 3,600.")
    if options.repeats < 1:
        raise SpecError(f"--repeats {options.repeats}: expected a whole number, at least 1.")
    machine = load_measured(options.machine) if options.machine else None
    folder = Path(options.out) if options.out else None
    given = (options.ranks, machine, options.steps, folder, options.seconds, _progress)
    axes = _axes(options.sweep)
    picture = _picture(options)
    try:
        found: Any = (
            sweep(experiment, axes, *given, repeats=options.repeats)
            if axes
            else compare(experiment, *given)
        )
    except JobError as error:
        _clear()
        return failed(error)
    _clear()
    print_result(options, found.as_dict(), found.as_text())
    if picture is not None:
        from lib_dlhpc.results.charts import save

        save(found.gantt(), picture)
    judged = found.judged if axes else not found.no_verdict
    return 0 if judged else NO_VERDICT


def _picture(options: argparse.Namespace) -> Path | None:
    """Return where to draw a step. Raises SpecError, before anything runs."""
    if not options.gantt:
        return None
    if options.sweep:
        raise SpecError("--gantt: draws a step of one comparison, but --sweep makes several.")
    from lib_dlhpc.results.charts import chart_file

    return chart_file(options.gantt)


def _axes(texts: Sequence[str]) -> dict[str, list[Any]]:
    """Return the values of each KEY=A,B. Raises SpecError."""
    axes: dict[str, list[Any]] = {}
    for text in texts:
        key, equals, values = text.partition("=")
        if not equals or not key.strip() or not values.strip():
            raise SpecError(f"--sweep {text}: expected KEY=A,B, such as strategy.batch=8,16,32.")
        axes[key.strip()] = [change(f"{key}={value}")[1] for value in values.split(",")]
    return axes


def _progress(job: "Job") -> None:
    rows = [row for row in job.metrics() if "step" in row]
    if sys.stderr.isatty():
        done = f", step {rows[-1]['step']}" if rows else ""
        print(f"\rrunning{done} ...".ljust(40), end="", file=sys.stderr, flush=True)


def _clear() -> None:
    if sys.stderr.isatty():
        print(f"\r{'':<40}\r", end="", file=sys.stderr, flush=True)
