"""The checksum of every read: XXH3, which runs at the speed of memory, so that it can be asked for each time.

A CRC-32 of every byte costs more than reading the byte from the page cache. XXH3 (64 bits, Collet 2019) guards
against damage, not against forgers: `verify` compares the SHA-256 of each partition as well.
"""

from xxhash import xxh3_64_intdigest


def checksum(data: bytes | memoryview) -> int:
    """Return the checksum of some bytes, of which there may be any number."""
    return int(xxh3_64_intdigest(data))
