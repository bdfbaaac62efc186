"""Activation offload: saved activations wait on disk for the backward pass (Rhu et al. 2016, "vDNN").

Forward writes what each layer saves and waits for the writes of the layer before the previous one, so a bounded
amount is in flight. Backward reads it back from the last layer to the first and prefetches the next layer while
one computes. An array that several layers save is written once and read once.
"""

from collections import deque
from dataclasses import dataclass, field
from typing import Any
from weakref import ref

import numpy as np

from lib_dlhpc.layers.base.arena import Arena
from lib_dlhpc.layers.base.saved import Array
from lib_dlhpc.training.disk import Disk

SMALL = 32 * 1024  # bytes; smaller arrays stay in memory
AHEAD = 2  # layers with writes in flight


@dataclass
class Piece:
    """A block of bytes in the file, or in flight to or from it."""

    place: int
    size: int
    users: int = 0  # layers that still need it
    bytes: Array | None = None  # while in memory or being read
    job: int = 0


@dataclass(frozen=True)
class View:
    """How to view a piece as an array: shape, then transposition of the axes."""

    piece: Piece
    dtype: Any
    shape: tuple[int, ...]
    axes: tuple[int, ...]


@dataclass
class Offloaded:
    """What a pass has offloaded. saved: each layer's key and views, first layer first."""

    saved: list[tuple[Any, dict[str, View]]] = field(default_factory=list)
    known: dict[tuple[int, int], tuple[ref[Array], Piece]] = field(default_factory=dict)
    """Pieces by address and size, with the array that owned the memory."""


class NoOffload:
    """No offload: saved activations stay in memory."""

    def __init__(self, arena: Arena) -> None:
        pass

    def put(
        self, offloaded: Offloaded, key: Any, values: dict[str, Any], excluded: Array | None
    ) -> None:
        """Keep the arrays in memory."""

    def get(self, offloaded: Offloaded, key: Any, values: dict[str, Any]) -> None:
        """Do nothing: the arrays are in memory."""

    def drop(self, offloaded: Offloaded) -> None:
        """Do nothing: nothing is offloaded."""


class ActivationOffload:
    """Offloads the saved arrays of one network to a file."""

    def __init__(self, disk: Disk, arena: Arena) -> None:
        self.disk, self.arena = disk, arena
        self._end = 0  # end of the file
        self._free: dict[int, list[int]] = {}  # free offsets by size
        self._writing: deque[list[Piece]] = deque()  # of each layer

    def put(
        self, offloaded: Offloaded, key: Any, values: dict[str, Any], excluded: Array | None
    ) -> None:
        """Offload the large arrays of `values`, except views of `excluded`."""
        views, begun = {}, []
        for name, array in values.items():
            if not isinstance(array, np.ndarray) or array.nbytes < SMALL:
                continue
            axes = sorted(range(array.ndim), key=lambda axis: -array.strides[axis])
            straight = array.transpose(axes)
            if not straight.flags.c_contiguous or (
                excluded is not None and _owner(array) is _owner(excluded)
            ):
                continue
            piece = _known(offloaded, array)
            if piece is None:
                piece = Piece(self._place(array.nbytes), array.nbytes)
                piece.bytes = straight.reshape(-1).view(np.uint8)
                piece.job = self.disk.write(piece.place, piece.bytes)
                offloaded.known[_address(array)] = ref(_owner(array)), piece
                begun.append(piece)
            piece.users += 1
            inverse = tuple(int(axis) for axis in np.argsort(axes))
            views[name] = View(piece, array.dtype, straight.shape, inverse)
        for name in views:
            values[name] = None
        if views:
            offloaded.saved.append((key, views))
        self._writing.append(begun)
        while len(self._writing) > AHEAD:
            self._settle(self._writing.popleft())

    def get(self, offloaded: Offloaded, key: Any, values: dict[str, Any]) -> None:
        """Restore the most recent arrays into `values` if they have this key; prefetch the next ones."""
        if not offloaded.saved or offloaded.saved[-1][0] != key:
            return
        self._retain(offloaded)
        _, views = offloaded.saved.pop()
        self._fetch(views)
        if offloaded.saved:
            self._fetch(offloaded.saved[-1][1])
        for name, view in views.items():
            piece = view.piece
            self.disk.wait(piece.job)
            assert piece.bytes is not None
            values[name] = piece.bytes.view(view.dtype).reshape(view.shape).transpose(view.axes)
            piece.users -= 1
            if not piece.users:
                self._release(piece)
        if not offloaded.saved:
            offloaded.known.clear()

    def drop(self, offloaded: Offloaded) -> None:
        """Discard what a pass has offloaded."""
        pieces = {
            id(view.piece): view.piece for _, views in offloaded.saved for view in views.values()
        }
        for piece in pieces.values():
            self.disk.wait(piece.job)
            self._release(piece)
        offloaded.saved.clear()
        offloaded.known.clear()

    def _retain(self, offloaded: Offloaded) -> None:
        """Keep in memory what forward wrote last: backward reads it first."""
        soon = {id(v.piece) for _, views in offloaded.saved[-AHEAD:] for v in views.values()}
        while self._writing:
            self._settle([piece for piece in self._writing.popleft() if id(piece) not in soon])

    def _settle(self, pieces: list[Piece]) -> None:
        """Wait for the writes and release the memory."""
        for piece in pieces:
            self.disk.wait(piece.job)
            piece.bytes = None

    def _fetch(self, views: dict[str, View]) -> None:
        """Start reading the pieces that are not in memory."""
        for view in views.values():
            piece = view.piece
            if piece.bytes is None:
                piece.bytes = self.arena.array((piece.size,), np.uint8)
                piece.job = self.disk.read(piece.place, piece.bytes)

    def _place(self, size: int) -> int:
        if self._free.get(size):
            return self._free[size].pop()
        self._end += size
        return self._end - size

    def _release(self, piece: Piece) -> None:
        """Drop the reference and mark the file offset as free."""
        piece.bytes = None
        self._free.setdefault(piece.size, []).append(piece.place)


def _known(offloaded: Offloaded, array: Array) -> Piece | None:
    """Return the piece that holds this array's bytes, unless the memory has been reused since."""
    owner, piece = offloaded.known.get(_address(array), (None, None))
    return piece if owner is not None and owner() is _owner(array) else None


def _address(array: Array) -> tuple[int, int]:
    return array.__array_interface__["data"][0], array.nbytes


def _owner(array: Array) -> Array:
    """Return the array that owns the memory of a view."""
    while isinstance(array.base, np.ndarray):
        array = array.base
    return array
