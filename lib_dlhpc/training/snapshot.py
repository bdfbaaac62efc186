"""The state of a run in one file, written whole or not at all.

A snapshot holds the weights, the running statistics, the memories of the optimiser and where the run is:
all that the next step depends on. Random numbers need no place in it, as they are drawn from the seed,
the epoch and the step. What is alike on all ranks is kept once, what each rank has for itself (its
running statistics; with local updates its weights) a row a rank. It is written under another name,
flushed to the disk and renamed.
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

from lib_dlhpc.lifetime.files import replacing
from lib_dlhpc.spec.errors import SpecError
from lib_dlhpc.spec.experiment import Experiment
from lib_dlhpc.spec.unpack import check_npz
from lib_dlhpc.training.layers.kept import Array, Tensors
from lib_dlhpc.training.network import Network
from lib_dlhpc.training.optimizers import Optimizer

if TYPE_CHECKING:
    from lib_dlhpc.training.versions import Versions

FILE = "snapshot.npz"
OWN = "own."  # before the names of what each rank has for itself


@dataclass
class Place:
    """Where a run is: the next step, and which global batch of which epoch it takes."""

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

    Whoever reads the file meanwhile sees the one before, whole.
    """
    arrays = gathered(comm, experiment, network, optimizer, place)
    if comm.rank == 0:
        _write(folder / FILE, arrays)
    comm.Barrier()


def gathered(
    comm: Any, experiment: Experiment, network: Network, optimizer: Optimizer, place: Place
) -> Tensors:
    """Return on rank 0 all arrays of a snapshot, none elsewhere; all ranks call this."""
    alike, own = state_of(experiment, network, optimizer)
    parts = comm.gather(own) if own else [{}]
    if comm.rank:
        return {}
    where = np.array([place.step, place.epoch, place.batch, optimizer.updates])
    rows = {OWN + name: np.stack([part[name] for part in parts]) for name in own}
    return {"place": where, **alike, **rows}


def restore(
    folder: Path,
    comm: Any,
    network: Network,
    optimizer: Optimizer,
    versions: "Versions | None" = None,
) -> Place:
    """Take up the snapshot of a run folder; without one, the start. All ranks call this, and rank 0 reads.

    versions: of which the newest is taken up, if there is one. If the snapshot is of another number of
    ranks, each begins with the mean of what they had for themselves. Raises SpecError if it cannot be
    read, or is another model's.
    """
    stored = None
    if comm.rank == 0:
        stored = (versions.load() if versions else {}) or _read(folder / FILE)
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
    """Return all arrays that the next step depends on: those alike on all ranks, and this rank's own."""
    moving = {"weights": network.weights, **optimizer.state}
    seen = {"statistics": network.statistics} if network.statistics.size else {}
    if experiment.strategy.update == "local":
        return {}, moving | seen
    if experiment.training.sparsity:  # what a rank has not sent yet is its own
        return {"weights": network.weights}, optimizer.state | seen
    if experiment.training.normalisation == "local":
        return moving, seen
    return moving | seen, {}


def _take_up(target: Array, array: Array | None, name: str) -> None:
    check_array(array, target.shape, target.dtype, name)
    target[...] = array


def check_array(array: Any, shape: tuple[int, ...], dtype: Any, name: str) -> None:
    """Raise SpecError unless an array of the file, or None, has this shape and type."""
    if array is None or array.shape != shape or array.dtype != dtype:
        found = "none" if array is None else f"{array.size} of {array.dtype}"
        raise SpecError(f"the snapshot: {name}: {found}; the model has {shape[0]} of {dtype}.")


def row_of(every: Array, comm: Any) -> Array:
    """Return what this rank has had for itself, or, of other ranks, the mean."""
    return every[comm.rank] if len(every) == comm.size else every.mean(axis=0, dtype=every.dtype)


def _write(path: Path, arrays: dict[str, Any]) -> None:
    with written_whole(path) as file:
        np.savez(file, **arrays)


@contextmanager
def written_whole(path: Path) -> Iterator[IO[bytes]]:
    """Give a file that takes the place of `path` when all is written; of a failure nothing is left."""
    with replacing(path) as temporary, open(temporary, "wb") as file:
        yield file
        file.flush()
        os.fsync(file.fileno())


def _read(path: Path) -> Tensors:
    try:
        check_npz(path)
        with np.load(path) as file:
            stored = {name: file[name] for name in file.files}
    except FileNotFoundError:
        return {}
    except (OSError, EOFError, ValueError, zipfile.BadZipFile, zlib.error) as error:
        raise SpecError(f"{path}: not a snapshot that can be read: {error}.") from None
    if "place" not in stored:
        raise SpecError(f"{path}: not a snapshot that can be read: it does not say where it is.")
    return stored
