"""Optimizers on the flat arrays of a Network: SGD, momentum, LARS, Adam, LAMB, Muon.

Weight decay applies to weights only; biases, scales and shifts take neither decay nor a local rate.
With LARS and LAMB these are updated by the plain gradient, so a bias of zeros is updated as well.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from lib_dlhpc.layers.base.saved import Array, Tensors, parts
from lib_dlhpc.spec.training import Training
from lib_dlhpc.training.newton_schulz import orthogonal_step
from lib_dlhpc.training.weights import Parameter

BETA1, BETA2, EPSILON = 0.9, 0.999, 1e-8


class Weights(Protocol):
    """What an optimizer updates: a network, or a rank's shard of one."""

    weights: Any
    gradients: Any
    parameters: Any  # a shard may have none of them, or some elements


@dataclass
class Optimizer:
    """One of RULES with its state, a flat array for each state variable. `state` belongs to a checkpoint.

    whole: turns a shard's sums of squares into those of full tensors: called with one value for each tensor
    that decays, and their names. gather: returns a full tensor, flat, and where this shard's part of it begins.
    """

    name: str
    training: Training
    state: Tensors = field(default_factory=dict)
    updates: int = 0
    whole: Callable[[Array, list[str]], Array] = lambda squares, names: squares
    gather: Callable[[Parameter, Array], tuple[Array, int]] = lambda parameter, part: (part, 0)

    def update(self, network: Weights, rate: float) -> None:
        """Update all weights with the gradients of the mean loss."""
        self.updates += 1
        RULES[self.name](self, network, rate)

    def memory(self, name: str, network: Weights) -> Array:
        """Return a persistent flat array, one number for each weight, initially zero."""
        if name not in self.state:
            self.state[name] = np.zeros_like(network.weights)
        return self.state[name]


def sgd(optimizer: Optimizer, network: Weights, rate: float) -> None:
    """w -= rate (g + decay w)."""
    step = network.gradients
    _decay(optimizer, network, step)
    step *= step.dtype.type(rate)
    network.weights -= step


def momentum(optimizer: Optimizer, network: Weights, rate: float) -> None:
    """v = m v + g + decay w; w -= rate v (Goyal et al. 2017, equation 9)."""
    velocity, step = optimizer.memory("velocity", network), network.gradients
    _decay(optimizer, network, step)
    velocity *= velocity.dtype.type(optimizer.training.momentum)
    velocity += step
    np.multiply(velocity, step.dtype.type(rate), out=step)
    network.weights -= step


def lars(optimizer: Optimizer, network: Weights, rate: float) -> None:
    """v = m v + rate local (g + decay w), local = trust |w| / (|g| + decay |w|); w -= v.

    Biases, scales and shifts take local = trust: at the large global rates of LARS, 10 and more, a bias
    updated by the plain rule would diverge.
    Source: You et al. 2017, "Large batch training of convolutional networks", algorithm 1.
    """
    velocity, step = optimizer.memory("velocity", network), network.gradients
    decay = optimizer.training.weight_decay
    lengths, slopes = _norms(optimizer, network, network.weights), _norms(optimizer, network, step)
    for parameter in network.parameters:
        part = slice(parameter.start, parameter.stop)
        g, w = step[part], network.weights[part]
        local = optimizer.training.trust
        if parameter.decays:
            length = next(lengths)
            local *= _ratio(length, next(slopes) + decay * length)
            _add(g, decay, w)
        g *= g.dtype.type(rate * local)
    velocity *= velocity.dtype.type(optimizer.training.momentum)
    velocity += step
    network.weights -= velocity


def adam(optimizer: Optimizer, network: Weights, rate: float) -> None:
    """w -= rate (m / (sqrt(v) + e) + decay w), bias-corrected (Kingma and Ba 2015; Loshchilov and Hutter 2019)."""
    step = _adam_step(optimizer, network)
    step *= step.dtype.type(rate)
    network.weights -= step


def lamb(optimizer: Optimizer, network: Weights, rate: float) -> None:
    """Adam's step, scaled for each tensor to the length of its weights (You et al. 2020, algorithm 2)."""
    step = _adam_step(optimizer, network)
    lengths, steps = _norms(optimizer, network, network.weights), _norms(optimizer, network, step)
    for parameter in network.parameters:
        part = slice(parameter.start, parameter.stop)
        local = 1.0
        if parameter.decays:
            local = _ratio(next(lengths), next(steps))
        step[part] *= step.dtype.type(rate * local)
    network.weights -= step


def muon(optimizer: Optimizer, network: Weights, rate: float) -> None:
    """v = m v + g; w -= rate (0.2 sqrt(max(rows, columns)) O(g + m v) + decay w), O: the nearest orthogonal matrix.

    So for weight matrices; tables, logits, biases, scales and shifts take AdamW at the same rate. Second moments of
    matrices stay zero: the system gives their pages no memory. Source: Jordan et al. 2024; Liu et al. 2025
    (arXiv 2502.16982), section 2.2.
    """
    first, second, step = (
        optimizer.memory("first", network),
        optimizer.memory("second", network),
        network.gradients,
    )
    friction = step.dtype.type(optimizer.training.momentum)
    for parameter in network.parameters:
        part = slice(parameter.start, parameter.stop)
        velocity, g = first[part], step[part]
        if parameter.matrices is None:
            _adam_direction(optimizer, velocity, second[part], g)
            continue
        velocity *= friction
        velocity += g
        g += friction * velocity
        flat, begin = optimizer.gather(parameter, g)
        g[...] = orthogonal_step(flat, parameter.matrices, begin, begin + g.size)
    _decay(optimizer, network, step)
    step *= step.dtype.type(rate)
    network.weights -= step


RULES: dict[str, Callable[[Optimizer, Weights, float], None]] = {
    "sgd": sgd,
    "momentum": momentum,
    "lars": lars,
    "adam": adam,
    "lamb": lamb,
    "muon": muon,
}

# Optimizer state of each rule, one number for each weight and name.
MEMORIES: dict[str, tuple[str, ...]] = {
    "sgd": (),
    "momentum": ("velocity",),
    "lars": ("velocity",),
    "adam": ("first", "second"),
    "lamb": ("first", "second"),
    "muon": ("first", "second"),
}


def _adam_step(optimizer: Optimizer, network: Weights) -> Array:
    """Replace the gradients by Adam's step, a part at a time."""
    first, second = optimizer.memory("first", network), optimizer.memory("second", network)
    _adam_direction(optimizer, first, second, network.gradients)
    _decay(optimizer, network, network.gradients)
    return network.gradients


def _adam_direction(optimizer: Optimizer, *whole: Array) -> None:
    """Replace gradients, after the first and the second moments, by m / (sqrt(v) + e), bias-corrected."""
    kind = whole[0].dtype.type
    for part in parts(whole[0]) if whole[0].size else ():
        first, second, g = (array[part] for array in whole)
        first += kind(1 - BETA1) * (g - first)
        second += kind(1 - BETA2) * (g * g - second)
        np.sqrt(second / kind(1 - BETA2**optimizer.updates), out=g)
        g += kind(EPSILON)
        np.divide(first, g, out=g)
        g /= kind(1 - BETA1**optimizer.updates)


def _decay(optimizer: Optimizer, network: Weights, step: Array) -> None:
    if optimizer.training.weight_decay:
        for part in _decaying(network.parameters):
            _add(step[part], optimizer.training.weight_decay, network.weights[part])


def _add(step: Array, factor: float, weights: Array) -> None:
    """step += factor weights, without a full-size temporary array."""
    for part in parts(step):
        step[part] += step.dtype.type(factor) * weights[part]


def _decaying(parameters: list[Parameter]) -> list[slice]:
    return [slice(parameter.start, parameter.stop) for parameter in parameters if parameter.decays]


def _norms(optimizer: Optimizer, network: Weights, flat: Array) -> Iterator[float]:
    """Return the norms of the tensors that decay, in their order."""
    squares = [np.dot(flat[part], flat[part]) for part in _decaying(network.parameters)]
    names = [parameter.name for parameter in network.parameters if parameter.decays]
    return iter(np.sqrt(optimizer.whole(np.array(squares, flat.dtype), names)).tolist())


def _ratio(over: float, under: float) -> float:
    """Return the trust ratio; 1 for a tensor of zeros or without gradient."""
    return over / under if over > 0 and under > 0 else 1.0
