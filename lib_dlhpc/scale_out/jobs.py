"""Chunks as jobs: an array of a batch system, or jobs of this machine; each writes its share into the folder."""

import json
import time
from collections.abc import Iterator
from pathlib import Path

from lib_dlhpc.launch import BatchJob, submit_tasks
from lib_dlhpc.launch.jobs import ENDS
from lib_dlhpc.launch.task import program
from lib_dlhpc.lifetime.files import write_text
from lib_dlhpc.scale_out import task
from lib_dlhpc.scale_out.places import LostError, Place
from lib_dlhpc.scale_out.work import Arrays, Work, do, file_of

PAUSE = 0.5  # s between two looks at a job


def through_jobs(work: Work, where: Place) -> Iterator[Arrays]:
    """Submit what is missing, wait for its end, and yield the results in order.

    Jobs are cancelled if the wait is ended. Raises LostError that says why a job failed.
    """
    folder = where.folder
    assert folder is not None
    missing = [n for n in range(work.chunks) if not file_of(folder, n).exists()]
    if missing:
        _wait(_submitted(where, folder, missing))
    for number in range(work.chunks):
        yield do(work, number, str(folder))


def _submitted(where: Place, folder: Path, missing: list[int]) -> list[BatchJob]:
    """Submit jobs that have equal shares of what is missing: a failed job may have left all of its own."""
    many = min(where.tasks, len(missing))
    turn = sum(1 for _ in folder.glob("jobs-*.json"))
    chunks = folder / f"jobs-{turn}.json"
    write_text(chunks, json.dumps(missing))
    tasks = {
        f"task-{n}": program(task.__file__, str(chunks), str(n), str(many)) for n in range(many)
    }
    to = None if where.site is not None else where.engine
    return submit_tasks(tasks, 1, chunks.with_suffix(""), to, where.site, where.time_limit)


def _wait(jobs: list[BatchJob]) -> None:
    """Wait for one job after another, so that a scheduler is asked about one at a time, however many there are."""
    try:
        for job in jobs:
            while job.state not in ENDS:
                time.sleep(PAUSE)
    except BaseException:
        for job in jobs:
            job.cancel()
        raise
    lost = [job for job in jobs if job.state != "done"]
    if lost:
        raise LostError(
            f"{len(lost)} of {len(jobs)} jobs failed; run the same command again to do the missing work."
            f" {lost[0].label}: {lost[0].why()}"
        )
