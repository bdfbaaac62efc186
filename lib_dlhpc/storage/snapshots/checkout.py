"""A version becomes a run folder: on a branch of the same store, or with a snapshot.npz of its own."""

from pathlib import Path

import numpy as np

from lib_dlhpc.storage.snapshots.files import SnapshotError, written_whole
from lib_dlhpc.storage.snapshots.plan import EXPERIMENT, Plan, begin_branch, experiment_text
from lib_dlhpc.storage.snapshots.store import SnapshotStore
from lib_dlhpc.storage.snapshots.version import Version


def begin_run(folder: Path, store: SnapshotStore, version: Version, every: int) -> Plan:
    """Make a run folder that begins at a version, on a branch in the same store. Raises SnapshotError."""
    text = _new(folder, store, version)
    plan = begin_branch(folder, store, version, every)
    _write(folder, text)
    return plan


def write_out(folder: Path, store: SnapshotStore, version: Version) -> None:
    """Make a run folder with a version as its snapshot.npz, which needs no store. Raises SnapshotError."""
    arrays = store.load(version)
    text = _new(folder, store, version)
    arrays.pop(EXPERIMENT, None)
    try:
        with written_whole(folder / "snapshot.npz") as file:
            np.savez(file, **arrays)  # type: ignore[arg-type]
    except OSError as error:
        raise SnapshotError(f"{folder}: {error.strerror}.") from None
    _write(folder, text)


def _new(folder: Path, store: SnapshotStore, version: Version) -> str:
    """Return the text of a version's experiment; the folder is there, and holds no run."""
    text = experiment_text(store, version)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        held = sorted(path.name for path in folder.iterdir())
    except OSError as error:
        raise SnapshotError(f"{folder}: {error.strerror}.") from None
    if held:
        raise SnapshotError(f"{folder}: is not empty: it holds {held[0]}; name another folder.")
    return text


def _write(folder: Path, text: str) -> None:
    """Last, for it makes the folder a run's."""
    if text:
        with written_whole(folder / "experiment.toml") as file:
            file.write(text.encode())
