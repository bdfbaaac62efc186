"""The snapshot of a network of which each rank has parts, written and read one whole tensor at a time.

The file is the one of snapshot.py: whole tensors in the order of the unsplit network. So any layout takes
up what any other has saved, and nobody ever holds more than one whole tensor.
"""

import zipfile
import zlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from itertools import chain
from math import prod
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np
from numpy.lib import format as npy

from lib_dlhpc.spec.errors import SpecError
from lib_dlhpc.spec.experiment import Experiment
from lib_dlhpc.train.groups import Groups
from lib_dlhpc.train.layers.kept import Array, Tensors
from lib_dlhpc.train.layers.slices import part_of, put_part
from lib_dlhpc.train.optimizers import MEMORIES
from lib_dlhpc.train.snapshot import FILE, OWN, Place, check_array, row_of, written_whole
from lib_dlhpc.train.stage import Stage
from lib_dlhpc.train.whole import (
    Piece,
    put_together,
    size_of,
    statistic_places,
    view,
    weight_places,
)

STATISTICS = "statistics"


class Like(NamedTuple):
    """What is known of an array that has not been read."""

    shape: tuple[int, ...]
    dtype: Any

    @property
    def size(self) -> int:
        """Return how many elements it has."""
        return prod(self.shape)


def save_stages(
    folder: Path, experiment: Experiment, groups: Groups, stages: Sequence[Stage], place: Place
) -> None:
    """Write the snapshot of a run folder; all ranks call this and wait until it is done."""
    weights, dtype = weight_places(experiment.model), stages[0].network.dtype
    updates = stages[0].optimizer.updates
    with ExitStack() as stack:
        archive = None
        if groups.world.rank == 0:
            file = stack.enter_context(written_whole(folder / FILE))
            archive = stack.enter_context(zipfile.ZipFile(file, "w", allowZip64=True))
            where = np.array([place.step, place.epoch, place.batch, updates])
            _write(archive, "place", where.shape, where.dtype, [where])
        seen = [piece for stage in stages for piece in stage.statistics()]
        found = groups.world.gather((groups.place.data, seen))
        if archive is not None:
            for name, array in _statistics(experiment, found, groups.data.size, dtype).items():
                _write(archive, name, array.shape, dtype, [array])
        for name in ("weights", *MEMORIES[experiment.strategy.optimizer]):
            tensors = (_whole(groups, stages, name, each, at.shape) for each, at in weights.items())
            if archive is not None:
                _write(archive, name, (size_of(weights),), dtype, tensors)
            else:
                for _ in tensors:
                    pass
    groups.world.Barrier()


def restore_stages(
    folder: Path, experiment: Experiment, groups: Groups, stages: Sequence[Stage]
) -> Place:
    """Take up the snapshot of a run folder; without one, the start. All ranks call this, and rank 0 reads.

    Raises SpecError if the file cannot be read, or is another model's.
    """
    world, model, dtype = groups.world, experiment.model, stages[0].network.dtype
    weights, statistics = weight_places(model), statistic_places(model)
    with _opened(folder / FILE if world.rank == 0 else None) as archive:
        small, arrays = world.bcast(_about(archive))
        if "place" not in small:
            return Place()
        check_array(arrays.get("weights"), (size_of(weights),), dtype, "weights")
        seen = small.get(STATISTICS, np.empty(0, dtype))
        if OWN + STATISTICS in small:
            seen = row_of(small[OWN + STATISTICS], groups.data)
        check_array(seen, (size_of(statistics),), dtype, STATISTICS)
        for name in ("weights", *MEMORIES[experiment.strategy.optimizer]):
            if name not in arrays:
                continue  # of another rule: its memory starts as zeros
            check_array(arrays[name], (size_of(weights),), dtype, name)
            values = _read(archive, name, [prod(at.shape) for at in weights.values()], dtype)
            for (tensor, at), flat in zip(weights.items(), values, strict=True):
                world.Bcast(flat)
                for stage in stages:
                    stage.take_up(name, tensor, flat.reshape(at.shape))
    step, epoch, batch, updates = (int(number) for number in small["place"])
    for stage in stages:
        stage.spread()
        stage.optimizer.updates = updates
        for piece in stage.statistics():
            piece.values[...] = part_of(view(seen, statistics[piece.name]), piece.part)
    return Place(step, epoch, batch)


def _whole(
    groups: Groups, stages: Sequence[Stage], array: str, tensor: str, shape: tuple[int, ...]
) -> Array:
    """Return one whole tensor on rank 0; all ranks call this."""
    found = groups.world.gather([p for stage in stages for p in stage.pieces(array, tensor)])
    whole = np.empty(shape if found else 0, stages[0].network.dtype)
    for piece in chain(*(found or [])):
        put_part(whole, piece.part, piece.values)
    return whole


def _statistics(
    experiment: Experiment, found: list[tuple[int, list[Piece]]], replicas: int, dtype: Any
) -> Tensors:
    """Return the running statistics: once, or, where replicas have their own, a row a replica."""
    places = statistic_places(experiment.model)
    if not places:
        return {}
    rows = [
        put_together(places, chain(*(pieces for data, pieces in found if data == row)), dtype)
        for row in range(replicas)
    ]
    if experiment.training.normalisation == "local":
        return {OWN + STATISTICS: np.stack(rows)}
    return {STATISTICS: rows[0]}


def _write(
    archive: zipfile.ZipFile, name: str, shape: tuple[int, ...], dtype: Any, arrays: Iterable[Array]
) -> None:
    """Write arrays one behind the other as one of numpy's, as numpy.savez would."""
    about = {"descr": npy.dtype_to_descr(np.dtype(dtype)), "fortran_order": False, "shape": shape}
    with archive.open(f"{name}.npy", "w", force_zip64=True) as file:
        npy.write_array_header_1_0(file, about)
        for array in arrays:
            file.write(np.ascontiguousarray(array).data)


@contextmanager
def _opened(path: Path | None) -> Iterator[zipfile.ZipFile | None]:
    """Give the file, if there is one. Raises SpecError where it cannot be read."""
    try:
        with ExitStack() as stack:
            if path is None or not path.exists():
                yield None
            else:
                yield stack.enter_context(zipfile.ZipFile(path))
    except (OSError, EOFError, ValueError, zipfile.BadZipFile, zlib.error) as error:
        if isinstance(error, SpecError):
            raise
        raise SpecError(f"{path}: not a snapshot that can be read: {error}.") from None


def _about(archive: zipfile.ZipFile | None) -> tuple[Tensors, dict[str, Like]]:
    """Return the small arrays of the file, and the shape and type of the others."""
    small: Tensors = {}
    others: dict[str, Like] = {}
    if archive is None:
        return small, others
    for entry in archive.namelist():
        name = entry.removesuffix(".npy")
        with archive.open(entry) as file:
            if name in ("place", STATISTICS, OWN + STATISTICS):
                small[name] = npy.read_array(file)
            else:
                others[name] = Like(*_header(file))
    if "place" not in small:
        raise ValueError("it does not say where it is")
    return small, others


def _read(
    archive: zipfile.ZipFile | None, name: str, sizes: Iterable[int], dtype: Any
) -> Iterator[Array]:
    """Yield one of the arrays piece by piece; where there is no file, arrays to be filled in."""
    with ExitStack() as stack:
        file = stack.enter_context(archive.open(f"{name}.npy")) if archive is not None else None
        if file is not None:
            _header(file)
        for size in sizes:
            flat = np.empty(size, dtype)
            if file is not None:
                data = file.read(flat.nbytes)
                flat[...] = np.frombuffer(data, dtype, size)
            yield flat


def _header(file: IO[bytes]) -> tuple[tuple[int, ...], Any]:
    """Read on to the numbers of an array; return its shape and type."""
    version = npy.read_magic(file)
    read = npy.read_array_header_1_0 if version == (1, 0) else npy.read_array_header_2_0
    shape, _, dtype = read(file)
    return shape, dtype
