"""How a file's bytes are stored: as they are, or compressed by zlib or zstd where that helps."""

import threading
import zlib
from typing import Any

from lib_dlhpc.spec.errors import suggest
from lib_dlhpc.storage.errors import StoreError

CODECS = (
    "none",
    "zlib",
    "zstd",
)  # an index stores the position: names may be added at the end only
_WORTH = 0.95  # a file that stays larger than this share of itself is quicker to read as it is


def code_of(codec: str) -> int:
    """Return the number of a codec in an index. Raises StoreError naming the legal ones."""
    if codec not in CODECS:
        legal = ", ".join(map(repr, CODECS))
        raise StoreError(f"codec: {codec!r} is unknown. Legal: {legal}.{suggest(codec, CODECS)}")
    return CODECS.index(codec)


def compress(data: bytes, code: int) -> tuple[bytes, int]:
    """Return (what to store, its code): compressed with `code` if that helps, else the data and 0."""
    if code == 0 or not data:
        return data, 0
    small = zlib.compress(data, 6) if CODECS[code] == "zlib" else _zstd()[0].compress(data)
    return (small, code) if len(small) <= _WORTH * len(data) else (data, 0)


def decompress(data: bytes, code: int, size: int) -> bytes:
    """Return the `size` bytes that were stored as `data` with `code`. Raises StoreError."""
    if code == 0:
        return data
    if code >= len(CODECS):
        raise StoreError(f"it is stored with codec number {code}; this version knows {CODECS}")
    try:
        if CODECS[code] == "zlib":
            found = zlib.decompress(data, bufsize=max(size, 1))
        else:
            found = _zstd()[1].decompress(data, max_output_size=size)
    except Exception as error:
        raise StoreError(f"it cannot be decompressed ({error})") from None
    if len(found) != size:
        raise StoreError(f"it has {len(found)} B decompressed, of {size} B")
    return found


_OF_THREAD = threading.local()


def _zstd() -> tuple[Any, Any]:
    """Return this thread's compressor and decompressor: two threads in one of them break each other's data.

    zstandard is imported only where a store has such files.
    """
    if not hasattr(_OF_THREAD, "zstd"):
        import zstandard

        _OF_THREAD.zstd = zstandard.ZstdCompressor(level=3), zstandard.ZstdDecompressor()
    found: tuple[Any, Any] = _OF_THREAD.zstd
    return found
