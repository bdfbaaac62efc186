"""Uninitialized bytes: a bytes object that is filled in place before it is used, without a copy or zeroing.

Zeroing 8 MB costs a third of receiving them from a rank of the same node; page faults of 4 KiB cost as much,
so huge pages are requested.
"""

import ctypes
import mmap

_new = ctypes.pythonapi.PyBytes_FromStringAndSize  # with NULL: not filled yet (Python's C API)
_new.restype, _new.argtypes = ctypes.py_object, (ctypes.c_void_p, ctypes.c_ssize_t)
_HEAD = bytes.__basicsize__ - 1  # B before the content; the last one counted is the closing zero
_HUGE = 1 << 21  # B of a huge page, mostly; where it is not, the advice does no harm
_advise = getattr(ctypes.CDLL(None), "madvise", None) if hasattr(mmap, "MADV_HUGEPAGE") else None


def fresh(size: int) -> tuple[bytes, memoryview]:
    """Return `size` bytes, and a view to write them; release the view before passing them on."""
    if size < 2:
        raise ValueError(f"{size} B: Python shares bytes that are as short as that.")
    data = _new(None, size)
    start = id(data) + _HEAD
    _in_huge_pages(start, size)
    place = (ctypes.c_char * size).from_address(start)
    place.keeps = data  # type: ignore[attr-defined]
    return data, memoryview(place).cast("B")


def _in_huge_pages(start: int, size: int) -> None:
    """Request huge pages for the aligned part; the system may ignore it."""
    first, last = -(-start // _HUGE) * _HUGE, (start + size) // _HUGE * _HUGE
    if _advise is not None and first < last:
        _advise(ctypes.c_void_p(first), ctypes.c_size_t(last - first), mmap.MADV_HUGEPAGE)
