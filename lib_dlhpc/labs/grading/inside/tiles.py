"""A chip in a learner's process: operations are written down, and carried out by the checker many at a time.

What tiles hold is never here, so that nothing can depend on it. An operation is [number of its result or 0, number of
its tile or 0 for the chip, name, arguments]; a tile among the arguments is {"tile": number}.
"""

from itertools import count
from typing import Any

from .stubs import Stub

MANY = 1000  # operations of a message
NEW = (
    "max",
    "sum",
    *(f"__{way}{name}__" for name in ("add", "sub", "mul", "truediv") for way in ("", "r")),
)
CHANGE = (
    "exp",
    "log",
    "maximum",
    "where",
    *(f"__i{name}__" for name in ("add", "sub", "mul", "truediv")),
)


class ChipStub(Stub):
    """The checker's chip."""

    def __init__(self, session: Any, number: int, kind: str, reads: list[str]) -> None:
        super().__init__(session, number, kind, reads)
        self._numbers, self._written = count(1), list[Any]()

    def load(self, *given: Any, **named: Any) -> Any:
        """As the checker's."""
        return self.make(0, "load", given, named)

    def full(self, *given: Any, **named: Any) -> Any:
        """As the checker's."""
        return self.make(0, "full", given, named)

    def dot(self, a: Any, b: Any, into: Any = None) -> Any:
        """As the checker's."""
        if into is None:
            return self.make(0, "dot", (a, b), {})
        self.write(0, 0, "dot", (a, b, into), {})
        return into

    def store(self, *given: Any, **named: Any) -> None:
        """As the checker's."""
        self.write(0, 0, "store", given, named)

    def scratch(self, *given: Any) -> Any:
        """As the checker's."""
        return self._session.do(self._number, "scratch", given, {})

    def make(self, tile: int, name: str, given: Any, named: Any) -> Any:
        """Write an operation down; return its result, a tile."""
        number = next(self._numbers)
        self.write(number, tile, name, given, named)
        return TileStub(self, number)

    def write(self, result: int, tile: int, name: str, given: Any, named: Any) -> None:
        """Write an operation down."""
        more = {key: self._plain(named[key]) for key in named}
        self._written.append([result, tile, name, [self._plain(each) for each in given], more])
        # Python may free a tile in the middle of a message, where nothing can be sent.
        if len(self._written) >= MANY and name != "free":
            self.flush()

    def _plain(self, value: Any) -> Any:
        if not isinstance(value, TileStub):
            return value
        if value._chip is not self:
            raise ValueError("a tile of another run is not on this chip.")
        return {"tile": value.number}

    def flush(self) -> None:
        """Have the checker carry out what is written down. Raises what it raises."""
        written, self._written = self._written, []
        if written:
            self._session.do(self._number, "run", (written,), {})

    def shape_of(self, number: int) -> Any:
        """Return the shape of a tile."""
        self.flush()
        return self._session.do(self._number, "shape_of", (number,), {})


class TileStub:
    """A tile of the checker's chip, which takes room there for as long as a name holds it here."""

    __array_ufunc__ = None  # numpy leaves operators to it

    def __init__(self, chip: ChipStub, number: int, base: Any = None) -> None:
        self._chip, self.number, self._base = chip, number, base

    def __del__(self) -> None:
        self._chip.write(0, self.number, "free", (), {})

    @property
    def shape(self) -> Any:
        """Rows and columns."""
        return self._chip.shape_of(self.number)

    @property
    def T(self) -> Any:
        """The tile with rows and columns swapped, which needs this one."""
        view = self._chip.make(self.number, "T", (), {})
        view._base = self
        return view


def _new(name: str) -> Any:
    return lambda self, *given: self._chip.make(self.number, name, given, {})


def _change(name: str) -> Any:
    def change(self: TileStub, *given: Any) -> TileStub:
        self._chip.write(0, self.number, name, given, {})
        return self

    return change


for _name in NEW:
    setattr(TileStub, _name, _new(_name))
for _name in CHANGE:
    setattr(TileStub, _name, _change(_name))
