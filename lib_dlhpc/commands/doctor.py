"""`dlhpc doctor`: what works on this machine, and what is missing, before a class or a job meets it."""

import argparse
import platform
import shutil
import socket
import subprocess
import time
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

from lib_dlhpc import __version__
from lib_dlhpc.commands.output import add_output, print_result
from lib_dlhpc.errors import SpecError
from lib_dlhpc.extras import EXTRA, installer
from lib_dlhpc.spec.units import count
from lib_dlhpc.spec.units import format_quantity as show

RANKS = 2
# One rank prints for all: lines of several would run into each other.
SUM = "from mpi4py import MPI; w = MPI.COMM_WORLD; sums = w.gather(w.allreduce(w.rank + 1)); w.rank or print(*sums)"
PATIENCE = 120.0  # s for the ranks: a first start reads all of MPI from disk
LEAST = 1e9  # B of disk, for records, runs and drawn pages


class Check(NamedTuple):
    """One thing that was tried: whether it works, and what was found or what to do."""

    name: str
    works: bool
    words: str


def add(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add `doctor` to the command line."""
    one = subparsers.add_parser(
        "doctor",
        help="check that this machine has what the course, runs or jobs need",
        description="Checks packages, two MPI ranks that sum a number, a port of this machine, and a writable folder."
        " Exits with 1 if anything is missing, and prints how to install it. Nothing is sent anywhere.",
    )
    one.add_argument(
        "--for",
        dest="use",
        choices=NEEDS,
        default="course",
        help="core: predict and plan; run: also train here; course (default): also the pages; cluster: run, and jobs",
    )
    add_output(one)
    one.set_defaults(command=_doctor)


def _doctor(options: argparse.Namespace) -> int:
    found = [check() for check in NEEDS[options.use]]
    works = all(each.works for each in found)
    host = f"Python {platform.python_version()}, lib_dlhpc {__version__}, {platform.system()} {platform.machine()}"
    width = max(len(each.name) for each in found)
    lines = [
        f"  {'ok     ' if each.works else 'MISSING'}  {each.name.ljust(width)}  {each.words}"
        for each in found
    ]
    missing = sum(not each.works for each in found)
    last = f"All of what --for {options.use} needs works here."
    verdict = last if works else f"{missing} of {len(found)} checks failed; see above."
    plain = {"host": host, "for": options.use, "works": works}
    plain |= {"checks": [each._asdict() for each in found]}
    print_result(options, plain, host, *lines, verdict)
    return 0 if works else 1


def packages(extra: str) -> Check:
    """Look for the modules of an extra, without importing them."""
    modules = [name for name, its in EXTRA.items() if its == extra]
    absent = [name for name in modules if not _is_there(name)]
    words = f"{', '.join(absent)}: `{installer(extra)}` installs what is missing"
    return Check(f"packages of [{extra}]", not absent, words if absent else f"{len(modules)} found")


def _is_there(module: str) -> bool:
    try:
        return find_spec(module) is not None
    # Raised by our own finder (extras.py), and for a module without a spec.
    except (ModuleNotFoundError, ValueError):
        return False


def resources() -> Check:
    """Look at cores and the disk of the home folder."""
    from lib_dlhpc.spec.host import cores

    free = shutil.disk_usage(Path.home() if Path.home().exists() else Path.cwd()).free
    words = (
        f"{count(cores(), 'core')}, {show(float(free), 'B')} free on the disk of the home folder"
    )
    if free < LEAST:
        words += f"; {show(LEAST, 'B')} are needed"
    return Check("this machine", free >= LEAST, words)


def folder() -> Check:
    """Write where a learner's answers are stored."""
    from lib_dlhpc.classroom.learner import home
    from lib_dlhpc.lifetime import owned

    place = home()
    existing = next(each for each in (place, *place.parents) if each.is_dir())
    try:
        with owned.temporary_folder("dlhpc-doctor-", existing):
            return Check("a folder for answers", True, str(place))
    except OSError as error:
        words = f"{existing}: {error.strerror}. Set XDG_DATA_HOME to a folder that can be written."
        return Check("a folder for answers", False, words)


def ranks() -> Check:
    """Start ranks that sum their numbers."""
    name, start = f"{RANKS} MPI ranks", time.monotonic()
    try:
        from lib_dlhpc.launch import mpi
        from lib_dlhpc.lifetime import owned

        words = mpi.command(RANKS, "-c", SUM)
        pipe = subprocess.PIPE
        done = owned.run(
            words, PATIENCE, stdout=pipe, stderr=pipe, text=True, env=mpi.environment(RANKS)
        )
    except (SpecError, OSError, ModuleNotFoundError) as error:
        return Check(name, False, str(error))
    except subprocess.TimeoutExpired:
        return Check(name, False, f"{words[0]}: no answer within {show(PATIENCE, 's')}.")
    sums, right = done.stdout.split(), [str(sum(range(1, RANKS + 1)))] * RANKS
    if done.returncode or sums != right:
        last = (done.stderr.strip().splitlines() or [f"summed to {' '.join(sums) or 'nothing'}"])[
            -1
        ]
        return Check(name, False, f"{words[0]}: {last}")
    took = show(time.monotonic() - start, "s")
    return Check(name, True, f"summed a number in {took} ({words[0]})")


def port() -> Check:
    """Send a byte to a port of this machine, as a page and its kernel do."""
    try:
        with socket.create_server(("127.0.0.1", 0)) as server:
            address = server.getsockname()
            with socket.create_connection(address, timeout=10) as near:
                far, _ = server.accept()
                with far:
                    near.sendall(b"?")
                    arrived = far.recv(1)
    except OSError as error:
        words = f"127.0.0.1 does not answer: {error}. A firewall, or a proxy for all addresses?"
        return Check("a port for pages", False, words)
    return Check("a port for pages", arrived == b"?", "127.0.0.1 answers")


def scheduler() -> Check:
    """Look for the program that submits jobs, of any batch system."""
    from lib_dlhpc.launch.systems import NAMES, system

    there = [name for name in NAMES if shutil.which(system(name).submits)]
    sought = ", ".join(system(name).submits for name in NAMES)
    words = f"none of {sought} here; run this on a login node" if not there else ", ".join(there)
    return Check("a batch system", bool(there), words)


def core() -> Check:
    """Predict a published run."""
    from lib_dlhpc.prediction import predict
    from lib_dlhpc.prediction.validation.replays import replay

    step = float(predict(replay("goyal-2017").experiment).step_time)
    return Check("a prediction", step > 0, f"goyal-2017: {show(step, 's')} per step")


def _of(*extras: str) -> tuple[Callable[[], Check], ...]:
    return tuple(lambda extra=extra: packages(extra) for extra in extras)


CORE = (resources, core)
RUN = (*CORE, *_of("sim", "run"), ranks)
NEEDS: dict[str, tuple[Callable[[], Check], ...]] = {
    "core": CORE,
    "run": RUN,
    "course": (*RUN, *_of("lab"), port, folder),
    "cluster": (*RUN, *_of("cluster"), scheduler),
}
