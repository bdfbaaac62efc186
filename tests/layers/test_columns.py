"""Columns hold what the outputs of a convolution read, each row of inputs once."""

import numpy as np
import pytest
from layer_references import model_of
from numpy.lib.array_utils import byte_bounds
from numpy.lib.stride_tricks import sliding_window_view

from lib_dlhpc.layers import Context, Saved
from lib_dlhpc.layers.base import columns

WINDOW = {"kernel": (3, 3), "stride": (1, 1), "padding": (1, 1)}


def test_rows_of_outputs_share_their_columns():
    """A kernel of 3 x 3 copies its input 3 times, not 9."""
    x = np.random.default_rng(0).normal(size=(2, 4, 5, 3))
    own = columns.Columns((4, 5), (4, 5), WINDOW)
    ((block, found),) = own.read(Saved(Context()), x)
    assert (block.rows, block.positions) == (slice(0, 4), slice(0, 15))
    around = np.pad(x, ((0, 0), (1, 1), (1, 1), (0, 0)))
    windows = sliding_window_view(around, (3, 3), axis=(1, 2))  # (2, 4, 5, batch, 3, 3)
    expected = windows.transpose(1, 4, 0, 5, 2, 3).reshape(1, 4, 18, 15)
    np.testing.assert_array_equal(found, expected)
    first, last = byte_bounds(found)
    lines = (4 + 2) * 2 * 3  # rows with padding, channels, taps in a row
    assert last - first == (lines * (15 + columns.APART) - columns.APART) * x.itemsize


@pytest.mark.parametrize(
    ("shape", "kernel", "copies"),
    [((4, 6, 5), 3, 3), ((4, 6, 5, 7), 3, 9), ((4, 6, 5), [5, 1], 1), ((4, 9), 3, 3)],
)
def test_traffic_is_a_copy_for_each_tap_of_a_row(shape, kernel, copies):
    padding = (kernel - 1) // 2 if isinstance(kernel, int) else [2, 0]
    layer = model_of(
        shape, {"kind": "conv", "channels": 3, "kernel": kernel, "padding": padding}
    ).layers[-1]
    assert layer.traits.numpy_traffic(layer) == copies * np.prod(shape)


@pytest.mark.parametrize(("rows", "outputs"), [(0, 0), (1, 0), (2, 0)])
def test_rows_without_outputs_have_no_columns(rows, outputs):
    """Of a partitioned image, a rank may have fewer rows than a kernel covers."""
    own = columns.Columns((rows, 5), (outputs, 5), WINDOW | {"padding": (0, 1)})
    assert not list(own.read(Saved(Context()), np.ones((2, rows, 5, 3))))
