"""How many bytes a buffer is, in any of the ways in which mpi4py takes one."""

from typing import Any


def size_of(data: Any) -> int:
    """Return the bytes of an array, of a buffer, or of [data, count, type] and its like; else 0."""
    size: int | None = getattr(data, "nbytes", None)
    if size is not None:
        return size
    if data is None or isinstance(data, int):  # MPI.IN_PLACE, MPI.BOTTOM
        return 0
    if isinstance(data, (bytes, bytearray)):
        return len(data)
    if isinstance(data, (list, tuple)) and data:
        return _counted(data)
    try:
        return memoryview(data).nbytes
    except TypeError:
        return 0


def _counted(spec: Any) -> int:
    """Return the bytes that a specification counts, or else those of the data that it begins with."""
    item = getattr(spec[-1], "Get_size", None)  # of an MPI datatype
    counts: Any = spec[1] if len(spec) > 2 else None
    if isinstance(counts, tuple) and len(counts) == 2:
        counts = counts[0]  # counts, then where each part begins
    if callable(item) and counts is not None:
        try:
            return int(sum(counts) if hasattr(counts, "__len__") else counts) * int(item())
        except (TypeError, ValueError):
            pass
    return 0 if isinstance(spec[0], (list, tuple)) else size_of(spec[0])
