"""Diagnosis of the outputs of a convolution partitioned by rows: which wrong rows a rank seems to have read.

The outputs are compared with those of each classic mistake; if none matches, only the suspect rows are named.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np

from lib_dlhpc.labs.emulated.split_convolution import SplitTask, borrowed, wanted
from lib_dlhpc.labs.emulated.split_gradient_errors import same, shape_of
from lib_dlhpc.layers.base.saved import Array

TWO_RANKS = "Which rows do its outputs read that are on another rank?"


def outputs_off(task: SplitTask, y: list[Any]) -> str:
    """Return what is wrong with the outputs of one rank, partitioned by rows; empty if nothing."""
    right = task.whole()[0]

    def at_border(rank: int) -> bool:
        first, stop = wanted(task, rank)
        return first < 0 or stop > task.layer.rows

    # Errors in interior ranks are not caused by the image border.
    for rank in sorted(range(task.ranks), key=at_border):
        found, (first, stop) = y[rank], task.cut.outputs[rank]
        expected = right[:, :, first:stop]
        if same(found, expected):
            continue
        where = f"Rank {rank}, outputs {first} to {stop - 1}"
        if not isinstance(found, np.ndarray) or found.shape != expected.shape:
            return f"{where}: {shape_of(found)} instead of {expected.shape}.{_rows_off(task, rank, found)}"
        for words, rows in _wrong_rows(task, rank):
            w = task.arrays()[1]
            if same(found, task.layer.forward(rows, w, (0, task.layer.padding))):
                return f"{where}: {words}"
        return f"{where}: {_suspects(task, rank, found, expected)}"
    return ""


def _rows_off(task: SplitTask, rank: int, found: Any) -> str:
    """Return a hint at the input rows that give this number of outputs."""
    if not isinstance(found, np.ndarray) or found.ndim != 4:
        return ""
    layer, (first, stop) = task.layer, wanted(task, rank)
    (low, high), need, got = task.cut.rows[rank], stop - first, found.shape[2]
    inside = min(stop, layer.rows) - max(first, 0)
    if got == layer.outputs(high - low) or got == layer.outputs(high - low, 0):
        return f" That is the result of its own {high - low} rows alone. {TWO_RANKS}"
    if got > layer.outputs(need, 0) and got != layer.outputs(need):
        return f" Its outputs read rows {first} to {stop - 1}, {need} in all; these outputs were computed from more."
    if got > layer.outputs(need, 0):
        return (
            " These are too many. Rows are padded only where the image ends; the boundary between two ranks is not an"
            " edge of the image."
        )
    if inside < need and got == layer.outputs(inside, 0):
        return (
            f" The image ends at this rank, and {need - inside} of the rows it reads are "
            "padding: zeros. Did you add them?"
        )
    if got < layer.outputs(need, 0):
        return (
            f" Its outputs read rows {first} to {stop - 1}, {need} in all; these outputs were computed from fewer. Is"
            " a halo too short?"
        )
    return ""


def _wrong_rows(task: SplitTask, rank: int) -> Iterator[tuple[str, Array]]:
    """Yield, for each classic mistake, its message and the input rows that a rank would have read."""
    x, own, (first, stop) = task.arrays()[0], task.cut.rows[rank], wanted(task, rank)
    rows = np.arange(first, stop)
    inside = (rows >= 0) & (rows < task.layer.rows)
    lent = np.isin(rows, borrowed(task, rank))

    def read(source: Any, zero: Any) -> Array:
        taken = x[:, :, np.clip(source, 0, task.layer.rows - 1)].copy()
        taken[:, :, zero] = 0
        return taken

    above, below = lent & (rows < own[0]), lent & (rows >= own[1])
    if lent.any():
        words = (
            "there are zeros where rows of its neighbors belong. Padding belongs only where the "
            "image ends."
        )
        yield words, read(rows, ~inside | lent)
    for side, name in ((above, "above"), (below, "below")):
        if side.any() and side.sum() != lent.sum():
            words = f"the rows from {name} are missing: there are zeros instead."
            yield words, read(rows, ~inside | side)
    far = lent & _beyond_the_next(task, rank, rows)
    if far.any():
        words = (
            "there are zeros where rows from beyond the next rank belong: a halo may reach further."
        )
        yield words, read(rows, ~inside | far)
    for short, name in _outermost(rows, above, below):
        words = f"the halo is one row short {name}: the outermost row is zeros."
        yield words, read(rows, ~inside | short)
    for shift in (1, -1):
        near, all_ = np.where(lent, rows + shift, rows), rows + shift
        yield "the halo rows are off by one.", read(near, ~inside)
        yield "all rows are off by one.", read(all_, (all_ < 0) | (all_ >= task.layer.rows))
    if lent.any():
        low, high = own
        mirrored = np.where(above, 2 * low - 1 - rows, np.where(below, 2 * high - 1 - rows, rows))
        words = "its own rows replace its neighbors' rows."
        yield words, read(np.clip(mirrored, low, high), ~inside)
        yield words, read(np.where(lent, np.clip(rows, low, high - 1), rows), ~inside)
        ends = rows.copy()
        _mix(ends, above, task.cut.rows, rank - 1)
        _mix(ends, below, task.cut.rows, rank + 1)
        words = "the halo rows come from the wrong end of the neighbors."
        yield words, read(ends, ~inside)
    if not inside.all():
        for words, source in _wrong_padding(rows, task.layer.rows):
            yield words, read(source, np.zeros(len(rows), bool))


def _wrong_padding(rows: Any, size: int) -> Iterator[tuple[str, Any]]:
    """Yield the message and the rows that are read in place of padding. size: rows of the image."""
    beyond = "the padding of the image is wrong: there should be zeros beyond it, and this rank has"
    yield f"{beyond} its last row again.", rows
    yield f"{beyond} the rows of the opposite end.", rows % size
    mirror = np.where(rows < 0, -rows, np.where(rows >= size, 2 * size - 2 - rows, rows))
    yield f"{beyond} a mirror image.", mirror


def _beyond_the_next(task: SplitTask, rank: int, rows: Any) -> Any:
    """Return which rows belong to ranks that are not next to this one."""
    cuts = task.cut.rows
    return (rows < cuts[max(rank - 1, 0)][0]) | (rows >= cuts[min(rank + 1, task.ranks - 1)][1])


def _outermost(rows: Any, above: Any, below: Any) -> Iterator[tuple[Any, str]]:
    """Yield the outermost halo row of each side, and of both, with the name of the side."""
    last_above = above & (rows == rows[above].min()) if above.any() else above
    last_below = below & (rows == rows[below].max()) if below.any() else below
    sides = [(last_above, "above"), (last_below, "below")]
    if last_above.any() and last_below.any():
        sides.append((last_above | last_below, "on both sides"))
    yield from ((short, name) for short, name in sides if short.any())


def _mix(rows: Any, side: Any, cuts: Any, peer: int) -> None:
    """Take one side's halo from the wrong end of the neighbor's rows."""
    if side.any() and 0 <= peer < len(cuts):
        low, high = cuts[peer]
        count = int(side.sum())
        rows[side] = (
            np.arange(low, low + count)
            if rows[side][-1] == high - 1
            else np.arange(high - count, high)
        )


def _suspects(task: SplitTask, rank: int, found: Array, expected: Array) -> str:
    """Return which rows only wrong outputs have read."""
    first, _ = task.cut.outputs[rank]
    right = [
        bool(np.allclose(found[:, :, k], expected[:, :, k], rtol=1e-9))
        for k in range(expected.shape[2])
    ]
    layer = task.layer

    def reads(k: int) -> set[int]:
        start = (first + k) * layer.stride - layer.padding
        return set(range(start, start + layer.kernel))

    wrong = [k for k, fine in enumerate(right) if not fine]
    rows = set().union(*(reads(k) for k in wrong))
    rows -= set().union(*(reads(k) for k, fine in enumerate(right) if fine))
    outside = {row for row in rows if row not in range(layer.rows)}
    lent = rows & set(borrowed(task, rank))
    which = f"{len(wrong)} of {len(right)} rows of outputs are wrong"
    if len(wrong) == len(right) or not rows:
        return f"{which}, including those that read only its own rows."
    listed = ", ".join(map(str, sorted(rows)))
    if rows == outside:
        return f"{which}, and only these read beyond the image (rows {listed}), where zeros belong."
    if rows <= lent | outside:
        return f"{which}, and only these read its halo (rows {listed})."
    return f"{which}, and only these read rows {listed}."
