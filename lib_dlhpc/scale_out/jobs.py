"""Chunks as jobs: an array of a batch system, or jobs of this machine; each writes its share into the folder."""

import json
import time
from collections.abc import Callable, Iterator
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
    missing = _missing(folder, work.chunks)
    if missing:
        jobs = _submitted(where, folder, missing)
        _wait(jobs, lambda: _report(where, folder, work.chunks))
    for number in range(work.chunks):
        yield do(work, number, str(folder))


def _missing(folder: Path, chunks: int) -> list[int]:
    return [number for number in range(chunks) if not file_of(folder, number).exists()]


def _report(where: Place, folder: Path, chunks: int) -> None:
    if where.progress is not None and where.progress.is_due():
        where.progress(chunks - len(_missing(folder, chunks)), chunks)


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


def _wait(jobs: list[BatchJob], report: Callable[[], None]) -> None:
    """Wait for one job after another, so that a scheduler is asked about one at a time, however many there are."""
    try:
        for job in jobs:
            while job.state not in ENDS:
                time.sleep(PAUSE)
                report()
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
