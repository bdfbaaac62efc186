"""Versions: the snapshots of a run in a store, written while training goes on.

A version holds the arrays that snapshot.npz would, whole tensors in the order of the unsplit network, so any
number of ranks takes up what any other has saved; and the experiment, as text. Rank 0 writes.
"""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from math import inf
from pathlib import Path
from typing import Any

import numpy as np

from lib_dlhpc.spec.experiment import Experiment, dumps
from lib_dlhpc.storage.snapshots import Saving, SnapshotStore, Stream, Version
from lib_dlhpc.storage.snapshots.plan import EXPERIMENT, Plan, read_plan
from lib_dlhpc.training.layers.kept import Array, Tensors
from lib_dlhpc.training.record import Recorder

ROOM = 64 * 1024 * 1024  # B of the copy, where no rank has memory for the whole state


class Versions:
    """A run's store, as all its ranks know it."""

    def __init__(self, plan: Plan, folder: Path, comm: Any, text: str, room: float) -> None:
        self.plan, self.rank = plan, comm.rank
        self.store = SnapshotStore(plan.where(folder), room)
        self.text = np.frombuffer(text.encode(), np.uint8)
        self.newest: Version | None = self.store.newest(plan.branch) if comm.rank == 0 else None
        self._going: tuple[Saving, float] | None = None

    def due(self, step: int, epoch_ends: bool, run_ends: bool) -> bool:
        """Return whether a version is to be saved after `step` steps; all ranks say the same."""
        return run_ends or (step % self.plan.every == 0 if self.plan.every else epoch_ends)

    def save(
        self,
        arrays: Mapping[str, Array] | Iterable[Stream],
        step: int,
        metrics: Mapping[str, Any],
        recorder: Recorder,
    ) -> None:
        """Save a version; all ranks call this. Rank 0 copies and goes on; streams may need all ranks."""
        self.settle(recorder)
        if self.rank:
            if not isinstance(arrays, Mapping):
                for stream in arrays:
                    for _ in stream.arrays:
                        pass
            return
        if isinstance(arrays, Mapping):
            arrays = {**arrays, EXPERIMENT: self.text}
        else:
            arrays = _and(arrays, Stream(EXPERIMENT, self.text.shape, np.uint8, [self.text]))
        begin = recorder.now()
        saving = self.store.save_async(arrays, step=step, metrics=metrics, branch=self.plan.branch)
        self._going = saving, begin

    def settle(self, recorder: Recorder) -> None:
        """Wait for the version that is on its way, and take down how long it took. Raises what went wrong."""
        if self._going is not None:
            (saving, begin), self._going = self._going, None
            saving.wait()
            end = begin + saving.ended - saving.begun
            recorder.add("checkpoint", "write a checkpoint", begin, end, "checkpoint")

    def load(self) -> Tensors:
        """Return the arrays of the newest version; none if there is no version. Rank 0 calls this."""
        found = self.store.load(self.newest) if self.newest else {}
        found.pop(EXPERIMENT, None)
        return found


@contextmanager
def versions_of(
    folder: Path | None, comm: Any, experiment: Experiment, room: float = inf
) -> Iterator[Versions | None]:
    """Give the versions of a run folder, None if it has a snapshot.npz instead; all is published at the end."""
    plan = read_plan(folder) if folder is not None else None
    if folder is None or plan is None:
        yield None
        return
    versions = Versions(plan, folder, comm, dumps(experiment), room)
    with versions.store:
        yield versions


def _and(streams: Iterable[Stream], last: Stream) -> Iterator[Stream]:
    yield from streams
    yield last
