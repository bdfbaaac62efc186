"""Hand an experiment to a batch system, or to this machine in the same way; a BatchJob comes back.

A sweep is as many jobs as it has experiments, each in a folder of its own: every scheduler has jobs, each can
be cancelled and resumed alone, and one that fails takes no other with it.
"""

import atexit
import os
import secrets
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, BinaryIO

from lib_dlhpc.launch import folder as run_folder
from lib_dlhpc.launch import schedulers
from lib_dlhpc.launch.folder import STATUS, prepare
from lib_dlhpc.launch.jobs import (
    CHILDREN,
    GOODBYE,
    MARK,
    TICKET,
    WORK,
    BatchJob,
    Ticket,
    remember,
    write_ticket,
)
from lib_dlhpc.launch.mpi import check_here, mpiexec
from lib_dlhpc.launch.notebook import keep_source
from lib_dlhpc.launch.site import FILL_IN, SIGNS, Site, check_word, read_time
from lib_dlhpc.launch.task import TASK, Task
from lib_dlhpc.launch.task import ready as task_ready
from lib_dlhpc.spec.errors import SpecError
from lib_dlhpc.spec.experiment import Experiment

SCRIPT = "start.sh"
SHELL = "/bin/bash"


def submit(
    experiment: Experiment,
    ranks: int,
    to: str | None = None,
    site: Site | None = None,
    folder: str | Path | None = None,
    resume: bool = False,
    time_limit: float | str | None = None,
    snapshot_every: str | int | None = None,
    origin: str | None = None,
) -> BatchJob:
    """Hand in a run of `ranks` ranks; it runs when its turn comes, whether or not anyone waits.

    to: a scheduler, that of the site by default, or "local": this machine. folder: the run folder, on a file
    system that the nodes see; a new one below the current folder by default. A new one is made private (0700),
    one that is there keeps its mode.
    time_limit: s, or a text such as "10min": the run is ended then, and can be resumed. resume, snapshot_every,
    origin: see `start`. A job on this machine goes on when the program that submitted it ends, and is
    cancelled when that is killed. Raises SpecError for what cannot be; nothing is handed in then.
    """

    def ready(folder: Path) -> BinaryIO:
        return prepare(experiment, folder, resume, snapshot_every, origin)

    return _hand_over(ready, lambda folder: None, ranks, to, site, folder, time_limit)


def submit_task(
    task: Task,
    ranks: int = 1,
    to: str | None = None,
    site: Site | None = None,
    folder: str | Path | None = None,
    time_limit: float | str | None = None,
) -> BatchJob:
    """Hand in a program, a notebook, or engines for one, in a new run folder; the rest as of `submit`."""

    def more(folder: Path) -> None:
        if task.kind == "notebook":
            keep_source(task, folder)

    return _hand_over(
        lambda folder: task_ready(task, folder), more, ranks, to, site, folder, time_limit
    )


def _hand_over(
    ready: Callable[[Path], BinaryIO],
    more: Callable[[Path], None],
    ranks: int,
    to: str | None,
    site: Site | None,
    folder: str | Path | None,
    time_limit: float | str | None,
) -> BatchJob:
    """Hand in what is to be done in a folder. ready: makes it ready, and returns its log, locked. more: the rest."""
    site = settle_site(to, site)
    if isinstance(ranks, bool) or not isinstance(ranks, int) or ranks < 1:
        raise SpecError(f"ranks = {ranks!r}: expected a whole number, at least 1.")
    limit = site.time_limit if time_limit is None else read_time(time_limit, "time limit")
    here = site.scheduler == "local"
    if limit is None and not here:
        limit = schedulers.DEFAULT_LIMIT
    if folder is not None and not os.fspath(folder):
        raise SpecError(
            'folder = "": expected a path; "." is the current folder, None a new one in it.'
        )
    ticket = Ticket(secrets.token_hex(4), site, ranks, limit, time.time())
    folder = Path(os.path.abspath(ticket.name if folder is None else folder))
    if not here:
        _check_path(folder)
        schedulers.check_here(site.scheduler)
    else:
        check_here(ranks)
        if site.launcher == "mpiexec":
            mpiexec()
    before = None if not folder.exists() else _held(folder)
    log = ready(folder)
    with log, _as_before(folder, before):
        if before is None:
            folder.chmod(0o700)
        _make_work(folder)
        (folder / MARK).unlink(missing_ok=True)
        run_folder.write(folder / STATUS, {"state": "queued", "time": time.time()}, True)
        write_ticket(folder, ticket)
        more(folder)
        words = _script(folder, ticket)
        if here:
            native = _start_here(words, ticket, log)
        else:
            work = folder / WORK
            native = schedulers.hand_in(site, ranks, limit, ticket.name, words, work)
        write_ticket(folder, replace(ticket, native=native))
    remember(folder, ticket.token)
    return BatchJob(folder)


def submit_sweep(
    experiments: Mapping[str, Experiment], ranks: int, folder: str | Path, **options: Any
) -> list[BatchJob]:
    """Hand in one job for each experiment, in folders below `folder` of their names; options as of `submit`.

    If one cannot be handed in, those before it are cancelled. Raises SpecError.
    """
    if not os.fspath(folder):
        raise SpecError('folder = "": expected a path; "." is the current folder.')
    jobs: list[BatchJob] = []
    try:
        for name, experiment in experiments.items():
            check_word(name, "sweep")
            jobs.append(submit(experiment, ranks, folder=Path(folder) / name, **options))
    except BaseException:
        for job in jobs:
            job.cancel()
        raise
    return jobs


def settle_site(to: str | None, site: Site | None) -> Site:
    """Return the site to submit to. Raises SpecError if `to` is another scheduler, or fields are to be filled in."""
    if site is None:
        return Site(name=to or "local", scheduler=to or "local")
    if to not in (None, site.scheduler):
        raise SpecError(f"--to {to}: site {site.name} has {site.scheduler}; legal: that, or none.")
    if site.missing():
        fields = ", ".join(site.missing())
        raise SpecError(
            f"site {site.name}: {fields} = {FILL_IN!r}: yours to fill in, in a copy of its file"
            f" or on the command line (--account NAME)."
        )
    return site


def _check_path(folder: Path) -> None:
    """Refuse a run folder that could not stand in a job script as it is."""
    try:
        check_word(str(folder), "run folder")
    except SpecError:
        raise SpecError(
            f"run folder {str(folder)!r}: a path in a job script has {SIGNS}; name another."
        ) from None


def _script(folder: Path, ticket: Ticket) -> list[str]:
    """Write what a job does before the run, every word quoted; return the command that does it."""
    site = ticket.site
    run = [site.python or sys.executable, "-m", "lib_dlhpc.launch.batch", str(folder), ticket.token]
    if os.name != "posix":
        if site.lines():
            raise SpecError(f"site {site.name}: modules and setup need a shell.")
        return run
    lines = [f"#!{SHELL}", "umask 077", f"cd -- {shlex.quote(os.getcwd())} || exit 96"]
    for line in site.lines():
        told = shlex.quote(f"dlhpc: failed: {line}")
        lines.append(f"{line} || {{ echo {told} >&2; exit 97; }}")
    lines.append(f"exec {shlex.join(run)}")
    path = folder / WORK / SCRIPT
    path.touch(mode=0o700)
    path.chmod(0o700)
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    login = ["-l"] if site.modules else []  # which tells the shell of `module`
    return [SHELL, *login, str(path)]


def _start_here(words: list[str], ticket: Ticket, log: BinaryIO) -> str:
    """Start a job on this machine. Its standard input is a pipe that says when this process is killed."""
    process = subprocess.Popen(
        words, stdin=subprocess.PIPE, stdout=log, stderr=log, start_new_session=os.name == "posix"
    )
    CHILDREN[ticket.token] = process
    return str(process.pid)


@atexit.register
def _leave() -> None:
    """Tell the jobs on this machine that they go on without us."""
    for process in CHILDREN.values():
        with suppress(OSError, ValueError):
            assert process.stdin is not None
            process.stdin.write(GOODBYE)
            process.stdin.close()


def _make_work(folder: Path) -> None:
    shutil.rmtree(folder / WORK, ignore_errors=True)
    (folder / WORK).mkdir(mode=0o700)


def _held(folder: Path) -> dict[str, bytes]:
    """Return what a submission may change of a run folder."""
    names = (TICKET, STATUS, MARK, TASK, "experiment.toml", "snapshots.json")
    return {name: (folder / name).read_bytes() for name in names if (folder / name).is_file()}


@contextmanager
def _as_before(folder: Path, before: dict[str, bytes] | None) -> Iterator[None]:
    """Leave a run folder, locked by us, as it was if nothing comes of a submission; None: it was not there."""
    try:
        yield
    except BaseException:
        if before is None:
            shutil.rmtree(folder, ignore_errors=True)
        else:
            shutil.rmtree(folder / WORK, ignore_errors=True)
            for name in _held(folder):
                (folder / name).unlink()
            for name, content in before.items():
                (folder / name).write_bytes(content)
        raise
