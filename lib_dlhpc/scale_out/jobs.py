"""Chunks as jobs: an array of a batch system, or jobs of this machine; each writes its share into the folder."""

import time
from collections.abc import Iterator
from pathlib import Path

from lib_dlhpc.launch import BatchJob, submit_tasks
from lib_dlhpc.launch.jobs import ENDS
from lib_dlhpc.launch.task import program
from lib_dlhpc.scale_out import task
from lib_dlhpc.scale_out.places import LostError, Place
from lib_dlhpc.scale_out.work import Arrays, Work, do, file_of

PAUSE = 0.5  # s between two looks at the jobs


def through_jobs(work: Work, where: Place) -> Iterator[Arrays]:
    """Submit what is missing, wait for its end, and yield the results in order.

    Jobs are cancelled if the wait is ended. Raises LostError that says why a job failed.
    """
    folder = where.folder
    assert folder is not None
    missing = [n for n in range(work.chunks) if not file_of(folder, n).exists()]
    if missing:
        _wait(_submitted(where, folder, len(missing)))
    for number in range(work.chunks):
        yield do(work, number, str(folder))


def _submitted(where: Place, folder: Path, chunks: int) -> list[BatchJob]:
    many = min(where.tasks, chunks)
    tasks = {
        f"task-{n}": program(task.__file__, str(folder), str(n), str(many)) for n in range(many)
    }
    turn = sum(1 for _ in folder.glob("jobs-*"))
    to = None if where.site is not None else where.engine
    return submit_tasks(tasks, 1, folder / f"jobs-{turn}", to, where.site, where.time_limit)


def _wait(jobs: list[BatchJob]) -> None:
    try:
        while any(job.state not in ENDS for job in jobs):
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
