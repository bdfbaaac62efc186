"""Aside: what layers keep for their backward pass, on disk until then (Rhu et al. 2016, "vDNN").

Forward puts away what each layer keeps, and waits for what the layer but one before it put away: so much
is on its way at once. Backward takes it back from the last layer to the first, and while one layer
computes, what the next one needs is read. What several layers keep is written once, and read once.
"""

from collections import deque
from dataclasses import dataclass, field
from typing import Any
from weakref import ref

import numpy as np

from lib_dlhpc.training.disk import Disk
from lib_dlhpc.training.layers.kept import Array
from lib_dlhpc.training.layers.room import Room

SMALL = 32 * 1024  # bytes; below this an array stays
AHEAD = 2  # layers whose arrays are on their way to the disk


@dataclass
class Piece:
    """Memory whose bytes are in the file, or on their way there or back."""

    place: int
    size: int
    keepers: int = 0  # that have not taken it back
    bytes: Array | None = None  # as long as they are in memory, or shall be
    job: int = 0


@dataclass(frozen=True)
class View:
    """How an array lies in the memory of a piece: of this shape, with its axes then put in order."""

    piece: Piece
    dtype: Any
    shape: tuple[int, ...]
    axes: tuple[int, ...]


@dataclass
class Away:
    """What a pass has put away. keeps: a layer's key and views, from the first layer on."""

    keeps: list[tuple[Any, dict[str, View]]] = field(default_factory=list)
    known: dict[tuple[int, int], tuple[ref[Array], Piece]] = field(default_factory=dict)
    """Pieces by address and size, with the array whose memory it was."""


class Here:
    """Nothing is put away: what layers keep, they keep in memory."""

    def __init__(self, room: Room) -> None:
        pass

    def put(self, away: Away, key: Any, values: dict[str, Any], stays: Array | None) -> None:
        """Leave it where it is."""

    def get(self, away: Away, key: Any, values: dict[str, Any]) -> None:
        """It is there."""

    def drop(self, away: Away) -> None:
        """There is nothing to forget."""


class Aside:
    """Arrays of the passes of one network, put away in a file of their own."""

    def __init__(self, disk: Disk, room: Room) -> None:
        self.disk, self.room = disk, room
        self._end = 0  # of the file
        self._free: dict[int, list[int]] = {}  # places by size
        self._writing: deque[list[Piece]] = deque()  # of each layer

    def put(self, away: Away, key: Any, values: dict[str, Any], stays: Array | None) -> None:
        """Put the large arrays of `values` away; what lies in the memory of `stays` stays."""
        views, begun = {}, []
        for name, array in values.items():
            if not isinstance(array, np.ndarray) or array.nbytes < SMALL:
                continue
            axes = sorted(range(array.ndim), key=lambda axis: -array.strides[axis])
            straight = array.transpose(axes)
            if not straight.flags.c_contiguous or (
                stays is not None and _owner(array) is _owner(stays)
            ):
                continue
            piece = _known(away, array)
            if piece is None:
                piece = Piece(self._place(array.nbytes), array.nbytes)
                piece.bytes = straight.reshape(-1).view(np.uint8)
                piece.job = self.disk.write(piece.place, piece.bytes)
                away.known[_address(array)] = ref(_owner(array)), piece
                begun.append(piece)
            piece.keepers += 1
            inverse = tuple(int(axis) for axis in np.argsort(axes))
            views[name] = View(piece, array.dtype, straight.shape, inverse)
        for name in views:
            values[name] = None
        if views:
            away.keeps.append((key, views))
        self._writing.append(begun)
        while len(self._writing) > AHEAD:
            self._settle(self._writing.popleft())

    def get(self, away: Away, key: Any, values: dict[str, Any]) -> None:
        """Put back into `values` what was put away last, if under this key; begin to read what is next."""
        if not away.keeps or away.keeps[-1][0] != key:
            return
        self._stay(away)
        _, views = away.keeps.pop()
        self._fetch(views)
        if away.keeps:
            self._fetch(away.keeps[-1][1])
        for name, view in views.items():
            piece = view.piece
            self.disk.wait(piece.job)
            assert piece.bytes is not None
            values[name] = piece.bytes.view(view.dtype).reshape(view.shape).transpose(view.axes)
            piece.keepers -= 1
            if not piece.keepers:
                self._release(piece)
        if not away.keeps:
            away.known.clear()

    def drop(self, away: Away) -> None:
        """Forget what a pass has put away."""
        pieces = {id(view.piece): view.piece for _, views in away.keeps for view in views.values()}
        for piece in pieces.values():
            self.disk.wait(piece.job)
            self._release(piece)
        away.keeps.clear()
        away.known.clear()

    def _stay(self, away: Away) -> None:
        """What forward put away last is still in memory: let it stay there if backward begins with it."""
        soon = {id(v.piece) for _, views in away.keeps[-AHEAD:] for v in views.values()}
        while self._writing:
            self._settle([piece for piece in self._writing.popleft() if id(piece) not in soon])

    def _settle(self, pieces: list[Piece]) -> None:
        """Wait until they are written, and let go of the memory."""
        for piece in pieces:
            self.disk.wait(piece.job)
            piece.bytes = None

    def _fetch(self, views: dict[str, View]) -> None:
        """Begin to read what is not in memory."""
        for view in views.values():
            piece = view.piece
            if piece.bytes is None:
                piece.bytes = self.room.array((piece.size,), np.uint8)
                piece.job = self.disk.read(piece.place, piece.bytes)

    def _place(self, size: int) -> int:
        if self._free.get(size):
            return self._free[size].pop()
        self._end += size
        return self._end - size

    def _release(self, piece: Piece) -> None:
        """Whoever took it has its memory; its place in the file is free."""
        piece.bytes = None
        self._free.setdefault(piece.size, []).append(piece.place)


def _known(away: Away, array: Array) -> Piece | None:
    """Return the piece that holds this array's bytes, if its memory has been nobody else's since."""
    owner, piece = away.known.get(_address(array), (None, None))
    return piece if owner is not None and owner() is _owner(array) else None


def _address(array: Array) -> tuple[int, int]:
    return array.__array_interface__["data"][0], array.nbytes


def _owner(array: Array) -> Array:
    """Return the array that an array is a view of."""
    while isinstance(array.base, np.ndarray):
        array = array.base
    return array
