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
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from lib_dlhpc.spec.errors import SpecError
from lib_dlhpc.spec.experiment import Experiment
from lib_dlhpc.train.groups import Groups
from lib_dlhpc.train.layers.kept import Array, Tensors
from lib_dlhpc.train.layers.slices import part_of
from lib_dlhpc.train.network import Network
from lib_dlhpc.train.optimizers import Optimizer
from lib_dlhpc.train.stage import Stage
from lib_dlhpc.train.whole import (
    Piece,
    put_together,
    size_of,
    statistic_places,
    view,
    weight_places,
)

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
    alike, own = state_of(experiment, network, optimizer)
    parts = comm.gather(own) if own else [{}]
    if comm.rank == 0:
        where = np.array([place.step, place.epoch, place.batch, optimizer.updates])
        rows = {OWN + name: np.stack([part[name] for part in parts]) for name in own}
        _write(folder / FILE, {"place": where, **alike, **rows})
    comm.Barrier()


def restore(folder: Path, comm: Any, network: Network, optimizer: Optimizer) -> Place:
    """Take up the snapshot of a run folder; without one, the start. All ranks call this, and rank 0 reads.

    If it is of another number of ranks, each begins with the mean of what they had for themselves.
    Raises SpecError if the file cannot be read, or is another model's.
    """
    stored = _read(folder / FILE) if comm.rank == 0 else None
    stored = comm.bcast(stored) if comm.size > 1 else stored
    if not stored:
        return Place()
    step, epoch, batch, optimizer.updates = (int(number) for number in stored.pop("place"))
    state = {
        name.removeprefix(OWN): _row(array, comm) if name.startswith(OWN) else array
        for name, array in stored.items()
    }
    _take_up(network.weights, state.pop("weights", None), "weights")
    none = np.empty(0, network.dtype)
    _take_up(network.statistics, state.pop("statistics", none), "statistics")
    for name, array in state.items():
        _take_up(optimizer.memory(name, network), array, name)
    return Place(step, epoch, batch)


def save_stages(
    folder: Path, experiment: Experiment, groups: Groups, stages: Sequence[Stage], place: Place
) -> None:
    """Write the snapshot of a network that is shared out: whole tensors, as one rank would write them."""
    world, model, optimizer = groups.world, experiment.model, stages[0].optimizer
    places, dtype, arrays = weight_places(model), stages[0].network.dtype, {}
    for name in ("weights", *sorted(optimizer.state)):
        parts = world.gather([piece for stage in stages for piece in stage.pieces(name)])
        if world.rank == 0:
            arrays[name] = put_together(places, chain(*parts), dtype)
    seen = [piece for stage in stages for piece in stage.statistics()]
    parts = world.gather((groups.place.data, seen))
    if world.rank == 0:
        where = np.array([place.step, place.epoch, place.batch, optimizer.updates])
        arrays |= _statistics(experiment, parts, groups.data.size, dtype)
        _write(folder / FILE, {"place": where, **arrays})
    world.Barrier()


def restore_stages(
    folder: Path, experiment: Experiment, groups: Groups, stages: Sequence[Stage]
) -> Place:
    """Take up a snapshot, whatever the layout it was saved under; see `restore`."""
    world = groups.world
    stored = _read(folder / FILE) if world.rank == 0 else None
    stored = world.bcast(stored) if world.size > 1 else stored
    if not stored:
        return Place()
    step, epoch, batch, updates = (int(number) for number in stored.pop("place"))
    state = {
        name.removeprefix(OWN): _row(array, groups.data) if name.startswith(OWN) else array
        for name, array in stored.items()
    }
    dtype, model = stages[0].network.dtype, experiment.model
    weights, statistics = weight_places(model), statistic_places(model)
    _check(state.get("weights"), (size_of(weights),), dtype, "weights")
    seen = state.pop("statistics", np.empty(0, dtype))
    _check(seen, (size_of(statistics),), dtype, "statistics")
    for name, array in state.items():
        _check(array, (size_of(weights),), dtype, name)
        tensors = {each: view(array, at) for each, at in weights.items()}
        for stage in stages:
            stage.take_up(name, tensors.__getitem__)
    for stage in stages:
        stage.optimizer.updates = updates
        for piece in stage.statistics():
            piece.values[...] = part_of(view(seen, statistics[piece.name]), piece.part)
    return Place(step, epoch, batch)


def _statistics(
    experiment: Experiment, parts: list[tuple[int, list[Piece]]], replicas: int, dtype: Any
) -> Tensors:
    """Return the running statistics: once, or, where replicas have their own, a row a replica."""
    places = statistic_places(experiment.model)
    if not places:
        return {}
    rows = [
        put_together(places, chain(*(pieces for data, pieces in parts if data == row)), dtype)
        for row in range(replicas)
    ]
    if experiment.training.normalisation == "local":
        return {OWN + "statistics": np.stack(rows)}
    return {"statistics": rows[0]}


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
    _check(array, target.shape, target.dtype, name)
    target[...] = array


def _check(array: Array | None, shape: tuple[int, ...], dtype: Any, name: str) -> None:
    if array is None or array.shape != shape or array.dtype != dtype:
        found = "none" if array is None else f"{array.size} of {array.dtype}"
        raise SpecError(f"{FILE}: {name}: {found}; the model has {shape[0]} of {dtype}.")


def _row(every: Array, comm: Any) -> Array:
    return every[comm.rank] if len(every) == comm.size else every.mean(axis=0, dtype=every.dtype)


def _write(path: Path, arrays: dict[str, Any]) -> None:
    temporary = path.with_name(f".{path.name}.tmp")
    try:
        with open(temporary, "wb") as file:
            np.savez(file, **arrays)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except OSError as error:
        temporary.unlink(
            missing_ok=True
        )  # on a full disk there must be space to say what went wrong
        raise OSError(error.errno, error.strerror, str(path)) from None


def _read(path: Path) -> Tensors:
    try:
        with np.load(path) as file:
            stored = {name: file[name] for name in file.files}
    except FileNotFoundError:
        return {}
    except (OSError, EOFError, ValueError, zipfile.BadZipFile, zlib.error) as error:
        raise SpecError(f"{path}: not a snapshot that can be read: {error}.") from None
    if "place" not in stored:
        raise SpecError(f"{path}: not a snapshot that can be read: it does not say where it is.")
    return stored
