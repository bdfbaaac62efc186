"""Decompression with a memory limit that depends on the file size.

A kilobyte of gzip can hold a megabyte of zeros, so a crafted file of 2 MB could exhaust the memory. The files read
here, traces and event tables, have compression ratios of 5 to 30.
"""

import gzip
import io
import zipfile
import zlib
from math import prod
from pathlib import Path
from typing import IO, Any

from numpy.lib import format as npy

FREE = 1 << 26  # B to which a file of any size may unpack
RATIO = 64  # largest compression ratio of a larger file
PIECE = 1 << 20  # B unpacked at a time


def most_unpacked(packed: int) -> int:
    """Return the most B to which a compressed file of `packed` B may unpack."""
    return max(FREE, RATIO * packed)


def gunzip(data: bytes | bytearray) -> bytearray:
    """Decompress gzip data. Raises ValueError as soon as the limit is exceeded, OSError, EOFError, zlib.error."""
    most, found = most_unpacked(len(data)), bytearray()
    with gzip.GzipFile(fileobj=io.BytesIO(data)) as file:
        while piece := file.read(PIECE):
            found += piece
            if len(found) > most:
                raise ValueError(
                    f"its {len(data):,} B unpack to more than {most:,} B, a ratio of {RATIO} or more;"
                    " if you trust the file, unpack it first (gunzip)"
                )
    return found


def check_npz(path: Path, most: int = 0) -> None:
    """Check the headers of an .npz file before numpy reads it: arrays are complete, and at most `most` B in total.

    most: default, the size of the file (not compressed). Raises ValueError, OSError.
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
    """Read the header of an .npy file; return its shape and dtype. Raises ValueError."""
    version = npy.read_magic(file)
    read = npy.read_array_header_1_0 if version == (1, 0) else npy.read_array_header_2_0
    shape, _, dtype = read(file)
    return shape, dtype
