"""Options checked against the signature of the function that takes them."""

import inspect
from collections.abc import Callable, Mapping
from functools import cache
from types import UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from lib_dlhpc.errors import SpecError, listed
from lib_dlhpc.layers.base.kind import Factor

LARGEST = 10**9  # integer; larger values would overflow the counts


def check_options(
    legal: Mapping[str, tuple[Any, Any]], options: Mapping[str, Any], where: str
) -> dict[str, Any]:
    """Return `options` in the types of `legal`, {option: (type, default)}, lists as tuples.

    The signature of a function is the specification: an unknown name, a missing name without a default, a value
    of another type and a value outside a Literal are errors. Integers must be at least 1,
    or at least 0 where the default is 0; fractions lie in [0, 1), factors from 0 on.

    Raises SpecError, which names `where`, the option, its value and the legal ones.
    """
    for name in options:
        if name not in legal:
            raise SpecError(listed(f"{where} has no option {name!r};", name, legal))
    for name, (_, default) in legal.items():
        if default is inspect.Parameter.empty and name not in options:
            raise SpecError(f"{where} needs the option {name!r}; legal: {', '.join(legal)}.")
    return {
        name: _convert(value, *legal[name], f"{where}: {name} = {value!r}")
        for name, value in options.items()
    }


@cache
def signature(function: Callable[..., Any]) -> dict[str, tuple[Any, Any]]:
    """Return {option: (type, default)} of a function, without `self`, `site` and private names."""
    hints = get_type_hints(function)
    return {
        name: (hints[name], parameter.default)
        for name, parameter in inspect.signature(function).parameters.items()
        if name not in ("self", "site") and not name.startswith("_")
    }


def _convert(value: Any, hint: Any, default: Any, what: str) -> Any:
    """Return the value converted to the hint, or raise SpecError that starts with `what`."""
    if get_origin(hint) in (Union, UnionType):
        problems = []
        for alternative in get_args(hint):
            try:
                return _convert(value, alternative, default, what)
            except SpecError as error:
                problems.append(str(error))
        raise SpecError(problems[0])
    if get_origin(hint) is Literal:
        choices = get_args(hint)
        if type(value) in {type(choice) for choice in choices} and value in choices:
            return value
        raise SpecError(listed(f"{what}:", value, choices, "must be one of"))
    if get_origin(hint) is tuple:
        if not isinstance(value, list | tuple) or not value:
            raise SpecError(f"{what}: must be a list with at least one entry.")
        return tuple(_convert(item, get_args(hint)[0], default, what) for item in value)
    if hint is int:
        least = 0 if default == 0 and default is not False else 1
        # A float with an integer value is legal, such as 1e3.
        whole = type(value) is int or (isinstance(value, float) and value.is_integer())
        if whole and least <= value <= LARGEST:
            return int(value)
        raise SpecError(f"{what}: must be a whole number of at least {least}, at most {LARGEST:,}.")
    if hint is Factor:
        if isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= LARGEST:
            return float(value)
        raise SpecError(f"{what}: must be a number from 0 to {LARGEST:,}.")
    if hint is float:
        if isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < 1:
            return float(value)
        raise SpecError(f"{what}: must be a fraction, 0 <= fraction < 1.")
    if hint is bool:
        if isinstance(value, bool):
            return value
        raise SpecError(f"{what}: must be true or false.")
    if hint is str:
        if isinstance(value, str):
            return value
        raise SpecError(f"{what}: must be text in quotes.")
    if get_origin(hint) in (dict, Mapping):
        if isinstance(value, Mapping):
            return dict(value)
        raise SpecError(f'{what}: must be a table such as {{ kind = "relu" }}.')
    raise SpecError(f"{what}: cannot be given here.")
