"""Low-rank compression priced: what a rank sends of each matrix, and the memory traffic and FLOP of its products.

A gradient M of n rows and m columns, with what earlier steps left out, is sent as two factors of r columns: P = M Q,
then Q = M' P with the columns of P orthonormal. Tensors whose factors are not smaller are sent whole, with P. Source:
Vogels et al. 2019, "PowerSGD: Practical low-rank gradient compression for distributed optimization", algorithms 1, 2.
"""

from functools import lru_cache
from math import prod
from typing import NamedTuple

from lib_dlhpc.costs.compression import tensors
from lib_dlhpc.costs.power_limit import clocked
from lib_dlhpc.costs.roofline import BYTES, peak_rate, streaming_time
from lib_dlhpc.spec.experiment import Experiment
from lib_dlhpc.spec.model import Model

# Numbers read or written for each element of a matrix: M = g + e is 3, a product with M 1; then the product P Q' is
# written, and e = M - P Q' / p is 3.
FIRST_TRAFFIC, SECOND_TRAFFIC, LAST_TRAFFIC = 3 + 1, 1, 1 + 3


class SentElements(NamedTuple):
    """Elements that a rank sends in a step: of P, of Q, and in tensors that are sent whole; those of the matrices."""

    left: int
    right: int
    whole: int
    elements: int


def matrix(shape: tuple[int, ...]) -> tuple[int, int]:
    """Return the rows and columns as which a tensor is compressed: its first axis, and all others."""
    return shape[0], prod(shape[1:])


def is_factored(shape: tuple[int, ...], is_matrix: bool, rank: int) -> bool:
    """Return whether the factors of a tensor are smaller than it."""
    rows, columns = matrix(shape)
    return is_matrix and rank * (rows + columns) < rows * columns


@lru_cache(maxsize=256)
def sent(model: Model, rank: int) -> SentElements:
    """Return what a rank sends of a model's gradients in factors of `rank` columns."""
    left = right = whole = elements = 0
    for shape, is_matrix in tensors(model):
        if is_factored(shape, is_matrix, rank):
            rows, columns = matrix(shape)
            left, right = left + rank * rows, right + rank * columns
            elements += rows * columns
        else:
            whole += prod(shape)
    return SentElements(left, right, whole, elements)


def product_time(experiment: Experiment, traffic: int) -> float:
    """Return the seconds of a product with all matrices that reads or writes `traffic` numbers an element."""
    strategy = experiment.strategy
    device = clocked(experiment.machine.device, strategy.power_limit)
    rank = int(experiment.training.low_rank)
    elements = sent(experiment.model, rank).elements
    flop_rate = peak_rate(device, strategy.precision) * device.efficiency
    moved = traffic * elements * BYTES[strategy.precision]
    arithmetic = device.slowdown * 2 * rank * elements / flop_rate
    return float(max(streaming_time(device, strategy.optimizer, moved), arithmetic))
