"""Decorator for network families: checks options and returns a Model."""

from collections.abc import Callable, Mapping
from functools import wraps
from typing import Any

from lib_dlhpc.spec.model import Model
from lib_dlhpc.spec.networks.builder import Builder
from lib_dlhpc.spec.networks.options import check_options, signature


def family(layout: Callable[..., Builder]) -> Callable[..., Model]:
    """Turn a function from keyword options to a Builder into a network family.

    The family checks its options against the signature and stores them in the Model.
    """

    @wraps(layout)
    def build(**options: Any) -> Model:
        checked = check_options(signature(layout), options, f"model family {layout.__name__!r}")
        return layout(**checked).model(layout.__name__, options=_plain(options))

    return build


def _plain(value: Any) -> Any:
    """Return a copy in the types that a TOML file holds: tables, lists, numbers, text."""
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return value
