"""A partition: many files concatenated into one, memory-mapped and read without system calls.

A mapped read costs half of `pread` here (1.4 against 2.6 us for 16 KiB), since no system call is left. The price:
a partition that another program cuts short while it is mapped ends this one (SIGBUS). Its size is checked on opening.
"""

import mmap
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from lib_dlhpc.storage.errors import StoreError
from lib_dlhpc.storage.index import Index, PartitionFile

_REST = (
    "`dlhpc store verify` lists all damage; a store opens only with all of its partitions, or with"
    " open_store(..., rest=True), which reads what is left."
)


PIECE = 1 << 20  # B that are read at a time


class Partition(NamedTuple):
    """A partition's number, its file's path, its bytes, and a function that copies a slice of them."""

    number: int
    path: Path
    content: memoryview
    take: Callable[[slice], bytes]


class PartitionLost(StoreError):
    """A missing or truncated partition: its number, and the bytes that exist."""

    def __init__(self, text: str, number: int, size: int) -> None:
        super().__init__(text)
        self.number, self.size = number, size


def open_partition(
    target: Path, number: int, file: PartitionFile, mapped: bool = True
) -> Partition:
    """Map a partition, or else read it. Raises PartitionLost where it is missing or has another size."""
    path = target / file.name
    try:
        descriptor = os.open(path, os.O_RDONLY)
    except OSError as error:
        raise PartitionLost(f"{file.name} of {target}: {error.strerror}.", number, 0) from None
    try:
        size = os.fstat(descriptor).st_size
        if size != file.size:
            raise PartitionLost(
                f"{file.name} of {target} has {size} B of {file.size} B.", number, size
            )
        if not size:
            return Partition(number, path, memoryview(b""), b"".__getitem__)
        if mapped:
            content: Any = mmap.mmap(descriptor, size, access=mmap.ACCESS_READ)
        else:
            content = b"".join(iter(lambda: os.read(descriptor, PIECE), b""))
            if len(content) != size:
                raise PartitionLost(f"{file.name} of {target} was cut short.", number, len(content))
    finally:
        os.close(descriptor)
    return Partition(number, path, memoryview(content), content.__getitem__)


def kept(part: Partition, room: memoryview) -> Partition:
    """Return a partition whose bytes have been read into a buffer."""
    content = room.toreadonly()
    return part._replace(content=content, take=lambda place: bytes(content[place]))


def with_names(error: PartitionLost, index: Index) -> StoreError:
    """Return the error, extended by the name of a lost file."""
    return StoreError(f"{error} Lost: {_lost(index, error.number, error.size)}. {_REST}")


def _lost(index: Index, number: int, size: int) -> str:
    """Return text naming a file beyond the first `size` bytes of a partition."""
    columns = index.columns
    ends = columns["offset"] + columns["stored"]
    lost = np.flatnonzero((columns["partition"] == number) & (ends > size))
    if not lost.size:
        return "no file"
    more = f" and {lost.size - 1} more" if lost.size > 1 else ""
    return f"{index.names[lost[0]]!r}{more}"
