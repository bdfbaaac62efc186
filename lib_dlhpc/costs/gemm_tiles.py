"""Matrix products in tiles: how much of a device works on a product of a given shape.

A product of m x n numbers is cut into tiles, each computed by one multiprocessor. P multiprocessors take
ceil(tiles / P) waves; in the last wave, and in tiles that overhang the edges, some compute nothing. The
library picks the tile that is quickest; small ones fit better, but reuse less of what they read.
Source: NVIDIA, "Matrix Multiplication Background User's Guide", sections "Tile quantization" and "Wave quantization".
"""

from functools import lru_cache
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lib_dlhpc.spec.model import Model

# Rows and columns of a tile, and its rate relative to the largest: the order is the guide's, the numbers are
# an estimate from arithmetic intensity per tile.
TILES = (
    (256, 128, 1.0),
    (128, 256, 1.0),
    (128, 128, 0.95),
    (128, 64, 0.8),
    (64, 128, 0.8),
    (64, 64, 0.6),
)


def used(rows: Any, columns: Any, multiprocessors: Any) -> Any:
    """Return the part of the rate of large products that one of rows x columns reaches: above 0, at most 1."""
    shape = np.broadcast_shapes(*map(np.shape, (rows, columns, multiprocessors)))
    height, width, rate = np.reshape(np.transpose(TILES), (3, len(TILES), *(1,) * len(shape)))
    tiles = np.ceil(rows / height) * np.ceil(columns / width)
    slots = np.ceil(tiles / multiprocessors) * multiprocessors * height * width
    return (rate * rows * columns / slots).max(axis=0)


@lru_cache(maxsize=256)
def shapes(model: Model) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    """Return of each dense layer the rows a sample, and the features of its input and output; 0 for other layers."""
    dense = [layer.kind == "dense" for layer in model.layers]
    rows = [prod(layer.output_shape[:-1]) for layer in model.layers]
    inputs = [layer.input_shape[-1] if layer.input_shape else 0 for layer in model.layers]
    outputs = [layer.output_shape[-1] if layer.output_shape else 0 for layer in model.layers]
    return tuple(np.where(dense, sizes, 0.0) for sizes in (rows, inputs, outputs))  # type: ignore[return-value]


def slower(products: tuple[Any, Any, Any], batch: Any, multiprocessors: Any) -> tuple[Any, Any]:
    """Return by which factor the products of each layer take longer, in forward and for the gradient of the input.

    products: as of `shapes`. multiprocessors: 0: any product fills the device. batch: with a last axis for the layers.
    The product of weight gradients sums over the rows of the batch, which libraries cut as well where there are few
    tiles: it fills it.
    """
    rows, inputs, outputs = products
    cut, at_once = (rows > 0) & np.greater(multiprocessors, 0), np.maximum(multiprocessors, 1)
    many = np.maximum(batch * rows, 1.0)
    ahead = used(many, np.maximum(outputs, 1.0), at_once)
    back = used(many, np.maximum(inputs, 1.0), at_once)
    return np.where(cut, 1 / ahead, 1.0), np.where(cut, 1 / back, 1.0)
