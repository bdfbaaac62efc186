"""A learner's partition of one convolution over ranks, run on emulated ranks and compared with one rank.

forward(x, w, layer, cut, comm) returns (y, kept); backward(dy, kept, w, layer, cut, comm) returns (dx, dw).
By filters: every rank has the full x and its own filters of w; y and dy are full. By rows: every rank has
its own rows of x, y, dy and dx, and the full w and dw.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from lib_dlhpc.labs.emulated.ranks import emulate
from lib_dlhpc.labs.mistakes import LabError, ranks_named
from lib_dlhpc.layers.base.saved import Array

Range: TypeAlias = tuple[int, int]  # first, one past last
Step: TypeAlias = Callable[..., Any]


@dataclass(frozen=True)
class Convolution:
    """A convolution in two dimensions, the same along both. x: (samples, channels, rows, columns)."""

    channels: int
    filters: int
    kernel: int
    stride: int
    padding: int
    rows: int
    columns: int

    def outputs(self, size: int, padding: int | None = None) -> int:
        """Return how many outputs `size` inputs give along one dimension."""
        padding = self.padding if padding is None else padding
        return (size + 2 * padding - self.kernel) // self.stride + 1

    def forward(self, x: Array, w: Array, padding: tuple[int, int] | None = None) -> Array:
        """Return y of x. w: (filters, channels, kernel, kernel). padding: zero padding of rows and columns."""
        windows = self._windows(_padded(x, self._both(padding)), w)
        return np.ascontiguousarray(np.einsum("nchwij,fcij->nfhw", windows, w, optimize=True))

    def backward(
        self, dy: Array, x: Array, w: Array, padding: tuple[int, int] | None = None
    ) -> tuple[Array, Array]:
        """Return dx and dw of `forward` with the same x, w and padding."""
        rows, columns = self._both(padding)
        tall = _padded(x, (rows, columns))
        windows = self._windows(tall, w)
        if dy.shape[2:] != windows.shape[2:4] or dy.shape[1] != len(w):
            raise LabError(
                f"dy is of shape {dy.shape}, but x of shape {x.shape}, w of shape {w.shape} and padding"
                f" {(rows, columns)} give outputs of shape {(len(x), len(w), *windows.shape[2:4])}."
            )
        dw = np.einsum("nfhw,nchwij->fcij", dy, windows, optimize=True)
        dx = np.zeros_like(tall)
        spread = np.einsum("nfhw,fcij->nchwij", dy, w, optimize=True)
        high, wide = (self.stride * size for size in dy.shape[2:])
        for i in range(self.kernel):
            for j in range(self.kernel):
                dx[:, :, i : i + high : self.stride, j : j + wide : self.stride] += spread[
                    ..., i, j
                ]
        dx = dx[:, :, rows : dx.shape[2] - rows, columns : dx.shape[3] - columns]
        return np.ascontiguousarray(dx), np.ascontiguousarray(dw)

    def _both(self, padding: tuple[int, int] | None) -> tuple[int, int]:
        return (self.padding, self.padding) if padding is None else padding

    def _windows(self, x: Array, w: Array) -> Array:
        if w.ndim != 4 or x.ndim != 4 or w.shape[1:] != (x.shape[1], self.kernel, self.kernel):
            raise LabError(f"x of shape {x.shape} and w of shape {w.shape} do not match.")
        if min(x.shape[2:]) < self.kernel:
            raise LabError(
                f"{x.shape[2]} rows and {x.shape[3]} columns, padding included, are too few for a kernel of"
                f" {self.kernel}."
            )
        view = np.lib.stride_tricks.sliding_window_view(x, (self.kernel, self.kernel), axis=(2, 3))
        return view[:, :, :: self.stride, :: self.stride]


class Cut(NamedTuple):
    """Each rank's filters, input rows and output rows. (first, one past last) of each."""

    filters: tuple[Range, ...]
    rows: tuple[Range, ...]
    outputs: tuple[Range, ...]


@dataclass(frozen=True)
class SplitTask:
    """A convolution, the number of ranks, and the seed of its test data."""

    layer: Convolution
    ranks: int
    seed: int
    samples: int = 2

    @property
    def cut(self) -> Cut:
        """Return the partition."""
        return cut_of(self.layer, self.ranks)

    def arrays(self) -> tuple[Array, Array, Array]:
        """Return x, w and dy, unpartitioned; copies, to which a learner's code may write."""
        x, w, dy = _drawn(self)
        return x.copy(), w.copy(), dy.copy()

    def whole(self) -> tuple[Array, Array, Array]:
        """Return y, dx and dw on one rank."""
        x, w, dy = self.arrays()
        return self.layer.forward(x, w), *self.layer.backward(dy, x, w)

    def words(self) -> str:
        """Return the task in words."""
        own = self.layer
        return (
            f"{self.ranks} ranks, {own.rows} rows, {own.filters} filters, kernel {own.kernel}, stride"
            f" {own.stride}, padding {own.padding}"
        )


@lru_cache(maxsize=64)
def _drawn(task: SplitTask) -> tuple[Array, Array, Array]:
    """Return x, w and dy of a task; all ranks of all its runs have the same."""
    rng, own = np.random.default_rng(task.seed), task.layer
    x = rng.normal(size=(task.samples, own.channels, own.rows, own.columns))
    w = rng.normal(size=(own.filters, own.channels, own.kernel, own.kernel))
    shape = task.samples, own.filters, own.outputs(own.rows), own.outputs(own.columns)
    return x, w, rng.normal(size=shape)


class Ended(NamedTuple):
    """The results of a pass on all ranks: two for each rank, and the B in and out of all calls."""

    first: list[Any]  # y; dx
    second: list[Any]  # saved state; dw
    moved: int  # on all ranks together


def cut_of(layer: Convolution, ranks: int) -> Cut:
    """Return an even partition."""
    sizes = layer.filters, layer.rows, layer.outputs(layer.rows)
    return Cut(*(_even(size, ranks) for size in sizes))


def shares(task: SplitTask, by_rows: bool, rank: int) -> tuple[Array, Array, Array]:
    """Return copies of a rank's parts of x, w and dy."""
    x, w, dy = task.arrays()
    if by_rows:
        (a, b), (c, d) = task.cut.rows[rank], task.cut.outputs[rank]
        return x[:, :, a:b].copy(), w, dy[:, :, c:d].copy()
    a, b = task.cut.filters[rank]
    return x, w[a:b].copy(), dy


def rank_forward(forward: Step, task: SplitTask, by_rows: bool, comm: Any) -> tuple[Any, Any, int]:
    """Return what the learner's forward gives on a rank of `comm`: y, saved state, B moved."""
    x, w, _ = shares(task, by_rows, comm.rank)
    y, kept = _pair(forward(x, w, task.layer, task.cut, comm), "(y, kept)")
    _all_waited(comm)
    return y, kept, getattr(comm, "moved", 0)


def rank_backward(
    backward: Step, kept: Any, task: SplitTask, by_rows: bool, comm: Any
) -> tuple[Any, Any, int]:
    """Return what the learner's backward gives on a rank of `comm`: dx, dw, B moved."""
    _, w, dy = shares(task, by_rows, comm.rank)
    before = getattr(comm, "moved", 0)
    dx, dw = _pair(backward(dy, kept, w, task.layer, task.cut, comm), "(dx, dw)")
    _all_waited(comm)
    return dx, dw, getattr(comm, "moved", 0) - before


def emulate_forward(forward: Step, task: SplitTask, by_rows: bool) -> Ended:
    """Run the learner's forward on emulated ranks. Raises LabError: see `emulate`."""
    return _ended(emulate(task.ranks, lambda comm: rank_forward(forward, task, by_rows, comm)))


def emulate_backward(backward: Step, kept: list[Any], task: SplitTask, by_rows: bool) -> Ended:
    """Run the learner's backward on emulated ranks. Raises LabError: see `emulate`."""
    return _ended(
        emulate(
            task.ranks, lambda comm: rank_backward(backward, kept[comm.rank], task, by_rows, comm)
        )
    )


def wanted(task: SplitTask, rank: int) -> Range:
    """Return the rows of the whole input that a rank's outputs read; some may be padding."""
    own, (first, stop) = task.layer, task.cut.outputs[rank]
    start = first * own.stride - own.padding
    return start, start + (stop - first - 1) * own.stride + own.kernel


def borrowed(task: SplitTask, rank: int) -> list[int]:
    """Return the rows that a rank's outputs read and another rank owns."""
    own = range(*task.cut.rows[rank])
    return [
        row
        for row in range(*wanted(task, rank))
        if row in range(task.layer.rows) and row not in own
    ]


def least_moved(task: SplitTask, by_rows: bool) -> tuple[int, int]:
    """Return the minimum B in and out of all ranks together: forward, backward."""
    x, w, dy = task.arrays()
    if by_rows:
        rows = sum(len(borrowed(task, rank)) for rank in range(task.ranks))
        halo = 2 * rows * (x.nbytes // task.layer.rows)
        return halo, halo + 2 * task.ranks * w.nbytes
    return dy.nbytes * (1 + task.ranks), 2 * task.ranks * x.nbytes


def _even(size: int, parts: int) -> tuple[Range, ...]:
    each, more = divmod(size, parts)  # the first parts have one more
    bounds = [k * each + min(k, more) for k in range(parts + 1)]
    return tuple(pairwise(bounds))


def _padded(x: Array, padding: tuple[int, int]) -> Array:
    rows, columns = padding
    return np.pad(x, ((0, 0), (0, 0), (rows, rows), (columns, columns)))


def _pair(result: Any, names: str) -> tuple[Any, Any]:
    if not isinstance(result, tuple) or len(result) != 2:
        raise LabError(f"The function returned {type(result).__name__}; expected {names}.")
    return result


def _all_waited(comm: Any) -> None:
    """Raise LabError if an emulated rank never waited for a message that it has sent."""
    lost = [each.target for each in getattr(comm, "messages", []) if not each.waited]
    if lost:
        raise LabError(
            f"rank {comm.rank} never waits for what it sends to "
            f"{ranks_named(sorted(set(lost)))}. Until it does, MPI may not have sent it."
        )


def _ended(results: list[tuple[Any, Any, int]]) -> Ended:
    first, second, moved = zip(*results, strict=True)
    return Ended(list(first), list(second), sum(moved))
