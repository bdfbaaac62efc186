"""Options of commands that split work into chunks: --on processes:2, dask, slurm ..., --work and those of a site."""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from lib_dlhpc.commands.output import print_note
from lib_dlhpc.errors import SpecError

if TYPE_CHECKING:
    from lib_dlhpc.scale_out import Place

OF_A_BATCH_SYSTEM = ("site", "account", "partition", "time", "tasks")


def add_scale_out(command: argparse.ArgumentParser) -> None:
    """Add the options that say where chunks are done."""
    command.add_argument(
        "--on",
        default="here",
        metavar="WHERE",
        help="where chunks run: here (default), processes:N, dask (workers on this machine), dask:ADDRESS (a running"
        " scheduler), slurm (a job array), another batch system or local (a job per task); the result is the same",
    )
    command.add_argument(
        "--work",
        metavar="FOLDER",
        help="keep finished chunks in this folder until the end, so that rerunning the command computes only the"
        " missing ones; on a batch system, all nodes must see it",
    )
    command.add_argument(
        "--tasks", type=int, metavar="N", help="number of jobs in the array (default: 16)"
    )
    command.add_argument(
        "--site",
        metavar="SITE",
        help="a TOML file with account, modules ..., or one of the catalog",
    )
    command.add_argument("--account", help="account to charge; overrides the site's")
    command.add_argument("--partition", help="partition or queue; overrides the site's")
    command.add_argument("--time", metavar="T", help="time limit of a job, such as 10min or 2h")


def place_of(options: argparse.Namespace) -> "Place":
    """Return where the chunks of a command are done. Raises SpecError."""
    from lib_dlhpc.scale_out import TASKS, Progress, place

    progress = Progress(lambda done, of: print_note(f"dlhpc: {done:,} of {of:,} chunks done"))
    engine = options.on.partition(":")[0]
    if engine in ("here", "processes", "dask"):
        for name in OF_A_BATCH_SYSTEM:
            if getattr(options, name) is not None:
                raise SpecError(
                    f"--{name}: is for jobs of a batch system, not for --on {options.on}."
                )
        return place(options.on, options.work and Path(options.work), progress=progress)
    from lib_dlhpc.launch.site import Site, load_site

    given = {name: getattr(options, name) for name in ("account", "partition")}
    given = {name: value for name, value in given.items() if value}
    site = None
    if options.site:
        site = load_site(options.site, **given)
    elif given:
        site = Site(name=engine, scheduler=engine, **given)
    if site is not None and site.scheduler != engine:
        raise SpecError(
            f"--on {engine}: site {site.name} uses {site.scheduler}; that is the only legal value."
        )
    tasks = TASKS if options.tasks is None else options.tasks
    folder = options.work and Path(options.work)
    return place(
        options.on, folder, site=site, time_limit=options.time, tasks=tasks, progress=progress
    )
