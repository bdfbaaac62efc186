"""Files to read, in a temporary folder that is always removed."""

import os
import random
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from lib_dlhpc.errors import SpecError
from lib_dlhpc.lifetime.owned import make_folder, remove_folder
from lib_dlhpc.spec.units import format_quantity

PREFIX = ".dlhpc-calibrate-"
SPARE = 1.1  # of the requested size: file systems round up and store metadata


class CalibrationError(SpecError):
    """A folder cannot be measured: it is missing, full, or not writable."""


@contextmanager
def workspace(folder: Path, size: float) -> Iterator[Path]:
    """Yield a temporary empty folder in `folder`, which must have `size` bytes free.

    Raises CalibrationError if `folder` is missing, no folder, too full or not writable; converts an OSError inside,
    such as a full disk.
    """
    check_folder(folder, size)
    try:
        place = make_folder(PREFIX, folder)
    except OSError as error:
        raise CalibrationError(f"{folder}: cannot make a folder there: {error.strerror}.") from None
    try:
        yield place
    except OSError as error:
        raise CalibrationError(f"{folder}: {error.strerror or error}.") from None
    finally:
        remove_folder(place)


def check_folder(folder: Path, size: float) -> None:
    """Raise CalibrationError if `folder` is missing, no folder, or has less than `size` bytes free."""
    if not folder.is_dir():
        what = "is not a folder" if folder.exists() else "no such folder"
        raise CalibrationError(f"{folder}: {what}; name one on the file system to be measured.")
    free = shutil.disk_usage(folder).free
    if free < size * SPARE:
        raise CalibrationError(
            f"{folder}: {format_quantity(free, 'B')} free, {format_quantity(size * SPARE, 'B')} needed;"
            " ask for less with --size."
        )


def make_files(
    place: Path, shape: Mapping[tuple[str, int], tuple[int, int]]
) -> dict[tuple[str, int], list[Path]]:
    """Write and flush the files of each kind, (B, number), in one folder per kind; returns their paths.

    Contents are random slices of random bytes: no file system can compress or deduplicate them.
    """
    largest = max((size for size, _ in shape.values()), default=0)
    dice, noise = random.Random(0), os.urandom(2 * largest)
    made: dict[tuple[str, int], list[Path]] = {}
    for kind, (size, count) in shape.items():
        inside = place / "-".join(map(str, kind))
        inside.mkdir()
        made[kind] = [inside / f"{number:06d}" for number in range(count)]
        for path in made[kind]:
            start = dice.randrange(largest + 1)
            path.write_bytes(noise[start : start + size])
    if hasattr(os, "sync"):
        os.sync()
    else:  # one at a time, with a device latency each
        for path in (path for paths in made.values() for path in paths):
            flush(path)
    return made


def flush(path: Path) -> None:
    """Wait until the file is on the device: dirty pages cannot be dropped."""
    handle = os.open(path, os.O_RDWR)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
