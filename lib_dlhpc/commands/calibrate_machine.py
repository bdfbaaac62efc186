"""`dlhpc calibrate`: measure this machine's compute and messages in about a minute, as a machine for experiments."""

import argparse
import sys
from pathlib import Path
from typing import Any

from lib_dlhpc.lifetime.files import write_text
from lib_dlhpc.spec.errors import SpecError
from lib_dlhpc.spec.host import cores
from lib_dlhpc.spec.measured_machine import default_path
from lib_dlhpc.spec.plain import as_json
from lib_dlhpc.spec.units import count, parse_quantity

SECONDS = "60"
SHARING = 2  # ranks a core, at most


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of `dlhpc calibrate machine`, which are those of `dlhpc calibrate`."""
    parser.add_argument("-n", "--ranks", type=int, help="MPI ranks (default: 2, or 1 on one core)")
    parser.add_argument("--seconds", default=SECONDS, help=f"how long, about (default: {SECONDS})")
    parser.add_argument("--io", metavar="DIR", help="measure the file system of this folder too")
    parser.add_argument(
        "--out",
        metavar="FILE",
        help="write the machine to FILE, as TOML (default: the user's own calibration, which compare uses)",
    )
    parser.add_argument("--json", action="store_true", help="print all measurements, in SI units")
    parser.set_defaults(command=_machine)


def _machine(options: argparse.Namespace) -> int:
    from lib_dlhpc.calibration.machine import LEAST, MOST, fit_machine, measure_machine
    from lib_dlhpc.calibration.machine_report import as_dict, as_lines, as_toml
    from lib_dlhpc.launch.mpi import mpiexec, run_to_end

    seconds = parse_quantity(options.seconds, "s", "--seconds")
    if not LEAST <= seconds <= MOST:
        raise SpecError(f"--seconds {options.seconds}: legal: {LEAST:g} s to {MOST:g} s.")
    ranks = min(2, cores()) if options.ranks is None else options.ranks
    if ranks < 1:
        raise SpecError(f"--ranks {ranks}: expected a whole number, at least 1.")
    if ranks > SHARING * cores():  # waiting ranks busy-poll: they would block the machine
        raise SpecError(
            f"--ranks {ranks}: legal: 1 to {SHARING * cores()} on {count(cores(), 'core')}; times of ranks that"
            " share cores do not apply to ranks with one core each."
        )
    out = _place(options.out)
    if options.io and not Path(options.io).is_dir():
        raise SpecError(f"--io {options.io}: no such folder.")
    mpiexec()
    print(f"Measuring on {count(ranks, 'rank')} for about {seconds:g} s ...", file=sys.stderr)
    if ranks > cores():
        print(
            f"{count(ranks, 'rank')} share {count(cores(), 'core')}: their times do not apply to ranks"
            " with one core each.",
            file=sys.stderr,
        )
    tier = _tier(Path(options.io)) if options.io else None
    found = fit_machine(measure_machine(ranks, seconds, run_to_end), tier)
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        write_text(out, as_toml(found))
    except OSError as error:
        raise SpecError(f"--out {out}: {error.strerror}.") from None
    print(as_json(as_dict(found)) if options.json else "\n".join(as_lines(found)))
    ways = f"`dlhpc compare FILE` and `dlhpc predict FILE --machine {out}`"
    print(f"{out}: this machine, for {ways}.", file=sys.stderr)
    return 0


def _place(name: str | None) -> Path:
    """Return the output path; raise SpecError before the measurement if it cannot be written."""
    if name is None:
        return default_path()
    path = Path(name)
    if path.is_dir() or not path.parent.is_dir():
        raise SpecError(f"--out {name}: {'a folder' if path.is_dir() else 'no such folder'}.")
    return path


def _tier(folder: Path) -> Any:
    from lib_dlhpc.calibration.fit import fit_io
    from lib_dlhpc.calibration.io import measure_io

    print(f"Reading in {folder} for about 20 s ...", file=sys.stderr)
    return fit_io(measure_io(folder))
