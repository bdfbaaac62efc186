"""A chip with room for a few numbers, beside a large memory (HBM) that it reads and writes in tiles.

chip = Chip(300)
a = chip.load(x, 0, 16)        # rows 0 to 15 of the matrix x in HBM, as a tile
y_tile = chip.dot(a, a.T)      # a new tile
chip.store(y_tile, y, 0, 0)

A tile takes room for as long as a name holds it. Numbers reach a program by `load` alone, so that what it moves is
counted, and what it holds never exceeds the room.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np

from lib_dlhpc.labs.mistakes import LabError
from lib_dlhpc.layers.base.saved import Array

LIMIT = 200_000  # operations of a program; those of the labs take some thousands


class Matrix:
    """A matrix in HBM. constant: whether it may not be written."""

    def __init__(self, name: str, numbers: Array, constant: bool = False) -> None:
        self.name, self.numbers, self.constant = name, numbers, constant
        self.shape = tuple(map(int, numbers.shape))

    def __repr__(self) -> str:
        return f"<matrix {self.name} in HBM, {self.shape[0]} x {self.shape[1]}>"


class Tile:
    """Rows and columns on a chip. Methods and `+=` change it in place, operators give a new tile.

    Operands are tiles of the same shape, a single row or column, or a number.
    """

    __array_ufunc__ = None  # numpy leaves operators to a tile

    def __init__(self, chip: Chip, numbers: Array, base: Tile | None = None) -> None:
        self._chip, self._base = chip, base
        self._numbers: Array | None = numbers
        self._room = 0 if base else numbers.size
        self.shape = tuple(map(int, numbers.shape))
        chip.used += self._room
        chip._shapes[self.shape] += not base
        chip.peak = max(chip.peak, chip.used)

    def __repr__(self) -> str:
        return f"<tile {self.shape[0]} x {self.shape[1]}>"

    def __del__(self) -> None:
        self.free()

    def free(self) -> None:
        """Give its room back; using it afterward is an error."""
        if getattr(self, "_numbers", None) is not None:
            self._chip.used -= self._room
            self._chip._shapes[self.shape] -= self._base is None
            self._numbers = None

    @property
    def T(self) -> Tile:
        """The same tile with rows and columns swapped; it takes no room of its own."""
        return Tile(self._chip, self.held().T, self)

    def held(self) -> Array:
        """Return its numbers. Raises LabError if it was freed."""
        if self._numbers is None or (self._base is not None and self._base._numbers is None):
            raise LabError(
                f"a tile of {self.shape[0]} x {self.shape[1]} is used after it was freed."
            )
        return self._numbers

    def exp(self) -> Tile:
        """Replace each number by its exponential."""
        return self._change(np.exp)

    def log(self) -> Tile:
        """Replace each number by its logarithm."""
        return self._change(np.log)

    def maximum(self, other: Any) -> Tile:
        """Replace each number by that of the other if it is larger."""
        return self._change(np.maximum, other)

    def where(self, mask: Any, other: float) -> Tile:
        """Replace what a mask, a numpy array of truth values, does not keep by a number."""
        if not isinstance(mask, np.ndarray) or mask.dtype != bool or mask.shape != self.shape:
            raise LabError(f"a mask is a numpy array of truth values of shape {self.shape}.")
        return self._change(lambda own, value: np.asarray(np.where(mask, own, value)), float(other))

    def max(self) -> Tile:
        """Return the largest number of each row, as a column."""
        self._chip.make(self.shape[0], 1)
        return Tile(self._chip, self.held().max(axis=1, keepdims=True))

    def sum(self) -> Tile:
        """Return the sum of each row, as a column."""
        self._chip.make(self.shape[0], 1)
        return Tile(self._chip, self.held().sum(axis=1, keepdims=True))

    def _change(self, function: Callable[..., Array], *others: Any) -> Tile:
        self._chip.count()
        with np.errstate(all="ignore"):
            found = function(self.held(), *(self._chip.operand(each) for each in others))
        if found.shape != self.shape:
            raise LabError(f"a tile of {self.shape} cannot become one of {found.shape} in place.")
        self.held()[...] = found
        return self

    def _new(self, function: Callable[..., Array], one: Any, other: Any) -> Tile:
        one, other = (self._chip.operand(each) for each in (one, other))
        try:
            rows, columns = np.broadcast_shapes(np.shape(one), np.shape(other))
        except ValueError:
            words = f"tiles of {np.shape(one)} and {np.shape(other)} cannot be combined."
            raise LabError(words) from None
        self._chip.make(rows, columns)
        with np.errstate(all="ignore"):
            return Tile(self._chip, function(one, other))


def _operator(function: Callable[..., Array]) -> tuple[Any, Any, Any]:
    """Return `a + b`, `1 + b` and `a += b` of a function of numpy."""
    return (
        lambda self, other: self._new(function, self, other),
        lambda self, other: self._new(function, other, self),
        lambda self, other: self._change(function, other),
    )


OF_CHIP = {"load", "store", "full", "dot"}
OF_TILE = {"T", "exp", "log", "maximum", "where", "max", "sum"}
for _name, _function in (
    ("add", np.add),
    ("sub", np.subtract),
    ("mul", np.multiply),
    ("truediv", np.divide),
):
    for _prefix, _method in zip(("", "r", "i"), _operator(_function), strict=True):
        setattr(Tile, f"__{_prefix}{_name}__", _method)
        OF_TILE.add(f"__{_prefix}{_name}__")


class Chip:
    """A chip with room for numbers. loaded, stored: what has moved; scratched: numbers of scratch matrices in HBM."""

    def __init__(self, room: int) -> None:
        self.room, self.used, self.peak = room, 0, 0
        self.loaded, self.stored, self.scratched, self.operations = 0, 0, 0, 0
        self._shapes = Counter[tuple[int, ...]]()  # tiles, by shape
        self._tiles: dict[int, Tile] = {}  # of `run`, by number

    def __repr__(self) -> str:
        return (
            f"A chip with room for {self.room:,} numbers: {self.used:,} used now, at most {self.peak:,} used;"
            f" {self.loaded:,} loaded, {self.stored:,} stored."
        )

    @property
    def moved(self) -> int:
        """Numbers loaded and stored."""
        return self.loaded + self.stored

    def load(
        self, matrix: Any, top: int, bottom: int, left: int = 0, right: int | None = None
    ) -> Tile:
        """Return rows top to bottom, columns left to right of a matrix in HBM, as slices count; all columns if none."""
        rows, columns = _shape_of(matrix, "load")
        top, bottom, left = (_whole(each, "load") for each in (top, bottom, left))
        right = columns if right is None else _whole(right, "load")
        part = matrix.numbers[top : min(bottom, rows), left : min(right, columns)]
        if not part.size or min(top, bottom, left, right) < 0:
            words = f"rows {top} to {bottom}, columns {left} to {right}"
            raise LabError(
                f"load: {words} of {matrix.name} ({rows} x {columns}) contain no numbers."
            )
        self.make(part.shape[0], part.shape[1], f" of {matrix.name}")
        self.loaded += part.size
        return Tile(self, part.copy())

    def store(self, tile: Any, matrix: Any, top: int, left: int = 0) -> None:
        """Write a tile to a matrix in HBM, its first number to row `top` and column `left`."""
        self.count()
        rows, columns = _shape_of(matrix, "store")
        top, left = _whole(top, "store"), _whole(left, "store")
        numbers = self.operand(tile)
        if not isinstance(tile, Tile):
            raise LabError(f"store writes a tile, not a {type(tile).__name__}.")
        if matrix.constant:
            raise LabError(f"{matrix.name} is an input: it cannot be written.")
        high, wide = tile.shape
        if min(top, left) < 0 or top + high > rows or left + wide > columns:
            words = f"a tile of {high} x {wide} at row {top}, column {left}"
            raise LabError(f"store: {words} exceeds {matrix.name} ({rows} x {columns}).")
        matrix.numbers[top : top + high, left : left + wide] = numbers
        self.stored += tile.held().size

    def full(self, rows: int, columns: int, value: float = 0.0) -> Tile:
        """Return a new tile of equal numbers."""
        rows, columns = _whole(rows, "full"), _whole(columns, "full")
        if min(rows, columns) < 1:
            raise LabError(f"full({rows}, {columns}): a tile has at least one number.")
        self.make(rows, columns)
        return Tile(self, np.full((rows, columns), float(value)))

    def dot(self, a: Any, b: Any, into: Any = None) -> Tile:
        """Return the matmul of two tiles as a new tile; with `into`, add it to that tile, in place, and return it."""
        one, other = self.operand(a), self.operand(b)
        if np.ndim(one) != 2 or np.ndim(other) != 2 or one.shape[1] != other.shape[0]:
            raise LabError(f"dot: tiles of {np.shape(one)} and {np.shape(other)} do not match.")
        shape = one.shape[0], other.shape[1]
        if into is None:
            self.make(*shape)
        elif not isinstance(into, Tile) or into.shape != shape:
            raise LabError(f"dot: the result has shape {shape}, but it is added to {into!r}.")
        with np.errstate(all="ignore"):
            if into is None:
                return Tile(self, one @ other)
            self.count()
            self.operand(into)[...] += one @ other
        return into

    def scratch(self, rows: int, columns: int) -> Matrix:
        """Return a new matrix of zeros in HBM."""
        rows, columns = _whole(rows, "scratch"), _whole(columns, "scratch")
        self.count()
        if not 0 < rows * columns < 1 << 24:
            raise LabError(f"scratch({rows}, {columns}): there is no such room in HBM.")
        self.scratched += rows * columns
        return Matrix("scratch", np.zeros((rows, columns)))

    def run(self, operations: Any) -> None:
        """Carry out what was written down in another process: see labs/grading/inside/tiles.py."""
        for result, tile, name, given, named in operations:
            if name == "free":
                self._tiles.pop(tile, None)
                continue
            one = self._tiles[tile] if tile else self
            if name not in (OF_TILE if tile else OF_CHIP):
                raise LabError(f"there is no {name}.")
            found = getattr(one, name)
            if name != "T":
                more = {str(key): self._known(each) for key, each in named.items()}
                found = found(*map(self._known, given), **more)
            if result:
                self._tiles[result] = found

    def _known(self, value: Any) -> Any:
        return self._tiles[value["tile"]] if isinstance(value, dict) else value

    def shape_of(self, number: int) -> tuple[int, ...]:
        """Return the shape of a tile of `run`."""
        return self._tiles[number].shape

    def make(self, rows: int, columns: int, of: str = "") -> None:
        """Count an operation that makes a tile. Raises LabError if it does not fit."""
        self.count()
        if rows * columns > self.room - self.used:
            raise LabError(
                f"a tile{of} of {rows} x {columns} needs room for {rows * columns} numbers, and"
                f" {self.room - self.used} of {self.room} are free. {self._why_full()}"
            )

    def _why_full(self) -> str:
        """Return which tiles are on the chip, in words, those that take most room first."""
        held = sorted(+self._shapes, key=lambda each: -math.prod(each) * self._shapes[each])
        if not held:
            return "Nothing else is on the chip: use a smaller tile."
        each = [
            f"{f'{self._shapes[shape]} of ' * (self._shapes[shape] > 1)}{shape[0]} x {shape[1]}"
            for shape in held[:5]
        ]
        return (
            f"Now on the chip: {', '.join(each)}{', ...' * (len(held) > 5)}. A tile takes room for as long as a name"
            " holds it: `del` frees it."
        )

    def count(self) -> None:
        """Count an operation. Raises LabError after LIMIT."""
        self.operations += 1
        if self.operations > LIMIT:
            raise LabError(f"more than {LIMIT:,} operations: which loop never ends?")

    def operand(self, value: Any) -> Any:
        """Return the numbers of a tile, or a number. Raises LabError for anything else."""
        if isinstance(value, Tile):
            if value._chip is not self:
                raise LabError("a tile of another run is not on this chip.")
            return value.held()
        if isinstance(value, int | float | np.integer | np.floating) and not isinstance(
            value, bool
        ):
            return float(value)
        raise LabError(
            f"a tile is combined with tiles and numbers, not with a {type(value).__name__}: arrays reach the chip only"
            " by `load`."
        )


def _shape_of(matrix: Any, what: str) -> tuple[int, int]:
    if not isinstance(matrix, Matrix):
        raise LabError(f"{what} takes a matrix in HBM, not a {type(matrix).__name__}.")
    rows, columns = matrix.shape
    return rows, columns


def _whole(value: Any, what: str) -> int:
    """Return a whole number. Raises LabError if it is none."""
    try:
        found = float(value)
    except (TypeError, ValueError, OverflowError):
        found = math.nan
    if isinstance(value, str | bool) or not found.is_integer():
        words = repr(value)[:40]
        raise LabError(f"{what}: expected a whole number of rows or columns, not {words}.")
    return int(found)
