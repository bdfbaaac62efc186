"""The checksum of every read: XXH3, which runs at memory bandwidth.

A CRC-32 of every byte costs more than reading the byte from the page cache. XXH3 (64 bits, Collet 2019) guards
against damage, not against forgers: `verify` compares the SHA-256 of each partition as well.
"""

from collections.abc import Callable

from xxhash import xxh3_64_intdigest

# No wrapper: it is called for every file.
checksum: Callable[[bytes | memoryview], int] = xxh3_64_intdigest
