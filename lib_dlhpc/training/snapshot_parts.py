"""Snapshot of a sharded network, written and read one full tensor at a time.

The format is that of snapshot.py: full tensors in the order of the unpartitioned network. So any layout can restore
what any other has saved, and no rank ever holds more than one full tensor.
"""

import zipfile
import zlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import chain
from math import prod
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.lib import format as npy

from lib_dlhpc.errors import SpecError
from lib_dlhpc.layers.base.saved import Array, Tensors
from lib_dlhpc.layers.base.slices import part_of, put_part
from lib_dlhpc.spec.experiment import Experiment
from lib_dlhpc.spec.unpack import check_npz, npy_header
from lib_dlhpc.storage.snapshots import SnapshotStore, Stream, Version
from lib_dlhpc.training.full_tensors import (
    Piece,
    assemble,
    size_of,
    statistic_places,
    view,
    weight_places,
)
from lib_dlhpc.training.groups import Groups
from lib_dlhpc.training.optimizers import MEMORIES
from lib_dlhpc.training.snapshot import FILE, OWN, Place, check_array, row_of, written_whole
from lib_dlhpc.training.stage import Stage
from lib_dlhpc.training.versions import Versions

STATISTICS = "statistics"
PIECE = 1024 * 1024  # bytes of one read


class ArraySpec(NamedTuple):
    """Shape and type of an array that has not been read."""

    shape: tuple[int, ...]
    dtype: Any

    @property
    def size(self) -> int:
        """Return the number of elements."""
        return prod(self.shape)


def save_stages(
    folder: Path, experiment: Experiment, groups: Groups, stages: Sequence[Stage], place: Place
) -> None:
    """Write the snapshot of a run folder; all ranks call this and wait until it is done."""
    streams = whole_arrays(experiment, groups, stages, place)
    if groups.world.rank == 0:
        write_archive(folder / FILE, streams)
    else:
        for stream in streams:
            for _ in stream.arrays:
                pass
    groups.world.Barrier()


def whole_arrays(
    experiment: Experiment, groups: Groups, stages: Sequence[Stage], place: Place
) -> Iterator[Stream]:
    """Yield the arrays of a snapshot, the large ones one full tensor at a time.

    All ranks must consume all of it; on ranks other than 0 the tensors are empty.
    """
    weights, dtype = weight_places(experiment.model), stages[0].network.dtype
    where = np.array([place.step, place.epoch, place.batch, stages[0].optimizer.updates])
    yield Stream("place", where.shape, where.dtype, [where])
    seen = [piece for stage in stages for piece in stage.statistics()]
    gathered = groups.world.gather((groups.place.data, seen))
    if gathered is not None:
        for name, array in _statistics(experiment, gathered, groups.data.size, dtype).items():
            yield Stream(name, array.shape, dtype, [array])
    for name in ("weights", *MEMORIES[experiment.strategy.optimizer]):
        tensors = (
            _whole(groups, stages, name, tensor_of, place.shape)
            for tensor_of, place in weights.items()
        )
        yield Stream(name, (size_of(weights),), dtype, tensors)


def write_archive(path: Path, streams: Iterable[Stream]) -> None:
    """Write arrays as numpy.savez would, atomically. Raises OSError."""
    with written_whole(path) as file, zipfile.ZipFile(file, "w", allowZip64=True) as archive:
        for stream in streams:
            _write(archive, stream)


def restore_stages(
    folder: Path,
    experiment: Experiment,
    groups: Groups,
    stages: Sequence[Stage],
    versions: Versions | None = None,
) -> Place:
    """Restore the snapshot of a run folder, if there is one. All ranks call this, and rank 0 reads.

    versions: the newest is restored, if there is one. Raises SpecError if the snapshot cannot be read, or
    belongs to another model.
    """
    world, model, dtype = groups.world, experiment.model, stages[0].network.dtype
    weights, statistics = weight_places(model), statistic_places(model)
    with opened(folder / FILE if world.rank == 0 else None, versions) as source:
        small, arrays = world.bcast(shapes_in(source))
        if "place" not in small:
            return Place()
        check_array(arrays.get("weights"), (size_of(weights),), dtype, "weights")
        seen = small.get(STATISTICS, np.empty(0, dtype))
        if OWN + STATISTICS in small:
            seen = row_of(small[OWN + STATISTICS], groups.data)
        check_array(seen, (size_of(statistics),), dtype, STATISTICS)
        for name in ("weights", *MEMORIES[experiment.strategy.optimizer]):
            if name not in arrays:
                continue  # saved with another optimizer: this state starts at zero
            check_array(arrays[name], (size_of(weights),), dtype, name)
            values = _read(source, name, [prod(weight.shape) for weight in weights.values()], dtype)
            for (tensor, place), flat in zip(weights.items(), values, strict=True):
                world.Bcast(flat)
                for stage in stages:
                    stage.load_tensor(name, tensor, flat.reshape(place.shape))
    step, epoch, batch, updates = (int(number) for number in small["place"])
    for stage in stages:
        stage.optimizer.updates = updates
        for piece in stage.statistics():
            piece.values[...] = part_of(view(seen, statistics[piece.name]), piece.part)
    return Place(step, epoch, batch)


def _whole(
    groups: Groups, stages: Sequence[Stage], array: str, tensor: str, shape: tuple[int, ...]
) -> Array:
    """Return one full tensor on rank 0; all ranks call this."""
    gathered = groups.world.gather([p for stage in stages for p in stage.pieces(array, tensor)])
    whole = np.empty(shape if gathered else 0, stages[0].network.dtype)
    for piece in chain(*(gathered or [])):
        put_part(whole, piece.part, piece.values)
    return whole


def _statistics(
    experiment: Experiment, gathered: list[tuple[int, list[Piece]]], replicas: int, dtype: Any
) -> Tensors:
    """Return the running statistics: once, or one row a replica where they are local."""
    places = statistic_places(experiment.model)
    if not places:
        return {}
    rows = [
        assemble(places, chain(*(pieces for data, pieces in gathered if data == row)), dtype)
        for row in range(replicas)
    ]
    if experiment.training.normalization == "local":
        return {OWN + STATISTICS: np.stack(rows)}
    return {STATISTICS: rows[0]}


def _write(archive: zipfile.ZipFile, stream: Stream) -> None:
    """Write arrays, concatenated, as one .npy entry."""
    descr = npy.dtype_to_descr(np.dtype(stream.dtype))
    about = {"descr": descr, "fortran_order": False, "shape": stream.shape}
    with archive.open(f"{stream.name}.npy", "w", force_zip64=True) as file:
        npy.write_array_header_1_0(file, about)
        for array in stream.arrays:
            file.write(np.ascontiguousarray(array).data)


class Source(Protocol):
    """Where a snapshot is read from."""

    def like(self) -> dict[str, ArraySpec]:
        """Return the shape and type of each array."""

    def chunks(self, name: str) -> Iterator[bytes]:
        """Yield the bytes of an array."""


@dataclass
class Archive:
    """The file of numpy.savez."""

    file: zipfile.ZipFile

    def like(self) -> dict[str, ArraySpec]:
        specs = {}
        for entry in self.file.namelist():
            with self.file.open(entry) as file:
                specs[entry.removesuffix(".npy")] = ArraySpec(*npy_header(file))
        return specs

    def chunks(self, name: str) -> Iterator[bytes]:
        with self.file.open(f"{name}.npy") as file:
            npy_header(file)
            while data := file.read(PIECE):
                yield data


@dataclass
class NewestVersion:
    """The newest version of a run."""

    store: SnapshotStore
    version: Version

    def like(self) -> dict[str, ArraySpec]:
        arrays = self.version.arrays.items()
        return {name: ArraySpec(array.shape, np.dtype(array.dtype)) for name, array in arrays}

    def chunks(self, name: str) -> Iterator[bytes]:
        return self.store.chunks(self.version, name)


@contextmanager
def opened(path: Path | None, versions: Versions | None) -> Iterator[Source | None]:
    """Yield the newest version, or else the file, if there is one. Raises SpecError where it cannot be read."""
    if versions and versions.newest:
        yield NewestVersion(versions.store, versions.newest)
        return
    try:
        with ExitStack() as stack:
            if path is None or not path.exists():
                yield None
            else:
                check_npz(path)
                yield Archive(stack.enter_context(zipfile.ZipFile(path)))
    except (OSError, EOFError, ValueError, zipfile.BadZipFile, zlib.error) as error:
        if isinstance(error, SpecError):
            raise
        raise SpecError(f"{path}: not a readable snapshot: {error}.") from None


def shapes_in(source: Source | None) -> tuple[Tensors, dict[str, ArraySpec]]:
    """Return the small arrays of a snapshot, and the shape and type of all."""
    if source is None:
        return {}, {}
    specs = source.like()
    small = {
        name: np.frombuffer(b"".join(source.chunks(name)), specs[name].dtype).reshape(
            specs[name].shape
        )
        for name in ("place", STATISTICS, OWN + STATISTICS)
        if name in specs
    }
    if "place" not in small:
        raise ValueError("it has no entry 'place'")
    return small, specs


def _read(source: Source | None, name: str, sizes: Iterable[int], dtype: Any) -> Iterator[Array]:
    """Yield one of the arrays in pieces; without a source, uninitialized arrays."""
    chunks = source.chunks(name) if source is not None else iter(())
    left = memoryview(b"")
    for size in sizes:
        flat = np.empty(size, dtype)
        target, start = flat.view(np.uint8), 0
        while source is not None and start < flat.nbytes:
            left = left or memoryview(next(chunks, b""))
            if not left:
                raise ValueError(f"{name} is truncated")
            count = min(len(left), flat.nbytes - start)
            target[start : start + count] = np.frombuffer(left[:count], np.uint8)
            left, start = left[count:], start + count
        yield flat
