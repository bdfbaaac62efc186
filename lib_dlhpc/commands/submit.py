"""`dlhpc submit FILE --to slurm -n 4`: the same run as a job of a batch system, or of this machine.

FILE may also be a notebook or a program: see `submit_task`.
"""

import argparse
import sys
import time
from typing import TYPE_CHECKING, Any

from lib_dlhpc.commands.experiment import add_experiment, change, read
from lib_dlhpc.commands.submit_task import follow, is_task, task_of
from lib_dlhpc.spec.errors import SpecError

if TYPE_CHECKING:
    from lib_dlhpc.launch import BatchJob, Site
    from lib_dlhpc.spec.experiment import Experiment

PAUSE = 0.2  # s between two looks at a job that is waited for


def add(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add `submit` to the command line."""
    one = subparsers.add_parser(
        "submit",
        help="train for real as a job of a batch system: Slurm, PBS, LSF, Flux; a notebook or a program, too",
        description="Hands the run in and returns; dlhpc jobs lists it, tells how it is and cancels it. What"
        " comes of it is in the run folder, as of dlhpc run. --to local makes it a job of this machine."
        " A notebook (.ipynb) is executed, with --set NAME=VALUE for the names of its cell with the tag"
        " 'parameters'; a program (.py) is run on all ranks, with the words that stand after it.",
    )
    add_experiment(one, held=", a notebook or a program (default: that of --resume)")
    one.add_argument(
        "words", nargs="*", help="what a program is given; after -- if it begins with -"
    )
    one.add_argument("--to", help="slurm, pbs, lsf, flux or local (default: the site's, or local)")
    one.add_argument(
        "--site",
        metavar="SITE",
        help="a TOML file with account, modules ..., or one of the catalog",
    )
    one.add_argument(
        "-n", "--ranks", type=int, help="MPI ranks (default: the run's devices and servers)"
    )
    one.add_argument("--out", metavar="DIR", help="the run folder (default: a new one here)")
    one.add_argument("--time", metavar="T", help="ended after this, such as 10min or 2h")
    one.add_argument("--resume", metavar="DIR", help="go on from the snapshot of a run folder")
    one.add_argument(
        "--snapshot-every", metavar="N", help="keep versions: N steps apart, or 'epoch'"
    )
    one.add_argument("--from", dest="origin", metavar="RUN@VERSION", help="begin at a version")
    one.add_argument("--account", help="whom to charge, in place of the site's")
    one.add_argument("--partition", help="the queue, in place of the site's")
    one.add_argument(
        "--sweep",
        metavar="KEY=A,B",
        help="one job for each value, such as strategy.batch=8,16,32, in folders below --out",
    )
    one.add_argument("--wait", action="store_true", help="until it has ended; tell what came of it")
    one.set_defaults(command=_submit)


def _submit(options: argparse.Namespace) -> int:
    from lib_dlhpc.launch import submit

    if options.out and options.resume:
        raise SpecError("--out and --resume: name one of them; a resumed run stays in its folder.")
    if not (options.experiment or options.resume):
        raise SpecError("dlhpc submit: name an experiment, or a run folder with --resume.")
    if is_task(options):
        return _task(options)
    if options.words:
        raise SpecError(f"{options.words[0]}: only a program (.py) takes words after its name.")
    if options.sweep:
        return _sweep(options)
    experiment = read(options.experiment or f"{options.resume}/experiment.toml", options.set)
    ranks = _ranks(experiment, options.ranks)
    folder = options.resume or options.out
    job = submit(experiment, ranks, options.to, _site(options), folder, **_more(options))
    return _follow(job, experiment) if options.wait else _told(job)


def _task(options: argparse.Namespace) -> int:
    from lib_dlhpc.launch import submit_task

    job = submit_task(
        task_of(options), 1 if options.ranks is None else options.ranks,
        options.to, _site(options), options.out, options.time,
    )  # fmt: skip
    return follow(job) if options.wait else _told(job)


def _sweep(options: argparse.Namespace) -> int:
    from lib_dlhpc.launch import submit_sweep
    from lib_dlhpc.predict.what_if import what_if

    key, equals, values = options.sweep.partition("=")
    if not equals or not values:
        raise SpecError(f"--sweep {options.sweep}: expected KEY=A,B, such as strategy.batch=8,16.")
    if options.resume or options.origin or not options.out:
        raise SpecError("--sweep makes new runs: name the folder that is to hold them with --out.")
    base = read(options.experiment, options.set)
    runs = {}
    for value in values.split(","):
        runs[f"{key}={value}"] = what_if(base, dict([change(f"{key}={value}")]))
    ranks = {name: _ranks(run, options.ranks) for name, run in runs.items()}
    if len(set(ranks.values())) > 1:
        raise SpecError(f"--sweep {options.sweep}: these have other numbers of ranks; give -n.")
    jobs = submit_sweep(
        runs, next(iter(ranks.values())), options.out, to=options.to, site=_site(options), **_more(options)
    )  # fmt: skip
    for job in jobs:
        _told(job)
    return max(_follow(job, runs[job.folder.name]) for job in jobs) if options.wait else 0


def _ranks(experiment: "Experiment", asked: int | None) -> int:
    """Return the number of ranks, of a run that can be trained on them. Raises SpecError."""
    from lib_dlhpc.predict import on_ranks
    from lib_dlhpc.train.check import check, check_ranks

    check(experiment)
    on_ranks.check_fits(experiment)
    ranks = int(experiment.devices + experiment.servers) if asked is None else asked
    if ranks < 1:
        raise SpecError(f"--ranks {ranks}: expected a whole number, at least 1.")
    check_ranks(experiment, ranks)
    return ranks


def _site(options: argparse.Namespace) -> "Site | None":
    from lib_dlhpc.launch import Site, load_site

    given = {
        name: getattr(options, name) for name in ("account", "partition") if getattr(options, name)
    }
    if options.site:
        return load_site(options.site, **given)
    if given:
        return Site(name=options.to or "local", scheduler=options.to or "local", **given)
    return None


def _more(options: argparse.Namespace) -> dict[str, Any]:
    return {
        "resume": bool(options.resume),
        "time_limit": options.time,
        "snapshot_every": options.snapshot_every,
        "origin": options.origin,
    }


def _told(job: "BatchJob") -> int:
    print(f"{job.label} is {job.state}; all of it comes into {job.folder}")
    print(f"  dlhpc jobs why {job.folder}    how it is; cancel in place of why ends it", flush=True)
    return 0


def _follow(job: "BatchJob", experiment: "Experiment") -> int:
    """Tell each state as it comes, then what came of the run. Ctrl-C leaves the job where it is."""
    from lib_dlhpc.launch import JobError
    from lib_dlhpc.launch.jobs import ENDS
    from lib_dlhpc.launch.terminal import as_text
    from lib_dlhpc.predict import on_ranks

    state = ""
    try:
        while state not in ENDS:
            if (now := job.state) != state:
                state = now
                print(f"dlhpc: {job.label} is {state}.", file=sys.stderr, flush=True)
            time.sleep(PAUSE)
        result = job.wait()
        text, _, where = as_text(experiment, job, result, f"in {job.label}").rpartition("\n")
        predicted = on_ranks.check_fits(experiment)
        ticket = job.ticket  # a scheduler gives each rank a core
        room = None if ticket.site.scheduler == "local" else ticket.ranks
        print("\n".join([text, *on_ranks.beside(experiment, predicted, result, room), where]))
    except KeyboardInterrupt:
        told = (
            f"Nobody waits any more; {job.label} goes on. dlhpc jobs cancel {job.folder} ends it."
        )
        raise KeyboardInterrupt(told) from None
    except JobError as error:
        print(f"dlhpc: {error}", file=sys.stderr)
        return 1
    return 0
