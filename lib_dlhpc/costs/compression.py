"""Deep gradient compression priced: what a rank sends of each tensor, and the memory traffic to select and add it.

Every replica sends the k elements of largest magnitude of each tensor as (value, index) pairs, all-gathered; biases,
scales and shifts, and tensors of which everything is sent, are allreduced. All of it follows the backward pass. A
step is priced after the warm-up. Source: Lin et al. 2018, "Deep gradient compression", section 3.
"""

from functools import lru_cache
from math import floor, prod
from typing import NamedTuple

import numpy as np

from lib_dlhpc.costs.roofline import BYTES, streaming_time
from lib_dlhpc.spec.experiment import Experiment
from lib_dlhpc.spec.model import Model
from lib_dlhpc.spec.training import Training

INDEX_BYTES = 4
# tensors that are compressed, and take weight decay
MATRICES = ("weight", "recurrent", "expand", "contract")
ARRAYS = 2  # of the size of the weights: the velocity and the unsent gradients, in place of the optimizer's state
# Numbers read or written for each gradient: u = m u + g and v = v + u are 3 each, magnitudes 2; they are compared with
# a threshold, from a sample too small to count; the result is cleared.
SELECTION_TRAFFIC = 3 + 3 + 2 + 1 + 1


class SentElements(NamedTuple):
    """Elements that a rank sends in a step: as pairs, and in tensors that are sent whole."""

    pairs: int
    whole: int


def density(training: Training, epoch: float) -> float:
    """Return the fraction of a tensor that is sent, between 0 and 1.

    The fraction falls by the same factor in each epoch of the warm-up: with sparsity 0.999 after 4 epochs, 75, 94,
    98.4, 99.6, then 99.9% stay local (Lin et al. 2018, section 3.3).
    """
    last = 1 - training.sparsity
    if epoch >= training.sparsity_warm_up:
        return last
    return float(last ** ((floor(epoch) + 1) / (training.sparsity_warm_up + 1)))


def count(size: int, is_matrix: bool, share: float) -> int:
    """Return how many of the `size` elements of a tensor are sent if a fraction `share` of matrices is."""
    return max(1, round(share * size)) if is_matrix else size


def sent(model: Model, share: float) -> SentElements:
    """Return what a rank sends of a model's gradients if a fraction `share` of matrices is sent."""
    pairs = whole = 0
    for shape, is_matrix in tensors(model):
        size = prod(shape)
        many = count(size, is_matrix, share)
        if many < size:
            pairs += many
        else:
            whole += size
    return SentElements(pairs, whole)


@lru_cache(maxsize=256)
def tensors(model: Model) -> tuple[tuple[tuple[int, ...], bool], ...]:
    """Return the shape of each tensor, and whether it is a matrix; a layer with unknown tensors is one row."""
    found: list[tuple[tuple[int, ...], bool]] = []
    for layer in model.layers:
        shapes = getattr(layer.traits(layer), "shapes", None) if layer.parameters else {}
        if shapes is None:
            found.append(((1, layer.parameters), True))
        else:
            found += [(tuple(shape), name in MATRICES) for name, shape in shapes.items()]
    return tuple(found)


def pair_bytes(precision: str) -> int:
    """Return the bytes of an element that is sent: its value and its index."""
    return BYTES[precision] + INDEX_BYTES


def selection_time(experiment: Experiment) -> float:
    """Return the seconds in which a rank finds what it sends."""
    strategy = experiment.strategy
    moved = SELECTION_TRAFFIC * experiment.model.parameters * BYTES[strategy.precision]
    return float(streaming_time(experiment.machine.device, strategy.optimizer, moved))


def addition_time(experiment: Experiment, pairs: float) -> float:
    """Return the seconds in which a rank adds the pairs of all ranks: reads each, reads and writes where it goes."""
    strategy = experiment.strategy
    moved = pairs * (pair_bytes(strategy.precision) + 2 * BYTES[strategy.precision])
    return float(streaming_time(experiment.machine.device, strategy.optimizer, moved))


def applied_rule(experiment: Experiment) -> str:
    """Return the optimizer whose update is applied: sums of compressed gradients have momentum already."""
    return "sgd" if np.any(experiment.training.sparsity) else experiment.strategy.optimizer
