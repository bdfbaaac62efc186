"""`dlhpc compare FILE -n 4`: one step predicted, simulated and measured on this machine, term by term."""

import argparse
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from lib_dlhpc.commands.experiment import add_experiment, read
from lib_dlhpc.spec.errors import SpecError

if TYPE_CHECKING:
    from lib_dlhpc.launch.local import Job

SECONDS = 5.0  # of real steps


def add(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add `compare` to the command line."""
    one = subparsers.add_parser(
        "compare", help="predict, simulate and run a few steps here, side by side, term by term"
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
    one.add_argument("--steps", type=int, help="real steps to run (default: by --seconds)")
    one.add_argument(
        "--seconds",
        type=float,
        default=SECONDS,
        help=f"of real steps, about (default: {SECONDS:g})",
    )
    one.add_argument("--out", metavar="DIR", help="keep the run there (default: it is removed)")
    one.add_argument("--json", action="store_true", help="print JSON in SI units")
    one.set_defaults(command=_compare)


def _compare(options: argparse.Namespace) -> int:
    from lib_dlhpc.compare import compare
    from lib_dlhpc.launch import JobError
    from lib_dlhpc.launch.terminal import ends_alike
    from lib_dlhpc.spec.measured import load_measured

    experiment = read(options.experiment, options.set)
    if not 0 < options.seconds <= 3600:
        raise SpecError(f"--seconds {options.seconds:g}: expected a number above 0, at most 3,600.")
    machine = load_measured(options.machine) if options.machine else None
    folder = Path(options.out) if options.out else None
    try:
        with ends_alike():
            found = compare(
                experiment, options.ranks, machine, options.steps, folder, options.seconds, _tell
            )
    except JobError as error:
        _clear()
        print(f"dlhpc: {error}", file=sys.stderr)
        return 1
    _clear()
    print(json.dumps(found.as_dict(), indent=2) if options.json else found.as_text())
    return 0


def _tell(job: "Job") -> None:
    rows = [row for row in job.metrics() if "step" in row]
    if sys.stderr.isatty():
        done = f", step {rows[-1]['step']}" if rows else ""
        print(f"\rrunning{done} ...".ljust(40), end="", file=sys.stderr, flush=True)


def _clear() -> None:
    if sys.stderr.isatty():
        print(f"\r{'':<40}\r", end="", file=sys.stderr, flush=True)
