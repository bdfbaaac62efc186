"""A learner's loader, run on real files: its batches, its requests, and their cost on the large run.

prepared(prepare, own)                   the target that a learner makes of the samples
run_loader(batches, own, target, run)    its batches, and the calls counted meanwhile
step_time(own, record)                   s of a step of the large run with such a loader
"""

import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from lib_dlhpc.labs.emulated.ranks import emulate
from lib_dlhpc.labs.mistakes import LabError
from lib_dlhpc.labs.repair_the_input.file_calls import Calls, Counts, counted
from lib_dlhpc.labs.repair_the_input.task import (
    EPOCHS,
    InputTask,
    Run,
    contents,
    decoded,
    experiment_of,
    make_folder,
    order,
)
from lib_dlhpc.prediction.storage.io import Reading, reading

PATIENCE = 2.0  # s in which the next batch has to be asked for
LONGEST = 20.0  # s of a whole run
Batches = list[list[np.ndarray]]


class LoaderRecord(NamedTuple):
    """What a loader yielded and requested."""

    batches: Batches
    counts: Counts  # of the whole run
    epoch: Counts  # of the second epoch
    samples: int  # of that
    decodes: int  # of the whole run
    ahead: int  # batches during which the next of the epoch was asked for
    chances: int  # batches that another of their epoch follows
    most: int  # files asked for and not yet given, at the most
    seconds: dict[str, float]  # by kind of call

    @property
    def given(self) -> int:
        """Samples of the whole run."""
        return sum(map(len, self.batches))


@contextmanager
def prepared(prepare: Callable[..., Any], own: InputTask) -> Iterator[Path]:
    """Yield the target that `prepare(folder, target)` makes of the learner's samples. Raises LabError."""
    with tempfile.TemporaryDirectory(prefix="dlhpc-lab-", ignore_cleanup_errors=True) as name:
        room = Path(name).resolve()
        make_folder(own, room / "samples")
        _ended(lambda: prepare(room / "samples", room / "target"))
        if not (room / "target").exists():
            raise LabError("prepare(folder, target) leaves nothing at `target`.")
        shutil.rmtree(room / "samples")  # so that no read falls back to it
        yield room / "target"


def run_loader(
    batches: Callable[..., Any], own: InputTask, target: Path, run: Run, patience: float = PATIENCE
) -> LoaderRecord:
    """Take all batches that a loader gives. patience: s in which the next one has to be asked for.

    Raises LabError where it stops, does not end, or gives what is none.
    """
    decodes: list[int] = []

    def decode(data: bytes) -> np.ndarray:
        decodes.append(1)
        return decoded(data)

    shown = run._replace(decode=decode)
    sizes = [
        min(run.batch, len(order(own, run, epoch)) - first)
        for epoch in range(run.epochs)
        for first in range(0, len(order(own, run, epoch)), run.batch)
    ]
    an_epoch = len(sizes) // run.epochs
    with counted(target.parent) as calls:
        taken = _ended(lambda: _take(batches(target, shown), calls, sizes, an_epoch, patience))
        counts, seconds = calls.now(), dict(calls.seconds)
    found, marks, ahead = taken
    if run.epochs > 1 and len(marks) == len(sizes):
        second = marks[2 * an_epoch - 1] - marks[an_epoch - 1]
        samples = sum(sizes[an_epoch : 2 * an_epoch])
    else:
        second, samples = counts, max(sum(map(len, found)), 1)
    chances = run.epochs * (an_epoch - 1)
    return LoaderRecord(
        found, counts, second, samples, len(decodes), ahead, chances, calls.most_ahead, seconds
    )


def _ended(program: Callable[[], Any]) -> Any:
    """Return what a learner's function gives. Raises LabError where it stops or does not end."""
    try:
        return emulate(1, lambda comm: program(), patience=LONGEST)[0]
    except LabError as error:
        words = str(error)
        mine = words.startswith("rank 0 ")
        raise LabError(f"It {words.removeprefix('rank 0 ')}" if mine else words) from error


def _take(
    made: Any, calls: Calls, sizes: list[int], an_epoch: int, patience: float
) -> tuple[Batches, list[Counts], int]:
    """Return the batches, what was counted when each came, and during how many the next was asked for."""
    found: Batches = []
    marks: list[Counts] = []
    ahead, waits = 0, True
    if not hasattr(made, "__iter__"):
        raise LabError(f"batches(target, run) returns {type(made).__name__}, which has no batches.")
    each = iter(made)
    try:
        for batch in each:
            if len(found) >= 4 * len(sizes):  # also what gives a rank the samples of all
                raise LabError(f"More than {len(found)} batches arrived: which loop never ends?")
            if not isinstance(batch, list | tuple) or not all(
                isinstance(one, np.ndarray) for one in batch
            ):
                raise LabError(
                    f"A batch is a list of results of run.decode; this one is "
                    f"{type(batch).__name__}."
                )
            found.append([one.copy() for one in batch])
            marks.append(calls.now())
            calls.delivered += len(batch)
            place = len(found)
            if place % an_epoch and marks[-1].files and place < len(sizes):
                asked = sum(sizes[: place + 1])
                waits = calls.wait_for(asked, patience if waits else 0.0)
                ahead += waits
    finally:
        if hasattr(each, "close"):
            each.close()
    return found, marks, ahead


def run_of(own: InputTask, rank: int = 0, ranks: int = 1, epochs: int = EPOCHS) -> Run:
    """Return what the loader of a rank is given."""
    return Run(epochs, own.batch, own.seed % 1000, rank, ranks, decoded)


def large_run(own: InputTask, record: LoaderRecord) -> Reading:
    """Return what input allows the large run with a loader that asks for what this one asked for."""
    operations = record.epoch.metadata / record.samples
    reads = record.epoch.calls["read"] / record.samples
    reads += record.counts.requests / max(record.given, 1)
    stored = sum(map(len, contents(own).values())) / own.samples
    asked = record.counts.stored / record.counts.files if record.counts.files else stored
    decode = own.decode * record.decodes / max(record.given, 1)
    return reading(experiment_of(own, operations, reads, own.sample * asked / stored, decode))


def step_time(own: InputTask, record: LoaderRecord) -> float:
    """Return the seconds of a step of the large run: reading hides behind computing where it is ahead."""
    compute, fetch = own.batch / own.speed, float(large_run(own, record).fetch)
    ahead = record.ahead / record.chances if record.chances else 0.0
    return ahead * max(compute, fetch) + (1 - ahead) * (compute + fetch)
