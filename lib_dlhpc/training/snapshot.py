"""Checkpoint of a run in one file, written atomically.

A snapshot holds the weights, the running statistics, the optimizer state and the position in the run:
all that the next step depends on. Random numbers need no state, as they are drawn from the seed,
the epoch and the step. State that is replicated is stored once, state that is local to each rank (its
running statistics; with local updates its weights) as one row a rank. The file is written under a temporary
name, flushed to the disk and renamed.
"""

import os
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import numpy as np

from lib_dlhpc.errors import SpecError
from lib_dlhpc.layers.base.saved import Array, Tensors
from lib_dlhpc.lifetime.files import replacing
from lib_dlhpc.spec.experiment import Experiment
from lib_dlhpc.spec.unpack import check_npz
from lib_dlhpc.training.network import Network
from lib_dlhpc.training.optimizers import Optimizer

if TYPE_CHECKING:
    from lib_dlhpc.training.versions import Versions

FILE = "snapshot.npz"
OWN = "own."  # prefix of the names of local state


@dataclass
class Place:
    """Position in a run: the next step, and its epoch and global batch."""

    step: int = 0
    epoch: int = 0
    batch: int = 0


def save(
    folder: Path,
    comm: Any,
    experiment: Experiment,
    network: Network,
    optimizer: Optimizer,
    place: Place,
) -> None:
    """Write the snapshot of a run folder; all ranks call this and wait until it is done.

    Concurrent readers see the complete previous file.
    """
    arrays = gathered(comm, experiment, network, optimizer, place)
    if comm.rank == 0:
        _write(folder / FILE, arrays)
    comm.Barrier()


def gathered(
    comm: Any, experiment: Experiment, network: Network, optimizer: Optimizer, place: Place
) -> Tensors:
    """Return on rank 0 all arrays of a snapshot, none elsewhere; all ranks call this."""
    alike, sharded = state_of(experiment, network, optimizer)
    parts = comm.gather(sharded) if sharded else [{}]
    if comm.rank:
        return {}
    where = np.array([place.step, place.epoch, place.batch, optimizer.updates])
    rows = {OWN + name: np.stack([part[name] for part in parts]) for name in sharded}
    return {"place": where, **alike, **rows}


def restore(
    folder: Path,
    comm: Any,
    network: Network,
    optimizer: Optimizer,
    versions: "Versions | None" = None,
) -> Place:
    """Restore the snapshot of a run folder, if there is one. All ranks call this, and rank 0 reads.

    versions: the newest is restored, if there is one. If the snapshot is of another number of ranks, each starts
    with the mean of the local state. Raises SpecError if it cannot be read, or belongs to another model.
    """
    stored = None
    if comm.rank == 0:
        stored = (versions.load() if versions else {}) or read_file(folder / FILE)
    stored = comm.bcast(stored) if comm.size > 1 else stored
    if not stored:
        return Place()
    step, epoch, batch, optimizer.updates = (int(number) for number in stored.pop("place"))
    state = {
        name.removeprefix(OWN): row_of(array, comm) if name.startswith(OWN) else array
        for name, array in stored.items()
    }
    _take_up(network.weights, state.pop("weights", None), "weights")
    none = np.empty(0, network.dtype)
    _take_up(network.statistics, state.pop("statistics", none), "statistics")
    for name, array in state.items():
        _take_up(optimizer.memory(name, network), array, name)
    return Place(step, epoch, batch)


def state_of(
    experiment: Experiment, network: Network, optimizer: Optimizer
) -> tuple[Tensors, Tensors]:
    """Return all arrays that the next step depends on: replicated ones, and this rank's local ones."""
    moving = {"weights": network.weights, **optimizer.state}
    seen = {"statistics": network.statistics} if network.statistics.size else {}
    if experiment.strategy.update == "local":
        return {}, moving | seen
    if experiment.compressed:  # unsent gradients are local
        return {"weights": network.weights}, optimizer.state | seen
    if experiment.training.normalization == "local":
        return moving, seen
    return moving | seen, {}


def _take_up(target: Array, array: Array | None, name: str) -> None:
    check_array(array, target.shape, target.dtype, name)
    target[...] = array


def check_array(array: Any, shape: tuple[int, ...], dtype: Any, name: str) -> None:
    """Raise SpecError unless an array of the file, or None, has this shape and type."""
    if array is None or array.shape != shape or array.dtype != dtype:
        actual = "none" if array is None else f"{array.size} of {array.dtype}"
        raise SpecError(f"the snapshot: {name}: {actual}; the model has {shape[0]} of {dtype}.")


def row_of(every: Array, comm: Any) -> Array:
    """Return this rank's local state; if the number of ranks changed, the mean."""
    return every[comm.rank] if len(every) == comm.size else every.mean(axis=0, dtype=every.dtype)


def _write(path: Path, arrays: dict[str, Any]) -> None:
    with written_whole(path) as file:
        np.savez(file, **arrays)


@contextmanager
def written_whole(path: Path) -> Iterator[IO[bytes]]:
    """Yield a file that replaces `path` when complete; after a failure nothing is left behind."""
    with replacing(path) as temporary, open(temporary, "wb") as file:
        yield file
        file.flush()
        os.fsync(file.fileno())


def read_file(path: Path) -> Tensors:
    """Return the arrays of a snapshot file. Raises SpecError if it cannot be read."""
    try:
        check_npz(path)
        with np.load(path) as file:
            stored = {name: file[name] for name in file.files}
    except FileNotFoundError:
        return {}
    except (OSError, EOFError, ValueError, zipfile.BadZipFile, zlib.error) as error:
        raise SpecError(f"{path}: not a readable snapshot: {error}.") from None
    if "place" not in stored:
        raise SpecError(f"{path}: not a readable snapshot: it has no entry 'place'.")
    return stored
