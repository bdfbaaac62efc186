"""Diagnosis of the gradients of a partitioned convolution, and of a partition by filters."""

from typing import Any

import numpy as np

from lib_dlhpc.labs.emulated.split_convolution import SplitTask, borrowed, shares
from lib_dlhpc.layers.base.saved import Array

NEAR = 1e-10  # relative, in float64


def same(found: Any, right: Array) -> bool:
    """Return whether the arrays are equal up to rounding."""
    return (
        isinstance(found, np.ndarray)
        and found.shape == right.shape
        and bool(
            np.max(np.abs(found - right), initial=0) <= NEAR * np.max(np.abs(right), initial=1e-300)
        )
    )


def shape_of(found: Any) -> str:
    """Return the shape of an array, or the type of another object."""
    return f"shape {found.shape}" if isinstance(found, np.ndarray) else type(found).__name__


def input_gradient_off(task: SplitTask, dx: list[Any]) -> str:
    """Return what is wrong with the input gradient of a partition by rows; empty if nothing."""
    right = task.whole()[1]
    local = [_local(task, rank) for rank in range(task.ranks)]
    for rank, found in enumerate(dx):
        low, high = task.cut.rows[rank]
        expected = right[:, :, low:high]
        if same(found, expected):
            continue
        where = f"Rank {rank}, rows {low} to {high - 1}"
        if not isinstance(found, np.ndarray) or found.shape != expected.shape:
            more = isinstance(found, np.ndarray) and found.ndim == 4 and found.shape[2] > high - low
            home = " To which ranks do the rows beyond its own belong, and which ranks need their gradient?"
            return f"{where}: {shape_of(found)} instead of {expected.shape}.{home if more else ''}"
        alone = local[rank][0][:, :, low:high]
        if same(found, alone):
            return (
                f"{where}: these gradients come only from its own outputs. Other ranks have read some of these rows;"
                " where do their gradients of these rows go?"
            )
        replaced = alone.copy()
        for other, (theirs, _) in enumerate(local):
            rows = [row for row in borrowed(task, other) if low <= row < high]
            if other != rank and rows:
                replaced[:, :, np.array(rows) - low] = theirs[:, :, rows]
        if same(found, replaced):
            return (
                f"{where}: gradients received from another rank replace those of its own outputs, but both ranks have"
                " read these rows."
            )
        fine = [
            k + low for k in range(high - low) if np.allclose(found[:, :, k], expected[:, :, k])
        ]
        shared = {row for other in range(task.ranks) for row in borrowed(task, other)}
        wrong = sorted(set(range(low, high)) - set(fine))
        if set(wrong) <= shared:
            return (
                f"{where}: rows {_listed(wrong)} are wrong, and exactly these were sent to others."
            )
        return f"{where}: rows {_listed(wrong)} are wrong."
    return ""


def weight_gradient_off(task: SplitTask, dw: list[Any]) -> str:
    """Return what is wrong with the weight gradient of a partition by rows; empty if nothing."""
    right = task.whole()[2]
    for rank, found in enumerate(dw):
        if same(found, right):
            continue
        if not isinstance(found, np.ndarray) or found.shape != right.shape:
            return f"Rank {rank}: {shape_of(found)} instead of {right.shape}."
        if same(found, _local(task, rank)[1]):
            return (
                f"Rank {rank} has only the gradient from its own outputs. The weights are replicated on all ranks;"
                " what is the gradient of a replicated array?"
            )
        return f"Rank {rank}: {_times(found, right, task.ranks)}"
    return ""


def filters_off(task: SplitTask, y: list[Any]) -> str:
    """Return what is wrong with the outputs of a partition by filters; empty if nothing."""
    right = task.whole()[0]
    for rank, found in enumerate(y):
        if same(found, right):
            continue
        low, high = task.cut.filters[rank]
        if same(found, right[:, low:high]):
            return (
                f"Rank {rank} returns the {high - low} channels of its own filters; the next layer reads all"
                f" {right.shape[1]}."
            )
        if not isinstance(found, np.ndarray) or found.shape != right.shape:
            return f"Rank {rank}: {shape_of(found)} instead of {right.shape}."
        wrong = [k for k in range(right.shape[1]) if not same(found[:, k], right[:, k])]
        return f"Rank {rank}: channels {_listed(wrong)} are wrong. In which order should they be?"
    return ""


def filter_gradients_off(task: SplitTask, dx: list[Any], dw: list[Any]) -> str:
    """Return what is wrong with the gradients of a partition by filters; empty if nothing."""
    _, right, weights = task.whole()
    for rank, (found, own) in enumerate(zip(dx, dw, strict=True)):
        (low, high), (x, w, dy) = task.cut.filters[rank], shares(task, False, rank)
        if not same(own, weights[low:high]):
            return (
                f"Rank {rank}, dw: {shape_of(own)}, which is not the gradient of its own filters {low} to"
                f" {high - 1}."
            )
        if same(found, right):
            continue
        if same(found, task.layer.backward(dy[:, low:high], x, w)[0]):
            return (
                f"Rank {rank}, dx: this is the contribution of its own filters. All filters have read the same x;"
                " which contributions does its gradient sum?"
            )
        if not isinstance(found, np.ndarray) or found.shape != right.shape:
            return f"Rank {rank}, dx: {shape_of(found)} instead of {right.shape}."
        return f"Rank {rank}, dx: {_times(found, right, task.ranks)}"
    return ""


def _local(task: SplitTask, rank: int) -> tuple[Array, Array]:
    """Return the gradients of a rank's own outputs: of the whole input, and of the weights."""
    x, w, dy = task.arrays()
    first, stop = task.cut.outputs[rank]
    own = np.zeros_like(dy)
    own[:, :, first:stop] = dy[:, :, first:stop]
    return task.layer.backward(own, x, w)


def _times(found: Array, right: Array, ranks: int) -> str:
    times = float(np.vdot(found, right) / np.vdot(right, right))
    if same(found, times * right):
        return f"{times:.4g} times the correct value, on {ranks} ranks. A sum, or a mean?"
    return "the numbers differ from those of one rank."


def _listed(numbers: list[int]) -> str:
    return ", ".join(map(str, numbers))
