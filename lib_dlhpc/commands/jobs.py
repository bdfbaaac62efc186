"""`dlhpc jobs`: submitted jobs: list, explain, cancel."""

import argparse
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from lib_dlhpc.commands.output import add_output, print_result
from lib_dlhpc.commands.store import printable
from lib_dlhpc.errors import SpecError
from lib_dlhpc.spec.units import format_quantity as show

if TYPE_CHECKING:
    from lib_dlhpc.launch import BatchJob


def add(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add `jobs` to the command line."""
    jobs = subparsers.add_parser(
        "jobs",
        help="list submitted jobs, explain their state, cancel them",
        description="Without WHAT, lists all jobs. A job is identified by its run folder.",
    )
    add_output(jobs)
    jobs.set_defaults(command=_list, folder=None)
    actions = jobs.add_subparsers(metavar="WHAT")
    each = actions.add_parser(
        "list", help="list all your jobs, or those whose run folders are below DIR"
    )
    each.add_argument("folder", nargs="?", metavar="DIR", help="a folder that contains run folders")
    add_output(each)
    each.set_defaults(command=_list)
    why = actions.add_parser(
        "why", help="explain the state of a job: its energy, and which rank failed, and where"
    )
    why.add_argument("folder", metavar="DIR", help="a run folder")
    add_output(why)
    why.set_defaults(command=_why)
    cancel = actions.add_parser("cancel", help="cancel jobs, queued or running")
    cancel.add_argument("folders", nargs="+", metavar="DIR", help="run folders")
    add_output(cancel)
    cancel.set_defaults(command=_cancel)


def _list(options: argparse.Namespace) -> int:
    from lib_dlhpc.launch.jobs import TICKET, attach, remembered

    if options.folder:
        if not Path(options.folder).is_dir():
            raise SpecError(f"{options.folder}: no such folder.")
        places = sorted(path.parent for path in Path(options.folder).glob(f"**/{TICKET}"))
        jobs = [attach(place) for place in places]
    else:
        jobs = list(remembered())
    records = [record(job) for job in jobs]
    lines = _table(records) if records else ["No jobs; dlhpc submit starts one."]
    print_result(options, records, *lines)
    return 0


def record(job: "BatchJob") -> dict[str, Any]:
    """Return a job as plain data; submitted: s since 1970."""
    ticket = job.ticket
    return {
        "job": job.label.replace(" job", ""),
        "state": job.state,
        "submitted": ticket.submitted,
        "ranks": ticket.ranks,
        "folder": str(job.folder),
    }


class Energy(NamedTuple):
    """The energy of an ended job, as plain data and as lines of text."""

    record: dict[str, Any]
    lines: list[str]


def energy_of(job: "BatchJob") -> Energy:
    """Return the energy of a job, by its scheduler's accounting; no lines where it is unknown."""
    from lib_dlhpc.launch.energy import job_energy_line

    if (found := job.energy()) is None:
        return Energy({"joules": None, "steps_joules": {}}, [])
    return Energy({"joules": found.joules, "steps_joules": found.steps}, [job_energy_line(found)])


def _table(records: list[dict[str, Any]]) -> list[str]:
    rows = [("JOB", "STATE", "AGE", "RANKS", "RUN FOLDER")]
    for job in records:
        age = show(max(time.time() - job["submitted"], 0), "s", 2)
        rows.append((job["job"], job["state"], age, str(job["ranks"]), printable(job["folder"])))
    widths = [max(len(row[column]) for row in rows) for column in range(4)]
    lines = []
    for row in rows:
        left = [cell.ljust(width) for cell, width in zip(row[:4], widths, strict=True)]
        lines.append("  ".join([*left, row[4]]))
    return lines


def _why(options: argparse.Namespace) -> int:
    from lib_dlhpc.launch import attach
    from lib_dlhpc.launch.folder import run_status
    from lib_dlhpc.launch.jobs import TICKET

    folder = Path(options.folder)
    if not (folder / TICKET).exists() and (status := run_status(folder)):  # of `dlhpc run`
        reason = f": {status['reason']}" if "reason" in status else "."
        table = {"folder": options.folder, "state": status["state"]}
        why = f"The run in {folder} is {status['state']}{reason}"
        print_result(options, table | {"why": why}, why)
        return int(status["state"] == "failed")
    job = attach(options.folder)
    why, energy = job.why(), energy_of(job)
    print_result(options, record(job) | {"why": why, **energy.record}, why, *energy.lines)
    return int(job.state in ("failed", "out of memory", "out of time"))


def _cancel(options: argparse.Namespace) -> int:
    from lib_dlhpc.launch import attach
    from lib_dlhpc.launch.jobs import ENDS

    status, records, lines = 0, [], []
    for job in [attach(folder) for folder in options.folders]:
        before = job.state
        job.cancel()
        outcome = f"was {before} before" if before in ENDS else f"is {job.state}"
        status = max(status, int(job.state not in ENDS))
        lines.append(f"{job.label} {outcome}: {job.folder}")
        records.append(record(job) | {"before": before})
    print_result(options, records, *lines)
    return status
