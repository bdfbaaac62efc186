"""What a rank of ZeRO held and updated, and what it is compared with: momentum on one rank."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from lib_dlhpc.labs.emulated.data_parallel_step import Task
from lib_dlhpc.labs.torch_ranks.rank import MOMENTUM
from lib_dlhpc.layers.base.saved import Array
from lib_dlhpc.training.loss import softmax_cross_entropy


class Held(NamedTuple):
    """What a rank did. weights: (steps, those that it updated). bytes: held at the last update. view: a slice that
    keeps more than itself, as (numbers, numbers of its storage), or None. moved: B in and out of a step, on average.
    """

    weights: Array
    bytes: int
    view: tuple[int, int] | None
    moved: float


def one_rank_with_momentum(task: Task) -> Array:
    """Return the weights after each step of one rank that has all samples."""
    network, weights = task.network(), []
    momentum = np.zeros_like(network.weights)
    for x, y in task.batches():
        _, dy = softmax_cross_entropy(network.forward(x), y, len(x))
        network.backward(dy)
        momentum = MOMENTUM * momentum + network.gradients
        network.weights -= task.rate * momentum
        weights.append(network.weights.copy())
    return np.array(weights)


def updated(held: Sequence[Held], size: int) -> Array | None:
    """Return all weights after each step, (steps, size), from what ranks updated; None if that is not all, once.

    Ranks that update all weights agree, else this is None as well.
    """
    parts = [each.weights for each in held]
    if all(part.shape[1] == size for part in parts):
        return parts[0] if all(np.array_equal(part, parts[0]) for part in parts) else None
    whole = np.concatenate(parts, axis=1)
    return whole if whole.shape[1] == size else None
