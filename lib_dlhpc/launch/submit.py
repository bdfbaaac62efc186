"""Submit an experiment to a batch system, or to this machine in the same way, as a BatchJob.

A sweep is one job array with Slurm, else one job for each experiment. Each experiment has its own run folder, is
cancelled and resumed independently, and fails independently.
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
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import BinaryIO

from lib_dlhpc.errors import SpecError
from lib_dlhpc.launch import folder as run_folder
from lib_dlhpc.launch import schedulers
from lib_dlhpc.launch.folder import STATUS
from lib_dlhpc.launch.jobs import (
    CHILDREN,
    DETACH,
    MARK,
    TICKET,
    WORK,
    BatchJob,
    Ticket,
    remember,
    write_ticket,
)
from lib_dlhpc.launch.limits import check_limits
from lib_dlhpc.launch.mpi import check_here, mpiexec
from lib_dlhpc.launch.notebook import keep_source
from lib_dlhpc.launch.prepare import prepare
from lib_dlhpc.launch.site import FILL_IN, SIGNS, Site, check_word, read_time
from lib_dlhpc.launch.systems import system
from lib_dlhpc.launch.task import TASK, Task
from lib_dlhpc.launch.task import ready as task_ready
from lib_dlhpc.spec.experiment import Experiment

SCRIPT = "start.sh"
SHELL = "/bin/bash"
Ready = Callable[[Path], BinaryIO]  # prepares a run folder; returns its locked log


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
    """Submit a run of `ranks` ranks; it runs without a waiting process.

    to: a scheduler, by default that of the site, or "local": this machine. folder: the run folder, on a file system
    visible to the nodes; by default a new one below the current folder. A new folder is private (0700), an existing
    one keeps its mode.
    time_limit: s, or a text such as "10min": the run ends then, and can be resumed. resume, snapshot_every,
    origin: see `start`. A job on this machine continues when the submitting program exits, and is cancelled when that
    is killed. Raises SpecError for an illegal request, before submitting.
    """

    def ready(folder: Path) -> BinaryIO:
        return prepare(experiment, folder, resume, snapshot_every, origin)

    return _submit_prepared(ready, lambda folder: None, ranks, to, site, folder, time_limit)


def submit_task(
    task: Task,
    ranks: int = 1,
    to: str | None = None,
    site: Site | None = None,
    folder: str | Path | None = None,
    time_limit: float | str | None = None,
) -> BatchJob:
    """Submit a program, a notebook, or engines, in a new run folder; other arguments are those of `submit`."""

    def more(folder: Path) -> None:
        if task.kind == "notebook":
            keep_source(task, folder)

    return _submit_prepared(
        lambda folder: task_ready(task, folder), more, ranks, to, site, folder, time_limit
    )


def _submit_prepared(
    ready: Ready,
    more: Callable[[Path], None],
    ranks: int,
    to: str | None,
    site: Site | None,
    folder: str | Path | None,
    time_limit: float | str | None,
) -> BatchJob:
    """Submit a prepared folder. ready: prepares it and returns its locked log. more: further preparation."""
    site, limit = _settle(ranks, to, site, time_limit)
    if folder is not None and not os.fspath(folder):
        raise SpecError(
            'folder = "": expected a path; "." is the current folder, None a new one in it.'
        )
    ticket = Ticket(secrets.token_hex(4), site, ranks, limit, time.time())
    folder = Path(os.path.abspath(ticket.name if folder is None else folder))
    if site.scheduler != "local":
        check_path(folder)
    with _staged(ready, more, folder, ticket) as log:
        words = _script(folder, ticket)
        if site.scheduler == "local":
            native = _start_here(words, ticket, log)
        else:
            work = folder / WORK
            native = schedulers.submit_job(site, ranks, limit, ticket.name, words, work)
        write_ticket(folder, replace(ticket, native=native))
    remember(folder, ticket.token)
    return BatchJob(folder)


def submit_sweep(
    experiments: Mapping[str, Experiment],
    ranks: int,
    folder: str | Path,
    to: str | None = None,
    site: Site | None = None,
    time_limit: float | str | None = None,
    snapshot_every: str | int | None = None,
) -> list[BatchJob]:
    """Submit a run of each experiment, in folders of their names below `folder`; all of them or none.

    With Slurm they are the tasks of one job array, else one job each. The options are those of `submit`.
    Raises SpecError.
    """
    ready: dict[str, Ready] = {
        name: partial(prepare, each, resume=False, snapshot_every=snapshot_every, origin=None)
        for name, each in experiments.items()
    }
    return _submit_all(ready, ranks, folder, to, site, time_limit)


def submit_tasks(
    tasks: Mapping[str, Task],
    ranks: int,
    folder: str | Path,
    to: str | None = None,
    site: Site | None = None,
    time_limit: float | str | None = None,
) -> list[BatchJob]:
    """Submit programs or notebooks in folders of their names below `folder`, as `submit_sweep` does experiments."""
    ready: dict[str, Ready] = {name: partial(task_ready, each) for name, each in tasks.items()}
    return _submit_all(ready, ranks, folder, to, site, time_limit)


def _submit_all(
    ready: Mapping[str, Ready],
    ranks: int,
    folder: str | Path,
    to: str | None,
    site: Site | None,
    time_limit: float | str | None,
) -> list[BatchJob]:
    """Submit all or none. ready: of the name of each run folder, the function that prepares it."""
    if not os.fspath(folder):
        raise SpecError('folder = "": expected a path; "." is the current folder.')
    site, limit = _settle(ranks, to, site, time_limit)
    top = Path(os.path.abspath(folder))
    runs = {top / check_word(name, "sweep"): each for name, each in ready.items()}
    if site.scheduler != "local" and system(site.scheduler).arrays:
        return _submit_array(runs, ranks, top, site, limit)
    jobs: list[BatchJob] = []
    try:
        for place, each in runs.items():
            jobs.append(
                _submit_prepared(each, lambda folder: None, ranks, None, site, place, limit)
            )
    except BaseException:
        for job in jobs:
            job.cancel()
        raise
    return jobs


def _check_size(tasks: int, site: Site) -> None:
    """Raise SpecError for more tasks than an array may have there."""
    most = system(site.scheduler).most_tasks()
    if most is not None and tasks > most:
        raise SpecError(
            f"{site.scheduler}: an array of {tasks:,} tasks; at most {most:,} are legal here. A sweep or plan"
            " takes --tasks, a number of jobs that share all chunks."
        )


def _submit_array(
    runs: Mapping[Path, Ready], ranks: int, top: Path, site: Site, limit: float | None
) -> list[BatchJob]:
    """Submit one job array with one task for each run folder."""
    _check_size(len(runs), site)
    array = f"dlhpc-{secrets.token_hex(4)}"
    work, there = top / array, top.is_dir()  # one script folder per array: another may be queued
    tickets = {
        place: Ticket(secrets.token_hex(4), site, ranks, limit, time.time(), array=array, task=task)
        for task, place in enumerate(runs)
    }
    try:
        with ExitStack() as stack:
            for place, ticket in tickets.items():
                check_path(place)
                stack.enter_context(_staged(runs[place], lambda folder: None, place, ticket))
            work.mkdir(mode=0o700)
            words = _array_script(work, site, tickets)
            native = schedulers.submit_job(site, ranks, limit, array, words, work, len(tickets))
            for place, ticket in tickets.items():
                write_ticket(place, replace(ticket, native=f"{native}_{ticket.task}"))
    except BaseException:
        shutil.rmtree(work, ignore_errors=True)
        if not there:
            with suppress(OSError):
                top.rmdir()
        raise
    for place, ticket in tickets.items():
        remember(place, ticket.token)
    return [BatchJob(place) for place in tickets]


def _settle(
    ranks: int, to: str | None, site: Site | None, time_limit: float | str | None
) -> tuple[Site, float | None]:
    """Return the site and the time limit in s of a submission. Raises SpecError for an illegal request."""
    site = settle_site(to, site)
    if isinstance(ranks, bool) or not isinstance(ranks, int) or ranks < 1:
        raise SpecError(f"ranks = {ranks!r}: expected a whole number, at least 1.")
    limit = site.time_limit if time_limit is None else read_time(time_limit, "time limit")
    if site.scheduler == "local":
        check_here(ranks)
        if site.launcher == "mpiexec":
            mpiexec()
        return site, limit
    limit = schedulers.DEFAULT_LIMIT if limit is None else limit
    schedulers.check_here(site.scheduler)
    check_limits(site, ranks, limit)
    return site, limit


@contextmanager
def _staged(
    ready: Ready, more: Callable[[Path], None], folder: Path, ticket: Ticket
) -> Iterator[BinaryIO]:
    """Lock a run folder during the submission; restore it if that fails."""
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
        yield log


def settle_site(to: str | None, site: Site | None) -> Site:
    """Return the site to submit to. Raises SpecError if `to` is another scheduler, or fields are not filled in."""
    if site is None:
        return Site(name=to or "local", scheduler=to or "local")
    if to not in (None, site.scheduler):
        raise SpecError(f"--to {to}: site {site.name} has {site.scheduler}; legal: that, or none.")
    if site.missing():
        fields = ", ".join(site.missing())
        raise SpecError(
            f"site {site.name}: {fields} = {FILL_IN!r}: fill in, in a copy of its file"
            f" or on the command line (--account NAME)."
        )
    return site


def check_path(folder: Path) -> None:
    """Raise SpecError for a run folder whose path is illegal in a job script."""
    try:
        check_word(str(folder), "run folder")
    except SpecError:
        raise SpecError(
            f"run folder {str(folder)!r}: a path in a job script has {SIGNS}; name another."
        ) from None


def _script(folder: Path, ticket: Ticket) -> list[str]:
    """Write the job script, every word quoted; return the command that runs it."""
    site = ticket.site
    run = [*program(site), str(folder), ticket.token]
    if os.name != "posix":
        if site.lines():
            raise SpecError(f"site {site.name}: modules and setup need a shell.")
        return run
    return _write_script(folder / WORK, site, [], shlex.join(run))


def _array_script(work: Path, site: Site, tickets: Mapping[Path, Ticket]) -> list[str]:
    """Write the script of a job array: each task runs its own folder."""
    lines = ['case "$SLURM_ARRAY_TASK_ID" in']
    for folder, ticket in tickets.items():
        mine = f"dlhpc_run={shlex.quote(str(folder))} dlhpc_token={ticket.token}"
        lines.append(f"{ticket.task}) {mine} ;;")
    lines += ["*) exit 95 ;;", "esac"]
    lines.append(f'exec >"$dlhpc_run/{WORK}/out.txt" 2>"$dlhpc_run/{WORK}/err.txt"')
    run = f'{shlex.join(program(site))} "$dlhpc_run" "$dlhpc_token"'
    return _write_script(work, site, lines, run)


def program(site: Site) -> list[str]:
    """Return the command of a job, without its folder and token."""
    return [site.python or sys.executable, "-m", "lib_dlhpc.launch.batch"]


def _write_script(work: Path, site: Site, first: list[str], run: str) -> list[str]:
    """Write a script into a private folder; return its command."""
    path = work / SCRIPT
    path.touch(mode=0o700)
    path.chmod(0o700)
    path.write_text(script_lines(site, first, run), encoding="utf-8")
    return command_of(site, path)


def script_lines(site: Site, first: list[str], run: str) -> str:
    """Return the text of a script: `first`, the site's lines, then `run`."""
    lines = [f"#!{SHELL}", "umask 077", *first, f"cd -- {shlex.quote(os.getcwd())} || exit 96"]
    for line in site.lines():
        message = shlex.quote(f"dlhpc: failed: {line}")
        lines.append(f"{line} || {{ echo {message} >&2; exit 97; }}")
    return "\n".join([*lines, f"exec {run}"]) + "\n"


def command_of(site: Site, script: Path) -> list[str]:
    """Return the command that runs a script."""
    login = ["-l"] if site.modules else []  # which defines `module`
    return [SHELL, *login, str(script)]


def _start_here(words: list[str], ticket: Ticket, log: BinaryIO) -> str:
    """Start a job on this machine. Its standard input is a pipe that closes when this process is killed."""
    process = subprocess.Popen(
        words, stdin=subprocess.PIPE, stdout=log, stderr=log, start_new_session=os.name == "posix"
    )
    CHILDREN[ticket.token] = process
    return str(process.pid)


@atexit.register
def _leave() -> None:
    """Detach the jobs on this machine, so that they survive this process."""
    for process in CHILDREN.values():
        with suppress(OSError, ValueError):
            assert process.stdin is not None
            process.stdin.write(DETACH)
            process.stdin.close()


def _make_work(folder: Path) -> None:
    shutil.rmtree(folder / WORK, ignore_errors=True)
    (folder / WORK).mkdir(mode=0o700)


def _held(folder: Path) -> dict[str, bytes]:
    """Return the files of a run folder that a submission may change."""
    names = (TICKET, STATUS, MARK, TASK, "experiment.toml", "snapshots.json")
    return {name: (folder / name).read_bytes() for name in names if (folder / name).is_file()}


@contextmanager
def _as_before(folder: Path, before: dict[str, bytes] | None) -> Iterator[None]:
    """Restore a run folder, locked by us, if a submission fails; None: the folder did not exist."""
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
