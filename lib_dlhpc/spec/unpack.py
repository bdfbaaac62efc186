"""Unpacking: a compressed file is given no more memory than its size explains.

A kilobyte of gzip can hold a megabyte of zeros, so a crafted file of 2 MB could fill the memory. What is read here,
traces and tables of events, shrinks by 5 to 30 times.
"""

import gzip
import io
import zipfile
import zlib
from math import prod
from pathlib import Path
from typing import IO, Any

from numpy.lib import format as npy

FREE = 1 << 26  # B that a file of any size may unpack to
RATIO = 64  # a larger one: to so many times its own size
PIECE = 1 << 20  # B unpacked at a time


def most_unpacked(packed: int) -> int:
    """Return how many B a compressed file of `packed` B may unpack to."""
    return max(FREE, RATIO * packed)


def gunzip(data: bytes | bytearray) -> bytearray:
    """Return what gzip packed. Raises ValueError as soon as it is too much, OSError, EOFError, zlib.error."""
    most, found = most_unpacked(len(data)), bytearray()
    with gzip.GzipFile(fileobj=io.BytesIO(data)) as file:
        while piece := file.read(PIECE):
            found += piece
            if len(found) > most:
                raise ValueError(
                    f"its {len(data):,} B unpack to more than {most:,} B, {RATIO} times as many or more;"
                    " if you trust it, unpack it yourself (gunzip)"
                )
    return found


def check_npz(path: Path, most: int = 0) -> None:
    """Look whether numpy may read an .npz file: what it states is there, and together at most `most` B.

    most: the default is the size of the file, for one that is not compressed. Raises ValueError, OSError.
    """
    most = most or path.stat().st_size
    try:
        with zipfile.ZipFile(path) as archive:
            members = archive.infolist()
            stated = sum(member.file_size for member in members)
            if stated > most:
                raise ValueError(f"it states {stated:,} B of arrays; legal: up to {most:,} B")
            for member in members:
                with archive.open(member) as file:
                    shape, dtype = npy_header(file)
                if prod(shape) * dtype.itemsize > member.file_size:
                    raise ValueError(
                        f"{member.filename} states {shape} of {dtype}, and has {member.file_size:,} B"
                    )
    except (zipfile.BadZipFile, zlib.error, EOFError, RuntimeError) as error:
        raise ValueError(str(error)) from None


def npy_header(file: IO[bytes]) -> tuple[tuple[int, ...], Any]:
    """Read an array of numpy's format up to its numbers; return its shape and type. Raises ValueError."""
    version = npy.read_magic(file)
    read = npy.read_array_header_1_0 if version == (1, 0) else npy.read_array_header_2_0
    shape, _, dtype = read(file)
    return shape, dtype
