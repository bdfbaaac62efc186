"""The convolution that a lab partitions: gradients, coverage of a partition, communication volume."""

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from lib_dlhpc.labs.emulated.split_convolution import (
    Convolution,
    SplitTask,
    borrowed,
    least_moved,
    shares,
    wanted,
)
from lib_dlhpc.labs.mistakes import LabError

sizes = st.tuples(st.integers(5, 15), st.integers(1, 5), st.integers(1, 3), st.integers(0, 2))


def task_of(size, ranks):
    rows, kernel, stride, padding = size
    layer = Convolution(2, 3, kernel, stride, padding, rows, 7)
    assume(layer.outputs(rows) >= ranks)
    return SplitTask(layer, ranks, seed=1)


@given(size=sizes)
def test_it_is_the_sum_over_its_window(size):
    task = task_of(size, 1)
    (x, w, _), layer = task.arrays(), task.layer
    y, p = layer.forward(x, w), layer.padding
    tall = np.pad(x, ((0, 0), (0, 0), (p, p), (p, p)))
    row, column = y.shape[2] - 1, 0
    start = row * layer.stride
    window = tall[1, :, start : start + layer.kernel, : layer.kernel]
    assert y[1, 2, row, column] == pytest.approx(np.sum(window * w[2]))


@given(size=sizes)
def test_backward_is_the_transpose_of_forward(size):
    """It is linear in x and in w: <forward(x, w), dy> = <x, dx> = <w, dw>."""
    task = task_of(size, 1)
    x, w, dy = task.arrays()
    y, dx, dw = task.whole()
    assert np.vdot(y, dy) == pytest.approx(np.vdot(x, dx), abs=1e-9)
    assert np.vdot(y, dy) == pytest.approx(np.vdot(w, dw), abs=1e-9)
    assert dx.shape == x.shape and dw.shape == w.shape


@given(size=sizes, ranks=st.integers(1, 4))
def test_the_rows_that_a_rank_needs_give_its_outputs(size, ranks):
    task = task_of(size, ranks)
    (x, w, _), right = task.arrays(), task.whole()[0]
    beyond = 20
    tall = np.pad(x, ((0, 0), (0, 0), (beyond, beyond), (0, 0)))
    for rank, (first, stop) in enumerate(task.cut.outputs):
        low, high = wanted(task, rank)
        y = task.layer.forward(tall[:, :, low + beyond : high + beyond], w, (0, task.layer.padding))
        np.testing.assert_allclose(y, right[:, :, first:stop], atol=1e-12)
        own = set(range(*task.cut.rows[rank]))
        inside = {row for row in range(low, high) if 0 <= row < task.layer.rows}
        assert set(borrowed(task, rank)) == inside - own


@given(size=sizes, ranks=st.integers(1, 3))
def test_parts_cover_the_full_range(size, ranks):
    task = task_of(size, ranks)
    x, w, dy = task.arrays()
    rows = [shares(task, True, rank) for rank in range(ranks)]
    np.testing.assert_array_equal(np.concatenate([own[0] for own in rows], axis=2), x)
    np.testing.assert_array_equal(np.concatenate([own[2] for own in rows], axis=2), dy)
    filters = [shares(task, False, rank)[1] for rank in range(ranks)]
    np.testing.assert_array_equal(np.concatenate(filters), w)


def test_communication_volume_by_hand():
    task = SplitTask(Convolution(2, 3, 3, 1, 1, 9, 7), 3, seed=1)  # 3 rows each, one from each side
    row, w = 2 * 2 * 7 * 8, 3 * 2 * 9 * 8
    assert least_moved(task, True) == (2 * 4 * row, 2 * 4 * row + 2 * 3 * w)
    y, x = 2 * 3 * 9 * 7 * 8, 9 * row
    assert least_moved(task, False) == (y + 3 * y, 2 * 3 * x)


def test_shape_mismatches_are_reported():
    layer = Convolution(2, 3, 3, 1, 0, 9, 7)
    x, w = np.ones((1, 2, 9, 7)), np.ones((3, 2, 3, 3))
    for give, words in (
        (lambda: layer.forward(x[:, :1], w), "do not match"),
        (lambda: layer.forward(x[:, :, :2], w), "too few for a kernel of 3"),
        (
            lambda: layer.backward(np.ones((1, 3, 9, 7)), x, w),
            r"give outputs of shape \(1, 3, 7, 5\)",
        ),
    ):
        with pytest.raises(LabError, match=words):
            give()


def test_what_is_written_to_the_arrays_of_a_rank_reaches_no_other():
    task = SplitTask(Convolution(2, 3, 3, 1, 1, 9, 7), 3, seed=1)
    for by_rows in (True, False):
        for array in shares(task, by_rows, 0):
            array[:] = 0.0
        assert all(np.all(array != 0.0) for array in shares(task, by_rows, 1))
