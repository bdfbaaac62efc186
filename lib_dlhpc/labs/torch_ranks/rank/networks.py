"""Networks of PyTorch with the weights of ours: flat numpy arrays, each matrix as (inputs, outputs), then its bias."""

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

Array: TypeAlias = NDArray[Any]


def perceptron(
    widths: Sequence[int], weights: Array, activation: type[nn.Module], last: bool = False
) -> nn.Sequential:
    """Return dense layers with an activation between them, in float64; last: also after the last one."""
    layers: list[nn.Module] = []
    for inputs, outputs in pairwise(widths):
        layers += [nn.Linear(inputs, outputs, dtype=torch.float64), activation()]
    network = nn.Sequential(*(layers if last else layers[:-1]))
    set_weights(network, weights)
    return network


def set_weights(network: nn.Module, weights: Array) -> None:
    """Copy flat weights into a network."""
    place = 0
    with torch.no_grad():
        for own in network.parameters():
            shape = own.shape[::-1]
            own.copy_(
                torch.from_numpy(weights[place : place + own.numel()].reshape(shape).T.copy())
            )
            place += own.numel()


def weights_of(network: nn.Module) -> Array:
    """Return a copy of the weights of a network, flat."""
    return np.concatenate([own.detach().numpy().T.ravel() for own in network.parameters()])
