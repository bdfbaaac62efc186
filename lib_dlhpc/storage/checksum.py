"""A checksum as fast as memory: sums of blocks of 4 KiB, and a polynomial of the sums.

A CRC-32 of every byte costs more than reading the byte from the page cache, so it could not be asked for at every
read. Here a block's 512 words of 8 B are added (modulo 2^64), which a processor does at the speed of its memory. The
sums are the coefficients of a polynomial, as in Karp and Rabin, IBM J. Res. Dev. 31, 1987, taken at an odd number
modulo 2^64, so that it matters which block is where. Any one flipped bit is found for certain: it changes one sum,
and an odd factor loses nothing. What is missed: words of one block that changed places, and two flips of the same bit
within a block in opposite directions (of a word's highest bit: in any). The SHA-256 of each partition, which `verify`
compares, has no such gap.
"""

import numpy as np

ALIGN = 8  # B; files begin and end on a word, filled up with zeros, which change no sum
BLOCK = 512  # words
WORD = np.dtype("<u8")
_AT = np.uint64(
    0x9E3779B97F4A7C15
)  # 2^64 / golden ratio: odd, and its bits are as good as drawn by lot
_powers = np.array([_AT], WORD)


def padded(size: int) -> int:
    """Return the bytes that a file takes where it stands among others."""
    return -(-size // ALIGN) * ALIGN


def checksum(data: bytes | memoryview) -> int:
    """Return the checksum of some bytes, of which there may be any number."""
    words, rest = divmod(len(data), ALIGN)
    if not words and not rest:
        return 0
    sums = np.zeros(-(-padded(len(data)) // (ALIGN * BLOCK)), WORD)
    if words:
        whole = np.add.reduceat(np.frombuffer(data, WORD, words), np.arange(0, words, BLOCK))
        sums[: whole.size] = whole
    if rest:
        sums[-1] += np.uint64(int.from_bytes(bytes(data[-rest:]), "little"))
    return int(np.add.reduce(_mixed(sums) * _weights(sums.size)))


def checksums(room: np.ndarray, starts: np.ndarray, sizes: np.ndarray) -> np.ndarray:
    """Return the checksums of files that stand in one room: words of 8 B, where each file starts (words), sizes (B).

    Files are in the order of `starts`, none is empty, and each is filled up with zeros to a word. Words between
    two files must be zero.
    """
    blocks = -(-sizes // (ALIGN * BLOCK))
    ends = np.cumsum(blocks)
    firsts = ends - blocks
    within = np.arange(ends[-1]) - np.repeat(firsts, blocks)
    end = int(starts[-1]) + -(-int(sizes[-1]) // ALIGN)
    sums = np.add.reduceat(room[:end], np.repeat(starts, blocks) + BLOCK * within)
    return np.add.reduceat(_mixed(sums) * _weights(int(blocks.max()))[within], firsts)


def _mixed(sums: np.ndarray) -> np.ndarray:
    """Let high bits count below as well: two flips of the highest bit would cancel under any odd factors."""
    return sums ^ (sums >> np.uint64(32))


def _weights(blocks: int) -> np.ndarray:
    """Return the powers of the number at which the polynomial is taken, from the first on."""
    global _powers
    if _powers.size < blocks:
        _powers = np.multiply.accumulate(np.full(2 * blocks, _AT, WORD))
    return _powers[:blocks]
