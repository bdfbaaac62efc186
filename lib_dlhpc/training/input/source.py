"""Source: what a rank reads of the data set on storage, and when; without a storage tier, samples are in memory."""

import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from time import perf_counter
from typing import Any

from lib_dlhpc.layers.base.saved import Array
from lib_dlhpc.lifetime import owned
from lib_dlhpc.spec.experiment import Experiment
from lib_dlhpc.training.input.readers import Readers
from lib_dlhpc.training.input.sample_files import opened, written
from lib_dlhpc.training.input.throttle import Throttle

FOLDER = "dataset"  # in the run folder, while the run lasts


@contextmanager
def readers_of(
    experiment: Experiment,
    comm: Any,
    x: Array,
    folder: Path | None,
    batches: Iterator[Array],
    reads: bool,
    clock: Callable[[], float] = perf_counter,
) -> Iterator[Readers | None]:
    """Write the training samples x as files, and yield this rank's readers; None where it reads none.

    All ranks call this, with the experiment on them. folder: the run folder, in which the files are until the run ends;
    if it is killed, a resumed run takes them up. batches: numbers of this rank's samples of each coming step. reads:
    whether this rank reads; ranks of a replica that do, read the same samples. clock: of the run, in s.
    """
    if not experiment.storage.tier:
        yield None
        return
    with ExitStack() as stack:
        place = _folder(comm, folder, stack) / FOLDER
        files = written(experiment, x, place) if comm.rank == 0 else None
        comm.Barrier()
        files = files or opened(experiment, x, place)
        stack.callback(files.close)
        throttle = Throttle(experiment, len(x), comm)
        stack.callback(throttle.close)
        storage, readers, replica = experiment.storage, None, int(experiment.strategy.replica)
        alike = max(comm.allreduce(int(reads)) * replica // comm.size, 1)
        if reads:
            number = int(storage.workers) * replica
            readers = Readers(files, throttle, batches, number, int(storage.prefetch), alike, clock)
            stack.callback(readers.close)
        yield readers
        comm.Barrier()  # all have read
        if comm.rank == 0:
            shutil.rmtree(place, ignore_errors=True)


def _folder(comm: Any, folder: Path | None, stack: ExitStack) -> Path:
    """Return the run folder; without one, a temporary folder that rank 0 makes."""
    if folder is None and comm.rank == 0:
        folder = stack.enter_context(owned.temporary_folder("dlhpc-input-"))
    return Path(comm.bcast(folder))
