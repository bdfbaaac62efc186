"""`dlhpc calibrate`: measure this machine's compute and messages in about a minute, as a machine for experiments.

`dlhpc calibrate io DIR` measures the read performance of a folder's file system, as a storage tier of a machine.
"""

import argparse
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from time import monotonic
from typing import Any

from lib_dlhpc.commands.calibrate_device import calibrate_device
from lib_dlhpc.commands.output import add_output, new_file, print_note, print_result
from lib_dlhpc.errors import SpecError, listed
from lib_dlhpc.lifetime.files import write_text
from lib_dlhpc.spec.host import cores
from lib_dlhpc.spec.machine import SCOPES
from lib_dlhpc.spec.measured_machine import default_path
from lib_dlhpc.spec.units import count, parse_quantity

SECONDS = "60"
SHARING = 2  # ranks a core, at most
NAME = re.compile(r"[A-Za-z0-9_-]+")


def add(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add `calibrate` to the command line."""
    calibrate = subparsers.add_parser(
        "calibrate",
        help="measure this machine, for predictions",
        description="Without WHAT, measures the machine: compute, messages and jitter of ranks.",
    )
    _add_machine_options(calibrate)
    actions = calibrate.add_subparsers(metavar="WHAT")
    machine = actions.add_parser(
        "machine",
        help="measure the trainer's layers, numpy, messages and collectives; writes a machine (default)",
        description="Times the trainer's own layers, numpy, messages and allreduces on MPI ranks, and fits the"
        " numbers that predictions need, each with a 90% interval. Without --out the result is the user's own"
        " calibration, which dlhpc compare uses for experiments whose machine is the laptop.",
    )
    _add_machine_options(machine)
    io = actions.add_parser(
        "io",
        help="read small files and packed partitions in a folder; writes a storage tier",
        description="Writes files into a new folder in DIR, reads them in several ways with several"
        " processes, removes them, and prints the fitted storage tier. The page cache"
        " is dropped before each read: for the whole machine as root, otherwise for these files.",
    )
    io.add_argument("folder", metavar="DIR", help="any folder on the file system to be measured")
    io.add_argument("--seconds", default="20", help="rough duration (default: 20)")
    io.add_argument("--size", default="256 MiB", help="total size of the files (default: 256 MiB)")
    io.add_argument("--readers", help="such as 1,2,8 (default: 1, 2, one per core, two per core)")
    io.add_argument("--warm", action="store_true", help="read from the page cache")
    io.add_argument("--name", help="name of the tier (default: disk, or memory with --warm)")
    io.add_argument("--scope", default="node", help="node (default), or shared by all nodes")
    io.add_argument("--out", metavar="FILE", help="write the tier to FILE, as TOML")
    add_output(io, json="print all measurements, in SI units")
    io.set_defaults(command=_io)


def _add_machine_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of `dlhpc calibrate machine`, which are the same as those of `dlhpc calibrate`."""
    parser.add_argument("-n", "--ranks", type=int, help="MPI ranks (default: 2, or 1 on one core)")
    parser.add_argument(
        "--seconds", default=SECONDS, help=f"rough duration on idle cores (default: {SECONDS})"
    )
    parser.add_argument(
        "--device",
        metavar="KIND",
        help="measure PyTorch devices, one rank each, instead of MPI ranks with numpy: cuda, rocm, mps or cpu; without"
        " --out, the machine is printed",
    )
    parser.add_argument("--io", metavar="DIR", help="measure the file system of this folder too")
    parser.add_argument(
        "--out",
        metavar="FILE",
        help="write the machine to FILE, as TOML (default: the user's own calibration, which compare uses)",
    )
    add_output(parser, json="print all measurements, in SI units")
    parser.set_defaults(command=_machine)


def _machine(options: argparse.Namespace) -> int:
    from lib_dlhpc.calibration.machine import LEAST, MOST, fit_machine, measure_machine
    from lib_dlhpc.calibration.machine_report import as_dict, as_lines, as_toml

    seconds = parse_quantity(options.seconds, "s", "--seconds")
    if not LEAST <= seconds <= MOST:
        raise SpecError(f"--seconds {options.seconds}: legal: {LEAST:g} s to {MOST:g} s.")
    ranks = min(2, cores()) if options.ranks is None else options.ranks
    if ranks < 1:
        raise SpecError(f"--ranks {ranks}: expected a whole number, at least 1.")
    if options.device is not None:
        return calibrate_device(
            options, seconds, new_file("--out", options.out) if options.out else None
        )
    # Needs the extra `run`, which devices do not.
    from lib_dlhpc.launch.mpi import mpiexec, run_to_end

    if ranks > SHARING * cores():  # more would measure the scheduler
        raise SpecError(
            f"--ranks {ranks}: legal: 1 to {SHARING * cores()} on {count(cores(), 'core')}; times of ranks that"
            " share cores do not apply to ranks with one core each."
        )
    out = default_path() if options.out is None else new_file("--out", options.out)
    if options.io and not Path(options.io).is_dir():
        raise SpecError(f"--io {options.io}: no such folder.")
    mpiexec()
    print_note(f"Measuring on {count(ranks, 'rank')}, on idle cores for about {seconds:g} s ...")
    if ranks > cores():
        print_note(
            f"{count(ranks, 'rank')} share {count(cores(), 'core')}: their times do not apply to ranks"
            " with one core each."
        )
    tier = _tier(Path(options.io)) if options.io else None
    found = fit_machine(measure_machine(ranks, seconds, run_to_end, _progress()), tier)
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        write_text(out, as_toml(found))
    except OSError as error:
        raise SpecError(f"--out {out}: {error.strerror}.") from None
    print_result(options, as_dict(found), *as_lines(found))
    ways = f"`dlhpc compare FILE` and `dlhpc predict FILE --machine {out}`"
    print_note(f"{out}: this machine, for {ways}.")
    return 0


def _progress() -> Callable[[int, int], None]:
    """Return what prints how many of the parts are measured, and how long the others take at that rate."""
    from lib_dlhpc.scale_out import Progress

    start = monotonic()

    def report(done: int, of: int) -> None:
        left = (monotonic() - start) * (of - done) / done
        if done < of:
            print_note(f"{done} of {of} parts measured; about {left:.0f} s left ...")

    return Progress(report)


def _tier(folder: Path) -> Any:
    from lib_dlhpc.calibration.fit import fit_io
    from lib_dlhpc.calibration.io import measure_io

    print_note(f"Reading in {folder} for about 20 s ...")
    return fit_io(measure_io(folder))


def _io(options: argparse.Namespace) -> int:
    from lib_dlhpc.calibration.fit import fit_io
    from lib_dlhpc.calibration.host import capacity, host
    from lib_dlhpc.calibration.io import WRITTEN, check, default_settings, measure_io
    from lib_dlhpc.calibration.points import COLD, WARM
    from lib_dlhpc.calibration.report import as_dict, as_toml
    from lib_dlhpc.calibration.workspace import check_folder

    name = options.name or ("memory" if options.warm else "disk")
    if not NAME.fullmatch(name):
        raise SpecError(f"--name {name}: expected letters, digits, - and _.")
    if options.scope not in SCOPES:
        raise SpecError(listed(f"--scope {options.scope}:", options.scope, SCOPES))
    out = new_file("--out", options.out) if options.out else None
    seconds, size = _number("seconds", options.seconds, "s"), _number("size", options.size, "B")
    folder, settings = Path(options.folder), default_settings(_readers(options.readers))
    state = WARM if options.warm else COLD
    check(state, seconds, size, settings)
    check_folder(folder, size * (1 + WRITTEN))
    print_note(f"Reading in {folder} for about {seconds:g} s ...")
    points = measure_io(folder, state=state, seconds=seconds, size=size, settings=settings)
    fit = fit_io(points, name, options.scope)
    if not options.warm:
        fit = replace(fit, tier=replace(fit.tier, capacity=capacity(folder)))
    text = as_toml(fit, points, host(folder))
    if out:
        try:
            write_text(out, text)
        except OSError as error:
            raise SpecError(f"--out {out}: {error.strerror}.") from None
        print_note(f"{out}: the storage tier {name!r}.")
    lines = [] if out else [text.rstrip("\n")]
    print_result(options, as_dict(fit, points, host(folder)), *lines)
    return 0


def _number(option: str, value: str, unit: str) -> float:
    return parse_quantity(value, unit, f"--{option}")


def _readers(text: str | None) -> tuple[int, ...]:
    """Return the numbers in "1,2,8"; one reader is always included, because the fit needs it."""
    if text is None:
        return ()
    try:
        return tuple(sorted({1, *map(int, text.split(","))}))
    except ValueError:
        raise SpecError(f"--readers {text}: expected whole numbers, such as 1,2,8.") from None
