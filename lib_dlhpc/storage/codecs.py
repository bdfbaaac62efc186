"""How a file's bytes are stored: as they are, or compressed by zlib or zstd where that helps."""

import threading
import zlib
from collections.abc import Iterator
from typing import Any

from lib_dlhpc.errors import listed
from lib_dlhpc.storage.errors import StoreError
from lib_dlhpc.storage.fresh import fresh
from lib_dlhpc.storage.memory import available

# an index stores the position: names may be added at the end only
CODECS = ("none", "zlib", "zstd")
# Maximum compression ratio by codec. zlib makes at most 258 B of 2 bits (RFC 1951), zstd a block of 128 KiB of 4 B
# (RFC 8878).
MOST = (1, 1032, 32768)
_PIECE = 1 << 20  # B that are decompressed at a time where none is needed
_LARGE = 1 << 28  # B from which available memory is checked first
_WORTH = 0.95  # above this ratio an uncompressed file is faster to read


def code_of(codec: str) -> int:
    """Return the number of a codec in an index. Raises StoreError naming the legal ones."""
    if codec not in CODECS:
        raise StoreError(listed(f"codec: {codec!r} is unknown;", codec, CODECS))
    return CODECS.index(codec)


def compress(data: bytes, code: int) -> tuple[bytes, int]:
    """Return (what to store, its code): compressed with `code` if that helps, else the data and 0."""
    if code == 0 or not data:
        return data, 0
    small = zlib.compress(data, 6) if CODECS[code] == "zlib" else _zstd()[0].compress(data)
    return (small, code) if len(small) <= _WORTH * len(data) else (data, 0)


def decompress(data: bytes, code: int, size: int) -> bytes:
    """Return the `size` bytes that were stored as `data` with `code`. Raises StoreError.

    Memory is allocated for `size` bytes, whatever `data` would decompress to.
    """
    if code == 0:
        return data
    if size > _LARGE and size > available():
        raise StoreError(f"there is not enough memory for its {size:,} B")
    try:
        found = _unzlib(data, size) if _name(code) == "zlib" else _unzstd(data, size)
    except Exception as error:
        raise _why(error) from None
    _check_size(len(found), size)
    return found


def check(data: bytes, code: int, size: int) -> None:
    """Raise StoreError unless `data` decompresses to `size` bytes. Decompresses in pieces, to limit memory."""
    found = 0
    try:
        for piece in _pieces(data, code):
            found += len(piece)
            if found > size:
                break
    except Exception as error:
        raise _why(error) from None
    _check_size(found, size)


def _unzlib(data: bytes, size: int) -> bytes:
    if size <= _PIECE:
        unpack = zlib.decompressobj()
        found = unpack.decompress(data, size + 1)  # a byte more, to see whether it ends there
        if len(found) <= size and not unpack.eof:
            raise ValueError("it ends in the middle")
        return found
    found, room = fresh(size)  # all at once, zlib would take twice the memory
    start = 0
    with room:
        for piece in _inflated(data):
            if start + len(piece) <= size:
                room[start : start + len(piece)] = piece
            start += len(piece)
            if start > size:
                break
    _check_size(start, size)
    return found


def _unzstd(data: bytes, size: int) -> bytes:
    from zstandard import frame_content_size

    stated = frame_content_size(data)  # zstd would allocate this much; -1: not stated
    if stated >= 0:
        _check_size(stated, size)
    found: bytes = _zstd()[1].decompress(data, max_output_size=size)
    return found


def _pieces(data: bytes, code: int) -> Iterator[bytes]:
    """Yield the decompressed data in pieces."""
    if _name(code) == "none":
        yield data
    elif _name(code) == "zstd":
        with _zstd()[1].stream_reader(data) as reader:
            while piece := reader.read(_PIECE):
                yield piece
    else:
        yield from _inflated(data)


def _inflated(data: bytes) -> Iterator[bytes]:
    """Yield zlib-decompressed pieces."""
    unpack = zlib.decompressobj()
    while not unpack.eof:
        yield (piece := unpack.decompress(data, _PIECE))
        data = unpack.unconsumed_tail
        if not piece and not unpack.eof:
            raise ValueError("it ends in the middle")


def _name(code: int) -> str:
    if code >= len(CODECS):
        raise StoreError(f"it is stored with codec number {code}; this version knows {CODECS}")
    return CODECS[code]


def _check_size(found: int, size: int) -> None:
    if found != size:
        many = f"more than {size}" if found > size else found
        raise StoreError(f"it has {many} B decompressed, of {size} B")


def _why(error: Exception) -> StoreError:
    if isinstance(error, StoreError):
        return error
    return StoreError(f"it cannot be decompressed ({str(error) or type(error).__name__})")


_OF_THREAD = threading.local()


def _zstd() -> tuple[Any, Any]:
    """Return this thread's compressor and decompressor: they are not thread-safe.

    zstandard is imported only where a store has such files.
    """
    if not hasattr(_OF_THREAD, "zstd"):
        import zstandard

        _OF_THREAD.zstd = zstandard.ZstdCompressor(level=3), zstandard.ZstdDecompressor()
    found: tuple[Any, Any] = _OF_THREAD.zstd
    return found
