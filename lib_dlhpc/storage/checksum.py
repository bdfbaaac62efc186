"""A checksum as fast as memory: sums of blocks of 4 KiB, and a CRC-32 over the sums.

A CRC-32 of every byte costs more than reading the byte from the page cache, so it could not be asked for at every
read. Here a block's 512 words of 8 B are added (modulo 2^64), which a processor does at the speed of its memory; the
CRC-32 of the sums then sees which block is where. Any one flipped bit changes one sum by a power of two, a burst that
a CRC-32 never misses. What it can miss: words of one block that changed places, and two flips of the same bit in
opposite directions within a block. The manifest's SHA-256 of each partition has no such gap; `verify` compares it.
"""

import zlib
from collections.abc import Sequence

import numpy as np

ALIGN = 8  # B; files begin and end on a word, filled up with zeros, which change no sum
BLOCK = 512  # words
WORD = np.dtype("<u8")


def padded(size: int) -> int:
    """Return the bytes that a file takes where it stands among others."""
    return -(-size // ALIGN) * ALIGN


def checksum(data: bytes | memoryview) -> int:
    """Return the checksum of some bytes, of which there may be any number."""
    whole = len(data) // ALIGN * ALIGN
    sums = _sums(np.frombuffer(data, WORD, whole // ALIGN))
    if whole < len(data):
        last = int.from_bytes(bytes(data[whole:]), "little")
        words = whole // ALIGN
        if words % BLOCK:
            sums[-1] += np.uint64(last)
        else:
            sums = np.append(sums, np.uint64(last))
    return zlib.crc32(sums.data)


def checksums(room: np.ndarray, starts: np.ndarray, sizes: np.ndarray) -> list[int]:
    """Return the checksums of files that stand in one room: words of 8 B, where each file starts (words), sizes (B).

    Files are in the order of `starts`, none is empty, and each is filled up with zeros to a word. Words between
    two files must be zero.
    """
    blocks = -(-sizes // (ALIGN * BLOCK))
    ends = np.cumsum(blocks)
    begins = np.repeat(starts - BLOCK * (ends - blocks), blocks) + BLOCK * np.arange(ends[-1])
    sums = np.add.reduceat(room, begins).data.cast("B")
    edges: Sequence[int] = (8 * ends).tolist()
    first, found = 0, []
    for edge in edges:
        found.append(zlib.crc32(sums[first:edge]))
        first = edge
    return found


def _sums(words: np.ndarray) -> np.ndarray:
    if not words.size:
        return np.zeros(0, WORD)
    return np.add.reduceat(words, np.arange(0, words.size, BLOCK))
