"""What one layer keeps from its forward pass to its backward pass, and the types that all layers share.

Images and volumes lie channels first and samples last: (channels, height, width, batch). The product of
a convolution then already is the next layer's input, and whatever slides over space moves whole runs of
memory. All else lies samples first.
"""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from numpy.typing import NDArray

from lib_dlhpc.training.layers.room import Room

Array: TypeAlias = NDArray[Any]
Tensors: TypeAlias = dict[str, Array]  # a layer's weights, or their gradients, by name
Shapes: TypeAlias = dict[str, tuple[int, ...]]


PART = 32 * 1024  # elements


def parts(x: Array) -> Iterator[slice]:
    """Cut the first axis, so that the temporary arrays of a part stay in the cache."""
    step = max(1, PART * len(x) // max(1, x.size))
    yield from (slice(start, start + step) for start in range(0, len(x), step))


def together(*arrays: Array) -> Iterator[tuple[Array, ...]]:
    """Yield the same part of each of some arrays of one shape, for work on one element at a time."""
    if all(array.flags.c_contiguous for array in arrays):
        arrays = tuple(array.reshape(-1) for array in arrays)
    for part in parts(arrays[0]):
        yield tuple(array[part] for array in arrays)


def alone(values: Array) -> Array:
    """The sum over ranks of a run on one rank."""
    return values


def silent(name: str, size: int, peer: int = -1) -> AbstractContextManager[None]:
    """What is around a message of `size` B when nobody takes it down."""
    return nullcontext()


@dataclass
class Context:
    """What a layer must know of the pass it is in."""

    training: bool = True
    again: bool = False  # a forward pass that backward makes once more
    seed: int = 0
    step: int = 0
    first_sample: int = 0  # of this rank's samples in the global batch
    sum_over_ranks: Callable[[Array], Array] = alone
    groups: dict[str, Any] = field(default_factory=dict)  # communicators: "tensor", "spatial"
    communicates: Callable[..., AbstractContextManager[None]] = silent
    room: Room = field(default_factory=Room)


@dataclass
class Kept:
    """Of one layer and one batch; the network lets go of the values when backward has used them."""

    context: Context
    inplace: bool = False  # nobody else reads the input, so the output may take its place
    wants_dx: bool = True  # False in the first layer: nobody reads the gradient of the samples
    values: dict[str, Any] = field(default_factory=dict)

    def array(self, shape: tuple[int, ...], dtype: Any) -> Array:
        """Return an array to write to; its memory is used again when nobody has it any more."""
        return self.context.room.array(shape, dtype)
