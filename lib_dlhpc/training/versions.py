"""Versions: checkpoints of a run in a store, written asynchronously during training.

A version holds the arrays of snapshot.npz, full tensors in the order of the unpartitioned network, so any number of
ranks can restore what any other has saved; and the experiment, as text. Rank 0 writes.
"""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from math import inf
from pathlib import Path
from typing import Any

import numpy as np

from lib_dlhpc.layers.base.saved import Array, Tensors
from lib_dlhpc.spec.experiment import Experiment, dumps
from lib_dlhpc.storage.snapshots import Saving, SnapshotStore, Stream, Version
from lib_dlhpc.storage.snapshots.plan import EXPERIMENT, Plan, read_plan
from lib_dlhpc.training.record import Recorder

ROOM = 64 * 1024 * 1024  # B of the staging buffer, where no rank has memory for the full state


class Versions:
    """A run's checkpoint store, on all its ranks."""

    def __init__(self, plan: Plan, folder: Path, comm: Any, text: str, room: float) -> None:
        self.plan, self.rank = plan, comm.rank
        self.store = SnapshotStore(plan.where(folder), room)
        self.text = np.frombuffer(text.encode(), np.uint8)
        self.newest: Version | None = self.store.newest(plan.branch) if comm.rank == 0 else None
        self._going: tuple[Saving, float] | None = None

    def due(self, step: int, epoch_ends: bool, run_ends: bool) -> bool:
        """Return whether a version is to be saved after `step` steps; the same on all ranks."""
        return run_ends or (step % self.plan.every == 0 if self.plan.every else epoch_ends)

    def save(
        self,
        arrays: Mapping[str, Array] | Iterable[Stream],
        step: int,
        metrics: Mapping[str, Any],
        recorder: Recorder,
    ) -> None:
        """Save a version; all ranks call this. Rank 0 copies and continues; streams may need all ranks."""
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
        """Wait for the version in flight and record its duration. Raises the errors of the write."""
        if self._going is not None:
            (saving, begin), self._going = self._going, None
            saving.wait()
            end = begin + saving.ended - saving.begun
            recorder.add("checkpoint", "write a checkpoint", begin, end, "checkpoint")

    def load(self) -> Tensors:
        """Return the arrays of the newest version; none if there is no version. Rank 0 calls this."""
        arrays = self.store.load(self.newest) if self.newest else {}
        arrays.pop(EXPERIMENT, None)
        return arrays


@contextmanager
def versions_of(
    folder: Path | None, comm: Any, experiment: Experiment, room: float = inf
) -> Iterator[Versions | None]:
    """Yield the versions of a run folder, None if it uses snapshot.npz; all are published at the end."""
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
