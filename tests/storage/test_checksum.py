"""Checksums: the same however a file is read, and another one after each flipped bit or block out of place."""

import numpy as np
import pytest
from numpy.random import default_rng

from lib_dlhpc.storage.checksum import ALIGN, BLOCK, WORD, checksum, checksums, padded

SIZES = (1, 7, 8, 9, 4095, 4096, 4097, 8191, 20_000, 3 * 4096)


def content(size):
    return default_rng(size).bytes(size)


def test_many_in_a_room_are_as_one_alone():
    files = [content(size) for size in SIZES]
    room = b"".join(data + bytes(padded(len(data)) - len(data)) for data in files)
    words = np.array([padded(size) // ALIGN for size in SIZES])
    found = checksums(np.frombuffer(room, WORD), np.cumsum(words) - words, np.array(SIZES))
    assert found.tolist() == [checksum(data) for data in files]
    assert len(set(found.tolist())) == len(SIZES)


@pytest.mark.parametrize("size", SIZES)
def test_each_flipped_bit_is_found(size):
    data = content(size)
    good = checksum(data)
    for place in {0, size // 2, size - 1}:
        for bit in range(8):
            flipped = bytearray(data)
            flipped[place] ^= 1 << bit
            assert checksum(bytes(flipped)) != good


@pytest.mark.parametrize("pair", [(0, 1), (0, 4096), (7, 4103), (4095, 4096)])
def test_two_flipped_bits_of_zeros_are_found(pair):
    for bit in range(8):
        data = bytearray(3 * 4096)
        for place in pair:
            data[place] ^= 1 << bit
        assert checksum(bytes(data)) != checksum(bytes(3 * 4096))


def test_blocks_that_changed_places_are_found():
    data, block = content(5 * 4096), BLOCK * ALIGN
    for first in range(5):
        for second in range(first):
            swapped = bytearray(data)
            one, other = (
                slice(first * block, (first + 1) * block),
                slice(second * block, (second + 1) * block),
            )
            swapped[one], swapped[other] = swapped[other], swapped[one]
            assert checksum(bytes(swapped)) != checksum(data)
