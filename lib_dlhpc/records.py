"""`dataclass` for classes that most commands import: dataclasses.dataclass without its price at import.

That writes six methods of a frozen class as text and compiles them, which took two fifths of the time of `import numpy`
when a run was predicted. Here they are closures over the names of the fields. Creating an object is three times as slow
that way, so `__init__` is compiled once a class has OFTEN objects. All else is as in dataclasses: fields, replace,
defaults, equality, hashes, pickles, signatures and the words of errors.
"""

import dataclasses
from collections.abc import Callable
from itertools import count
from operator import attrgetter
from reprlib import recursive_repr
from typing import TYPE_CHECKING, Any

OFTEN = 300  # objects by the loop of _initialization take longer than compiling

if TYPE_CHECKING:  # as type checkers see them
    from dataclasses import dataclass as dataclass
    from functools import cached_property

    remembered = cached_property
else:

    class remembered:
        """functools.cached_property for classes with many objects that are read often.

        That asks for the object's __dict__, from when on Python 3.11 takes ten times as long to read any of its
        attributes.
        """

        def __init__(self, make: Callable[[Any], Any]) -> None:
            self.make, self.__doc__ = make, make.__doc__

        def __set_name__(self, kind: type, name: str) -> None:
            self.name = name

        def __get__(self, one: Any, kind: type) -> Any:
            if one is None:
                return self
            value = self.make(one)
            object.__setattr__(one, self.name, value)  # found before this from now on
            return value

    def dataclass(
        kind: type | None = None, /, *, init=True, repr=True, eq=True, frozen=False
    ) -> type | Callable[[type], type]:
        """Return a class as dataclasses.dataclass does with these options.

        Raises TypeError for what it does not do: __post_init__, and fields with init=False or kw_only.
        """
        if kind is None:
            return lambda kind: dataclass(kind, init=init, repr=repr, eq=eq, frozen=frozen)
        dataclasses.dataclass(init=False, repr=False, eq=False)(kind)  # finds the fields
        odd = [each.name for each in dataclasses.fields(kind) if not each.init or each.kw_only]
        if odd or hasattr(kind, "__post_init__"):
            raise TypeError(
                f"{kind.__name__}: no __post_init__ and no field with init=False or kw_only;"
                " dataclasses.dataclass has them."
            )
        methods = {}
        if init:
            methods |= {"__init__": _initialization(kind), "__signature__": _Signature()}
        if repr:
            methods["__repr__"] = _representation(kind)
        if eq:
            methods |= {"__eq__": _equality(kind), "__hash__": _hash(kind) if frozen else None}
        if frozen:
            methods |= _refusals(kind)
        for name, method in methods.items():
            if name not in kind.__dict__ or (name == "__hash__" and kind.__hash__ is None):
                setattr(kind, name, method)
                if callable(method):
                    method.__qualname__ = f"{kind.__qualname__}.{name}"
        return kind


def _compiled(kind: type) -> Callable[..., None]:
    """Return the `__init__` that dataclasses.dataclass writes for the fields of a class."""
    given = [(each.name, each.type, _anew(each)) for each in dataclasses.fields(kind)]
    frozen = "__setattr__" in kind.__dict__
    like = dataclasses.make_dataclass(kind.__name__, given, repr=False, eq=False, frozen=frozen)
    method: Callable[..., None] = like.__dict__["__init__"]
    method.__qualname__ = f"{kind.__qualname__}.__init__"
    return method


def _anew(known: "dataclasses.Field[Any]") -> Any:
    """Return a field of the same default; a class takes hold of its fields."""
    if known.default_factory is not dataclasses.MISSING:
        return dataclasses.field(default_factory=known.default_factory)
    return dataclasses.field(default=known.default)


def _initialization(kind: type) -> Callable[..., None]:
    """Return the `__init__` of a class's first objects; what it does not accept goes to the compiled one, which raises
    TypeError as usual."""
    fields, missing = dataclasses.fields(kind), dataclasses.MISSING
    names = tuple(each.name for each in fields)
    known, defaults, makers = frozenset(names), {}, {}
    for each in fields:
        if each.default is not missing:
            defaults[each.name] = each.default
        elif each.default_factory is not missing:
            makers[each.name] = each.default_factory
    made, assign = count(1), object.__setattr__

    def __init__(self: Any, /, *given: Any, **named: Any) -> None:
        passed = dict(zip(names, given, strict=False)) | named
        values = defaults | passed
        for name in makers.keys() - passed.keys():
            values[name] = makers[name]()
        once = len(passed) == len(given) + len(named)
        if once and values.keys() == known and next(made) < OFTEN:
            for name in names:
                assign(self, name, values[name])
        else:
            kind.__init__ = compiled = _compiled(kind)  # type: ignore[misc]
            compiled(self, *given, **named)

    return __init__


class _Signature:
    """The signature of a class whose `__init__` may not be compiled yet, for help() and notebooks."""

    def __get__(self, one: object, kind: type) -> Any:
        from inspect import signature

        return signature(_compiled(kind).__get__(object()))


def _values(names: tuple[str, ...]) -> Callable[[Any], tuple[Any, ...]]:
    """Return a function that reads these attributes as a tuple."""
    if len(names) > 1:
        return attrgetter(*names)
    return lambda one: tuple(getattr(one, name) for name in names)


def _equality(kind: type) -> Callable[[Any, object], Any]:
    values = _values(tuple(each.name for each in dataclasses.fields(kind) if each.compare))

    def __eq__(self: Any, other: object) -> Any:
        return (
            values(self) == values(other) if other.__class__ is self.__class__ else NotImplemented
        )

    return __eq__


def _hash(kind: type) -> Callable[[Any], int]:
    hashed = (
        each.name
        for each in dataclasses.fields(kind)
        if (each.compare if each.hash is None else each.hash)
    )
    values = _values(tuple(hashed))

    def __hash__(self: Any) -> int:
        return hash(values(self))

    return __hash__


def _representation(kind: type) -> Callable[[Any], str]:
    names = [each.name for each in dataclasses.fields(kind) if each.repr]

    @recursive_repr()
    def __repr__(self: Any) -> str:
        shown = (f"{name}={getattr(self, name)!r}" for name in names)
        return f"{self.__class__.__qualname__}({', '.join(shown)})"

    return __repr__


def _refusals(kind: type[Any]) -> dict[str, Callable[..., None]]:
    """Return what refuses to change and delete fields, of this class and of those that inherit them."""
    names = {each.name for each in dataclasses.fields(kind)}

    def __setattr__(self: Any, name: str, value: Any) -> None:
        if type(self) is kind or name in names:
            raise dataclasses.FrozenInstanceError(f"cannot assign to field {name!r}")
        super(kind, self).__setattr__(name, value)

    def __delattr__(self: Any, name: str) -> None:
        if type(self) is kind or name in names:
            raise dataclasses.FrozenInstanceError(f"cannot delete field {name!r}")
        super(kind, self).__delattr__(name)

    return {"__setattr__": __setattr__, "__delattr__": __delattr__}
