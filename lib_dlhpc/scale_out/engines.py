"""results(work, place): of all chunks in their order, from this process, several, Dask, or a batch system."""

import multiprocessing
import os
import shutil
import signal
import threading
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from lib_dlhpc.scale_out.places import HERE, LostError, Place
from lib_dlhpc.scale_out.work import Arrays, Work, do, open_folder
from lib_dlhpc.spec.host import cores

AHEAD = 4  # chunks for each worker that are submitted before their turn
Submit = Callable[..., "Future[Arrays]"]


def results(
    work: Work, where: Place = HERE, at_end: Callable[[], object] | None = None, keep: bool = False
) -> Iterator[Arrays]:
    """Yield the result of each chunk, in order.

    A folder of `where` is removed after the last one. at_end: called before that. keep: the caller removes the folder.
    Raises SpecError of a chunk, LostError where workers are lost; what is finished is still in the folder then.
    """
    if where.folder is not None:
        open_folder(where.folder, work)
    if where.engine in ("here", "processes", "dask"):
        with _submitting(where) as (submit, workers):
            for done, each in enumerate(_in_order(submit, work, where.folder, workers), 1):
                if where.progress is not None:
                    where.progress(done, work.chunks)
                yield each
    else:
        from lib_dlhpc.scale_out.jobs import through_jobs

        yield from through_jobs(work, where)
    if at_end is not None:
        at_end()
    if where.folder is not None and not keep:
        shutil.rmtree(where.folder)


def _in_order(submit: Submit, work: Work, folder: Path | None, workers: int) -> Iterator[Arrays]:
    """Yield results in order; a few chunks for each worker are in flight, however many there are."""
    waiting: deque[Future[Arrays]] = deque()
    held = None if folder is None else str(folder)
    for number in range(work.chunks):
        waiting.append(submit(do, work, number, held))
        if len(waiting) >= AHEAD * workers:
            yield waiting.popleft().result()
    while waiting:
        yield waiting.popleft().result()


@contextmanager
def _submitting(where: Place) -> Iterator[tuple[Submit, int]]:
    """Yield a function that submits a call and returns its future, and the number of workers."""
    if where.engine == "here":
        yield _now, 1
    elif where.engine == "processes":
        workers = int(where.detail or cores())
        with _processes(workers) as pool:
            yield pool.submit, workers
    else:
        from lib_dlhpc.scale_out.dask_cluster import client

        with client(where.detail) as (submit, workers):
            yield submit, workers


def _now(function: Callable[..., Arrays], *arguments: Any) -> "Future[Arrays]":
    done: Future[Arrays] = Future()
    done.set_result(function(*arguments))
    return done


@contextmanager
def _processes(workers: int) -> Iterator[ProcessPoolExecutor]:
    context, others = multiprocessing.get_context("spawn"), multiprocessing.active_children()
    pool = ProcessPoolExecutor(workers, context, initializer=end_with_parent)
    try:
        yield pool
    except BrokenProcessPool:
        raise LostError("A worker process ended before its chunk was done; run it again.") from None
    except BaseException:
        for worker in set(multiprocessing.active_children()) - set(others):
            worker.kill()  # what it writes to is removed next
            worker.join()
        raise
    finally:
        pool.shutdown(wait=False, cancel_futures=True)


def end_with_parent() -> None:
    """End this worker when its parent ends, however; Ctrl-C is for the parent, which then ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = multiprocessing.parent_process()
    assert parent is not None

    def watch() -> None:
        parent.join()
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()
