"""Checksums: the published value, and another one after each flipped bit."""

import pytest
from numpy.random import default_rng

from lib_dlhpc.storage.checksum import checksum

SIZES = (1, 7, 8, 9, 4095, 4096, 4097, 8191, 20_000, 3 * 4096)


def test_it_is_xxh3():
    """The value of no bytes stands in the test vectors of xxHash."""
    assert checksum(b"") == 0x2D06800538D394C2


@pytest.mark.parametrize("size", SIZES)
def test_each_flipped_bit_is_found(size):
    data = default_rng(size).bytes(size)
    good = checksum(data)
    for place in {0, size // 2, size - 1}:
        for bit in range(8):
            flipped = bytearray(data)
            flipped[place] ^= 1 << bit
            assert checksum(bytes(flipped)) != good
