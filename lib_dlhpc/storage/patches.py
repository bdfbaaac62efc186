"""Patching of Python's file functions: every reference to one, in any loaded module, is replaced.

`from os import listdir` copies the reference into the importing module, so patching os.listdir only would miss
it. All loaded modules are searched (a few milliseconds), and two places that store references elsewhere: the path
matching of Python 3.13 and numpy's text readers.
"""

import os
import sys
from collections.abc import Callable, Iterator, Mapping
from types import ModuleType
from typing import Any

# The import system and io itself depend on these.
UNTOUCHED = {"posix", "nt", "_io", "_pyio", "_frozen_importlib", "_frozen_importlib_external"}


def swap(pairs: Mapping[Callable[..., Any], Callable[..., Any]]) -> None:
    """Replace the first function of each pair by the second in all loaded modules."""
    new = {id(old): (old, function) for old, function in pairs.items()}
    for names in _namespaces():
        if new.keys().isdisjoint(map(id, list(names.values()))):
            continue  # nearly all: this is what swapping costs
        for name, value in list(names.items()):
            if id(value) in new:
                names[name] = new[id(value)][1]
    for kind in _classes():
        for name, value in list(vars(kind).items()):
            if isinstance(value, staticmethod) and id(value.__func__) in new:
                setattr(kind, name, staticmethod(new[id(value.__func__)][1]))
    for known in _sets():
        for function in list(known):
            if id(function) in new:
                known.discard(function)
                known.add(new[id(function)][1])


def _namespaces() -> Iterator[dict[Any, Any]]:
    for name, module in list(sys.modules.items()):
        if name not in UNTOUCHED and isinstance(module, ModuleType):
            # Not module.__dict__: that would load a lazily imported module.
            yield ModuleType.__getattribute__(module, "__dict__")
    openers = getattr(sys.modules.get("numpy.lib._datasource"), "_file_openers", None)
    yield getattr(openers, "_file_openers", {})


def _classes() -> Iterator[type]:
    matcher = getattr(sys.modules.get("glob"), "_StringGlobber", None)
    if matcher is not None:
        yield matcher


def _sets() -> Iterator[set[Any]]:
    """Yield the capability sets of os, such as os.supports_fd."""
    for name, value in vars(os).items():
        if name.startswith("supports_") and isinstance(value, set):
            yield value
