"""`dlhpc submit FILE --to slurm -n 4`: a run as a job of a batch system, or on this machine.

FILE may also be a notebook or a program: a task, which is not predicted.
"""

import argparse
import time
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lib_dlhpc.commands.experiment import add_experiment, add_run, change, folder_of, ranks_of, read
from lib_dlhpc.commands.jobs import energy_of, record
from lib_dlhpc.commands.output import add_output, failed, print_note, print_result
from lib_dlhpc.errors import SpecError

if TYPE_CHECKING:
    from lib_dlhpc.launch import BatchJob, Site
    from lib_dlhpc.launch.task import Task
    from lib_dlhpc.spec.experiment import Experiment

ENDINGS = (".ipynb", ".py")  # of tasks
OF_A_RUN = ("resume", "snapshot_every", "origin", "sweep")  # options of experiments only
PAUSE = 0.2  # s between two polls of a job


def add(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add `submit` to the command line."""
    one = subparsers.add_parser(
        "submit",
        help="train, or run a program, as a job of Slurm, PBS, LSF or Flux",
        description="Submits the run and returns; dlhpc jobs lists, explains and cancels it. The results"
        " are in the run folder, as with dlhpc run. --to local makes it a job on this machine."
        " A notebook (.ipynb) is executed, with --set NAME=VALUE for the names in its cell tagged"
        " 'parameters'; a program (.py) runs on all ranks, with the arguments after it.",
    )
    add_experiment(one, held=", a notebook or a program (default: that of --resume)")
    one.add_argument(
        "words",
        nargs="*",
        help="arguments of the program; put -- before arguments that begin with -",
    )
    one.add_argument(
        "--to", help="the batch system, such as slurm, or local (default: the site's, or local)"
    )
    one.add_argument(
        "--site",
        metavar="SITE",
        help="a TOML file with account, modules ..., or one of the catalog",
    )
    add_run(one)
    one.add_argument("--time", metavar="T", help="time limit, such as 10min or 2h")
    one.add_argument("--account", help="account to charge; overrides the site's")
    one.add_argument("--partition", help="partition or queue; overrides the site's")
    one.add_argument(
        "--sweep",
        metavar="KEY=A,B",
        help="one run for each value, such as strategy.batch=8,16,32 (microbatches keep their samples), in"
        " folders below --out: one job array with Slurm, otherwise one job each",
    )
    one.add_argument(
        "--wait", action="store_true", help="wait until it has ended, and print the result"
    )
    one.add_argument(
        "--dry-run", action="store_true", help="print the scripts of the job, and submit nothing"
    )
    add_output(one)
    one.set_defaults(command=_submit)


def _submit(options: argparse.Namespace) -> int:
    try:
        from lib_dlhpc.launch import submit
    except ModuleNotFoundError:
        if options.to != "local" and (options.to or options.site):
            find_spec("psij")  # raises where it is missing, too: its extra installs both
        raise
    from lib_dlhpc.prediction.limits.rank_limits import check_fits

    folder = folder_of(options)
    if not (options.experiment or options.resume):
        raise SpecError("dlhpc submit: name an experiment, or a run folder with --resume.")
    if _is_task(options):
        return _task(options)
    if options.words:
        raise SpecError(f"{options.words[0]}: only a program (.py) takes arguments.")
    if options.sweep:
        return _sweep(options)
    experiment = read(options.experiment or f"{options.resume}/experiment.toml", options.set)
    ranks = ranks_of(experiment, options.ranks, options.resume)
    check_fits(experiment)
    if options.dry_run:
        return _dry_run(options, ranks)
    site, limit = _site(options)
    job = submit(
        experiment,
        ranks,
        options.to,
        site,
        folder,
        bool(options.resume),
        limit,
        options.snapshot_every,
        options.origin,
    )
    status, table = _report(options, job, experiment)
    print_result(options, table)
    return status


def _dry_run(options: argparse.Namespace, ranks: int) -> int:
    """Print the scripts of the job that the command would submit."""
    from lib_dlhpc.launch.dry_run import scripts

    site, limit = _site(options)
    found = scripts(ranks, options.to, site, folder_of(options), limit)
    lines = [f"# {name}\n{text}" for name, text in found.items()]
    print_result(options, {"scripts": found}, "\n".join(lines).rstrip())
    print_note("dlhpc: nothing was submitted.")
    return 0


def _task(options: argparse.Namespace) -> int:
    from lib_dlhpc.launch import submit_task

    task, ranks = _task_of(options), 1 if options.ranks is None else options.ranks
    if options.dry_run:
        return _dry_run(options, ranks)
    job = submit_task(task, ranks, options.to, _site(options)[0], options.out, options.time)
    status, table = _report(options, job)
    print_result(options, table)
    return status


def _sweep(options: argparse.Namespace) -> int:
    from lib_dlhpc.launch import submit_sweep
    from lib_dlhpc.prediction.changes.resplit import beside
    from lib_dlhpc.prediction.limits.rank_limits import check_fits
    from lib_dlhpc.prediction.what_if import what_if

    if options.dry_run:
        raise SpecError("--dry-run prints the job of one run: omit --sweep.")
    key, equals, values = options.sweep.partition("=")
    if not equals or not values:
        raise SpecError(f"--sweep {options.sweep}: expected KEY=A,B, such as strategy.batch=8,16.")
    if options.resume or options.origin or not options.out:
        raise SpecError("--sweep makes new runs: name their parent folder with --out.")
    base = read(options.experiment, options.set)
    runs = {}
    for value in values.split(","):
        setting = dict([change(f"{key}={value}")])
        runs[f"{key}={value}"] = what_if(base, {**beside(base, setting), **setting})
    ranks = {name: ranks_of(run, options.ranks) for name, run in runs.items()}
    for run in runs.values():
        check_fits(run)
    if len(set(ranks.values())) > 1:
        raise SpecError(
            f"--sweep {options.sweep}: settings need different numbers of ranks; give -n."
        )
    jobs = submit_sweep(
        runs,
        next(iter(ranks.values())),
        options.out,
        options.to,
        _site(options)[0],
        options.time,
        options.snapshot_every,
    )
    reports = [_report(options, job, runs[job.folder.name]) for job in jobs]
    print_result(options, [table for _, table in reports])
    return max(status for status, _ in reports)


def _site(options: argparse.Namespace) -> "tuple[Site | None, Any]":
    """Return the site and the time limit; a resumed run defaults to its previous site."""
    from lib_dlhpc.launch import Site, load_site
    from lib_dlhpc.launch.jobs import TICKET, read_ticket

    given = {
        name: getattr(options, name) for name in ("account", "partition") if getattr(options, name)
    }
    if options.site:
        return load_site(options.site, **given), options.time
    if options.resume and Path(options.resume, TICKET).exists():
        before = read_ticket(options.resume)
        if options.to in (None, before.site.scheduler):
            return replace(before.site, **given), options.time or before.time_limit
    if given:
        name = options.to or "local"
        return Site(name=name, scheduler=name, **given), options.time
    return None, options.time


def _report(
    options: argparse.Namespace, job: "BatchJob", experiment: "Experiment | None" = None
) -> tuple[int, dict[str, Any]]:
    """Print a submitted job, or with --wait its result; return the exit status and what --json prints.

    experiment: None for a task, whose result is its output.
    """
    if not options.wait:
        if not options.json:
            where, *notes = _submitted(job)
            print("\n".join([where] if options.quiet else [where, *notes]), flush=True)
        return 0, record(job)
    if experiment is None:
        status, output = _follow_task(job, echo=not options.json)
        return status, record(job) | {"output": output}
    result, energy = _follow(options, job, experiment), energy_of(job)
    if energy.lines and not options.json:
        print("\n".join(energy.lines))
    return int(not result), record(job) | {"result": result, **energy.record}


def _submitted(job: "BatchJob") -> list[str]:
    """Return where the job is, then notes."""
    from lib_dlhpc.launch.limits import CHECKED

    lines = [f"{job.label} is {job.state}; run folder: {job.folder}"]
    lines.append(f"  dlhpc jobs why {job.folder}    its state; `cancel` ends it")
    if job.ticket.site.scheduler not in CHECKED:
        lines.append("  not checked: node and time limits of its queue")
    return lines


def _follow(
    options: argparse.Namespace, job: "BatchJob", experiment: "Experiment"
) -> dict[str, Any] | None:
    """Print each state as it is reached, then the result; return it, None if it failed. Ctrl-C leaves it running."""
    from lib_dlhpc.launch import JobError
    from lib_dlhpc.launch.jobs import ENDS
    from lib_dlhpc.launch.terminal import as_text
    from lib_dlhpc.prediction.limits import rank_limits

    state, shown = "", ""
    try:
        while state not in ENDS:
            state = job.state
            words = job.why() if state == "queued" else f"{job.label} is {state}."
            if words != shown:  # a queued job's reason may change
                shown = words
                print_note(f"dlhpc: {shown}")
            time.sleep(PAUSE)
        result = job.wait()
    except KeyboardInterrupt:
        raise _continues(job) from None
    except JobError as error:
        failed(error)
        return None
    text, _, where = as_text(experiment, job, result, f"in {job.label}").rpartition("\n")
    predicted = rank_limits.check_fits(experiment)
    ticket = job.ticket  # a scheduler allocates a core to each rank
    cores = None if ticket.site.scheduler == "local" else ticket.ranks
    if not options.json:
        lines = rank_limits.result_lines(experiment, predicted, result, cores)
        print("\n".join([text, *lines, where]))
    return result


def _continues(job: "BatchJob") -> KeyboardInterrupt:
    return KeyboardInterrupt(
        f"Stopped waiting; {job.label} continues. dlhpc jobs cancel {job.folder} ends it."
    )


def _is_task(options: argparse.Namespace) -> bool:
    """Whether a notebook or a program is submitted, not an experiment."""
    return Path(options.experiment or "").suffix in ENDINGS


def _task_of(options: argparse.Namespace) -> "Task":
    """Return the task of a command line. Raises SpecError."""
    from lib_dlhpc.launch.notebook import notebook
    from lib_dlhpc.launch.task import program

    path = options.experiment
    for name in OF_A_RUN:
        if getattr(options, name):
            raise SpecError(f"{path}: --{name.replace('_', '-')} is for an experiment.")
    if Path(path).suffix == ".py":
        if options.set:
            raise SpecError(f"{path}: --set is for a notebook; a program's arguments follow it.")
        return program(path, *options.words)
    if options.words:
        raise SpecError(f"{path}: a notebook takes --set NAME=VALUE, not {options.words[0]!r}.")
    return notebook(path, dict(change(text) for text in options.set))


def _follow_task(job: "BatchJob", echo: bool) -> tuple[int, str]:
    """Wait until the job has ended; print its output as it comes, if `echo`. Ctrl-C leaves the job running.

    Returns the exit status and the output.
    """
    from lib_dlhpc.launch import JobError
    from lib_dlhpc.launch.jobs import ENDS
    from lib_dlhpc.launch.task import printed

    state, text = "", ""
    try:
        while state not in ENDS:
            if (now := job.state) != state:
                state = now
                print_note(f"dlhpc: {job.label} is {state}.")
            seen, text = len(text), printed(job.folder)
            if echo:
                print(text[seen:], end="", flush=True)
            if state not in ENDS:
                time.sleep(PAUSE)
    except KeyboardInterrupt:
        raise _continues(job) from None
    if state == "done":
        return 0, text
    return failed(JobError(job.why())), text
