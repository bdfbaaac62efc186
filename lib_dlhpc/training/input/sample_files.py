"""The training samples as files: written once, each read verified.

A record is a checksum, the sample's number, its numbers as they are in memory, and filler up to the stored bytes that
[dataset] and [storage] give a sample. Records are a file each, several in a file where [dataset] has fewer files than
samples, or files of a packed store (lib_dlhpc/storage). The folder gets its name when it is complete.
"""

import json
import os
import shutil
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path
from struct import Struct

import numpy as np

from lib_dlhpc.costs import storage_reads
from lib_dlhpc.errors import SpecError
from lib_dlhpc.layers.base.saved import Array
from lib_dlhpc.lifetime import owned
from lib_dlhpc.lifetime.files import naming, replacing
from lib_dlhpc.spec.experiment import Experiment
from lib_dlhpc.spec.units import format_quantity as show
from lib_dlhpc.storage import PackedStore, open_store, pack
from lib_dlhpc.storage.checksum import checksum

MOST_BYTES = 4e9  # that a run writes
MOST_FILES = 200_000
LAYOUT, PACKED = "layout.json", "packed"
_HEAD = Struct("<QQ")  # checksum of the rest of the record without filler; the sample's number
_FILLER = 1 << 20


@dataclass(frozen=True)
class Layout:
    """How samples lie in files. size: B of a record."""

    samples: int
    size: int
    files: int
    directories: int
    reads: int  # read() calls of a record
    packed: bool

    @property
    def bytes(self) -> int:
        """B of all records."""
        return self.samples * self.size

    def place(self, sample: int) -> tuple[str, int]:
        """Return the file of a sample, and the record's offset in it."""
        file = sample * self.files // self.samples
        first = -(-file * self.samples // self.files)
        return f"{file % self.directories:04d}/{file:07d}", (sample - first) * self.size


def layout_of(experiment: Experiment, sample_bytes: int = 0) -> Layout:
    """Return the layout of the training samples. sample_bytes: of the numbers of one, which a record holds at least.

    Raises SpecError for more bytes or files than a run writes.
    """
    dataset, storage = experiment.dataset, experiment.storage
    trained = int(dataset.trained)
    size = max(round(float(storage_reads.stored_bytes(experiment))), _HEAD.size + sample_bytes)
    packed = storage.format == "packed"
    files = min(max(-(-int(dataset.files) * trained // int(dataset.samples)), 1), trained)
    files = trained if packed else files
    directories = min(int(dataset.directories), files)
    reads = 1 if packed else max(round(float(storage.reads_per_file)), 1)
    layout = Layout(trained, size, files, directories, reads, packed)
    fewer = int(trained * min(MOST_BYTES / layout.bytes, MOST_FILES / files))
    if layout.bytes > MOST_BYTES or files > MOST_FILES:
        raise SpecError(
            f"dataset.bytes = {show(float(dataset.bytes), 'B')} in {int(dataset.samples):,} samples: a run that reads"
            f" storage.tier = {storage.tier!r} writes them as files first, {show(float(layout.bytes), 'B')} in"
            f" {files:,}; legal here: at most {show(MOST_BYTES, 'B')} in {MOST_FILES:,}. Scale the data set down, to"
            f" {fewer:,} training samples or fewer of as many bytes each (dataset.samples, dataset.bytes), or train"
            ' from memory: storage.tier = "".'
        )
    return layout


class SampleFiles:
    """The records of a folder; reads are verified and thread-safe."""

    def __init__(
        self, folder: Path, layout: Layout, shape: tuple[int, ...], dtype: np.dtype
    ) -> None:
        self.folder, self.layout, self._shape, self._dtype = folder, layout, shape, dtype
        self._bytes = int(np.prod(shape)) * dtype.itemsize
        self._store: PackedStore | None = open_store(folder / PACKED) if layout.packed else None

    def read(self, sample: int) -> Array:
        """Return a sample. Raises OSError naming its file where that is missing, cut off or damaged."""
        name, offset = self.layout.place(sample)
        record = self._store.read(name) if self._store else self._record(name, offset)
        path = self.folder / name
        if len(record) != self.layout.size:
            raise OSError(
                f"{path}: ends after {len(record)} B of a record of {self.layout.size} B."
            )
        payload = memoryview(record)[_HEAD.size : _HEAD.size + self._bytes]
        if _HEAD.unpack_from(record) != (checksum(payload), sample):
            raise OSError(f"{path}: the record of sample {sample} at {offset} B is damaged.")
        return np.frombuffer(payload, self._dtype).reshape(self._shape)

    def close(self) -> None:
        """Release the packed store."""
        if self._store:
            self._store.close()

    def _record(self, name: str, offset: int) -> bytes:
        path, size, reads = self.folder / name, self.layout.size, self.layout.reads
        os.stat(path)  # as a loader does that first asks for the size
        edges = [size * part // reads for part in range(reads + 1)]
        with open(path, "rb", buffering=0) as file:
            file.seek(offset)
            return b"".join(file.read(b - a) or b"" for a, b in pairwise(edges))


def written(experiment: Experiment, x: Array, folder: Path) -> SampleFiles:
    """Write the training samples into `folder`, unless they are there; return them.

    Killed in between, nothing of it is left. Raises SpecError where the disk has no room, OSError naming the folder.
    """
    layout = layout_of(experiment, x[0].nbytes)
    text = json.dumps(
        asdict(layout) | {"contents": checksum(np.ascontiguousarray(x).data.cast("B"))}
    )
    if not _is_there(folder, text):
        _check_room(layout, folder)
        with replacing(folder, guarded=True) as temporary:
            temporary.mkdir()
            if layout.packed:
                with owned.temporary_folder("samples-", temporary) as tree:
                    _write(layout, x, tree)
                    pack(tree, temporary / PACKED)
            else:
                _write(layout, x, temporary)
            (temporary / LAYOUT).write_text(text, encoding="utf-8")
    return opened(experiment, x, folder)


def opened(experiment: Experiment, x: Array, folder: Path) -> SampleFiles:
    """Return the samples that another rank has written into `folder`."""
    return SampleFiles(folder, layout_of(experiment, x[0].nbytes), x.shape[1:], x.dtype)


def _is_there(folder: Path, text: str) -> bool:
    try:
        return (folder / LAYOUT).read_text(encoding="utf-8") == text
    except OSError:
        return False


def _check_room(layout: Layout, folder: Path) -> None:
    with naming(folder):
        free = shutil.disk_usage(folder.parent).free
    wanted = layout.bytes * (2 if layout.packed else 1)  # packing needs the files as well
    if wanted > free:
        raise SpecError(
            f"{folder}: the training samples need {show(float(wanted), 'B')} as files, and the disk has"
            f" {show(float(free), 'B')} left; scale down dataset.samples and dataset.bytes."
        )


def _write(layout: Layout, x: Array, folder: Path) -> None:
    """Write the records in their order, so that each file is written once."""
    # Random, so that no file system compresses it.
    filler = np.random.default_rng(0).bytes(min(layout.size, _FILLER))
    for directory in range(layout.directories):
        (folder / f"{directory:04d}").mkdir()
    last, file = "", None
    try:
        for sample in range(layout.samples):
            name, _ = layout.place(sample)
            if name != last or file is None:
                if file is not None:
                    file.close()
                file, last = open(folder / name, "wb"), name  # noqa: SIM115
            payload = x[sample].tobytes()
            file.write(_HEAD.pack(checksum(payload), sample) + payload)
            left = layout.size - _HEAD.size - len(payload)
            for start in range(0, left, _FILLER):
                file.write(filler[: min(_FILLER, left - start)])
    finally:
        if file is not None:
            file.close()
