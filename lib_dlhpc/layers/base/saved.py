"""State that a layer saves in forward for backward, and the types that all layers share.

Images and volumes are stored channels first and samples last: (channels, height, width, batch). The product of
a convolution is then already the next layer's input, and windows over space move long contiguous runs of
memory. All other arrays are stored samples first.
"""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import field
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from lib_dlhpc.records import dataclass

if TYPE_CHECKING:
    from lib_dlhpc.layers.base.arena import Arena

Array: TypeAlias = NDArray[Any]
Tensors: TypeAlias = dict[str, Array]  # a layer's weights, or their gradients, by name
Shapes: TypeAlias = dict[str, tuple[int, ...]]
Rng: TypeAlias = "np.random.Generator"  # as text: numpy.random takes long to import


PART = 32 * 1024  # elements


def parts(x: Array, elements: int = PART) -> Iterator[slice]:
    """Split the first axis, so that the temporary arrays of a part stay in cache."""
    step = max(1, elements * len(x) // max(1, x.size))
    yield from (slice(start, start + step) for start in range(0, len(x), step))


def chunks(*arrays: Array, elements: int = PART) -> Iterator[tuple[Array, ...]]:
    """Yield the same part of several arrays of one shape, for elementwise work."""
    if all(array.flags.c_contiguous for array in arrays):
        arrays = tuple(array.reshape(-1) for array in arrays)
    for part in parts(arrays[0], elements):
        yield tuple(array[part] for array in arrays)


def row_sums(rows: Array) -> Array:
    """Return the sum of each row, as a product: numpy's sum takes three times as long."""
    return rows @ np.ones(rows.shape[1], rows.dtype)


@contextmanager
def unbuffered() -> Iterator[None]:
    """Work on rows as they lie: numpy copies rows of less than 4,096 elements through buffers, in twice the time."""
    with np.errstate():  # it restores the size
        np.setbufsize(64)
        yield


def identity(values: Array) -> Array:
    """The allreduce of a run on one rank."""
    return values


def unrecorded(name: str, size: int, peer: int = -1) -> AbstractContextManager[None]:
    """A context manager for a message of `size` B that is not recorded."""
    return nullcontext()


def _arena() -> "Arena":
    from lib_dlhpc.layers.base.arena import Arena  # predictions have none

    return Arena()


@dataclass
class Context:
    """What a layer needs to know about the current pass."""

    training: bool = True
    recomputing: bool = False  # a forward pass recomputed in backward
    seed: int = 0
    step: int = 0
    first_sample: int = 0  # index of this rank's first sample in the global batch
    sum_over_ranks: Callable[[Array], Array] = identity
    groups: dict[str, Any] = field(default_factory=dict)  # communicators: "tensor", "spatial"
    communicates: Callable[..., AbstractContextManager[None]] = unrecorded
    arena: "Arena" = field(default_factory=_arena)

    def sum_over_group(self, group: str, values: Array) -> Array:
        """Return the sum of a small array over the ranks of a group."""
        comm = self.groups.get(group)
        if comm is None or comm.size == 1:
            return values
        own = np.ascontiguousarray(values)
        total = np.empty_like(own)
        with self.communicates(f"sum over {group}", total.nbytes):
            comm.Allreduce(own, total)
        return total


@dataclass
class Saved:
    """Saved state of one layer and one batch; the network releases the values after backward."""

    context: Context
    inplace: bool = False  # no other layer reads the first input, so the output may overwrite it
    wants_dx: bool = True  # False in the first layer: the gradient of the samples is not needed
    values: dict[str, Any] = field(default_factory=dict)
    # The gradient of the first input from its other readers; a layer may add to it and return it.
    others: Array | None = None

    def array(self, shape: tuple[int, ...], dtype: Any) -> Array:
        """Return an array to write to; its memory is reused after its last reference."""
        return self.context.arena.array(shape, dtype)
