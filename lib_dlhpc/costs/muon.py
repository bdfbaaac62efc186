"""Muon priced: which tensors it takes as matrices, and the FLOP, bytes and seconds of their orthogonalization.

Muon's step is the nearest semi-orthogonal matrix to the momentum of a weight matrix, by five Newton-Schulz iterations
on the m x n matrix X, m <= n, divided by its norm:

    A = X X'             2 m m n FLOP
    B = b A + c A A      2 m m m
    X = a X + B X        2 m m n, so 5 (4 m m n + 2 m m m) for all

The iterations run in bf16 whatever the precision. Kernels that use the symmetry of A and B, and so halve two of the
three products, are not modeled. Tables, logits, biases, scales and shifts take AdamW; a matrix of queries, keys and
values in one is one matrix, and so is the last of a classifier. Source: Jordan et al. 2024, "Muon: an optimizer for
hidden layers in neural networks" (kellerjordan.github.io/posts/muon); Liu et al. 2025, "Muon is scalable for LLM
training" (arXiv 2502.16982), section 2.
"""

from collections import Counter
from functools import lru_cache
from math import prod
from typing import Any, NamedTuple

import numpy as np

from lib_dlhpc.layers import Layer
from lib_dlhpc.spec.machine import Device
from lib_dlhpc.spec.model import Model

MUON = "muon"
STEPS = 5  # Newton-Schulz iterations
ELEMENT = 2  # B of an element of X
REST_STATE = 1  # numbers beside one: AdamW's second moment
REST_TRAFFIC = 2  # and what an update reads and writes of it


class Matrices(NamedTuple):
    """Matrices of one shape, stacked in a tensor."""

    many: int
    rows: int
    columns: int

    @property
    def elements(self) -> int:
        """Return the elements of all."""
        return self.many * self.rows * self.columns

    @property
    def flop(self) -> float:
        """Return the FLOP of the iterations of all."""
        short, long = sorted(self[1:])
        return STEPS * self.many * (4.0 * short * short * long + 2.0 * short**3)


def matrices(layer: Layer) -> dict[str, Matrices]:
    """Return the tensors of a layer that are orthogonalized, by name; those of experts are stacked, one each."""
    if not layer.trained or not layer.forward_flop or (layer.kind == "dense" and layer.mask_bytes):
        return {}
    shapes = getattr(layer.traits(layer), "shapes", None) or {}
    if layer.has_experts:
        return {name: Matrices(*shape) for name, shape in shapes.items() if len(shape) == 3}
    return {
        name: Matrices(1, shape[0], prod(shape[1:]))
        for name, shape in shapes.items()
        if len(shape) > 1
    }


@lru_cache(maxsize=4096)
def matrices_of(model: Model) -> tuple[tuple[int, Matrices], ...]:
    """Return the tensors of a model that are orthogonalized, each with the index of its layer."""
    return tuple(
        (index, matrix)
        for index, layer in enumerate(model.layers)
        for matrix in matrices(layer).values()
    )


def orthogonalized(model: Model) -> int:
    """Return the parameters of a model whose momentum is orthogonalized."""
    return sum(matrix.elements for _, matrix in matrices_of(model))


def rest(model: Model, optimizer: str) -> int:
    """Return the parameters that AdamW updates beside Muon; none with another optimizer."""
    return model.trained - orthogonalized(model) if optimizer == MUON else 0


def orthogonalization_time(model: Model, device: Device, rate: Any) -> Any:
    """Return the seconds in which a device orthogonalizes all matrices of a model; rate: FLOP/s of large products."""
    return sum(
        many * seconds(matrix, device, rate)
        for matrix, many in Counter(matrix for _, matrix in matrices_of(model)).items()
    )


def seconds(matrix: Matrices, device: Device, rate: Any) -> Any:
    """Return the seconds in which a device orthogonalizes the matrices of a tensor, each product by its roofline."""
    short, long = sorted(matrix[1:])
    thin, square = short * long, short * short
    products = ((thin, thin + square), (square, 2 * square), (thin, 2 * thin + square))
    total: Any = 0.0
    for elements, moved in products:
        arithmetic = (2.0 * matrix.many * short * elements + device.half_work) / rate
        memory = ELEMENT * matrix.many * moved / device.memory_bandwidth
        total = total + np.maximum(arithmetic, memory) + device.launch
    return STEPS * total
