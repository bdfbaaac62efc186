"""What one layer keeps from its forward pass to its backward pass, and the types that all layers share.

Images and volumes lie channels first and samples last: (channels, height, width, batch). The product of
a convolution then already is the next layer's input, and whatever slides over space moves whole runs of
memory. All else lies samples first.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

Array: TypeAlias = NDArray[Any]
Tensors: TypeAlias = dict[str, Array]  # a layer's weights, or their gradients, by name
Shapes: TypeAlias = dict[str, tuple[int, ...]]


def alone(values: Array) -> Array:
    """The sum over ranks of a run on one rank."""
    return values


@dataclass
class Context:
    """What a layer must know of the pass it is in."""

    training: bool = True
    seed: int = 0
    step: int = 0
    first_sample: int = 0  # of this rank's samples in the global batch
    sum_over_ranks: Callable[[Array], Array] = alone


@dataclass
class Kept:
    """Of one layer and one batch. `array` gives the same memory at every step, so nothing is allocated."""

    context: Context
    inplace: bool = False  # nobody else reads the input, so the output may take its place
    wants_dx: bool = True  # False in the first layer: nobody reads the gradient of the samples
    values: dict[str, Any] = field(default_factory=dict)
    _memory: Tensors = field(default_factory=dict)

    def array(self, name: str, shape: tuple[int, ...], dtype: Any) -> Array:
        """Return an array to write to; a smaller one than before takes a part of the same memory."""
        size = int(np.prod(shape))
        memory = self._memory.get(name)
        if memory is None or memory.size < size or memory.dtype != dtype:
            memory = self._memory[name] = np.empty(size, dtype)
        return memory[:size].reshape(shape)
