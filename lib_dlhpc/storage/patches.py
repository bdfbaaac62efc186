"""Python's file functions in other hands: wherever a module holds the one, it holds the other.

`from os import listdir` copies a function into the module that says it, so to replace os.listdir alone would miss
it. Every loaded module is looked through instead (a few milliseconds), and the two places of which is known
that they keep functions elsewhere: the path matching of Python 3.13 and numpy's readers of text.
"""

import os
import sys
from collections.abc import Callable, Iterator, Mapping
from types import ModuleType
from typing import Any

# The import system and io itself stand on these.
UNTOUCHED = {"posix", "nt", "_io", "_pyio", "_frozen_importlib", "_frozen_importlib_external"}


def swap(pairs: Mapping[Callable[..., Any], Callable[..., Any]]) -> None:
    """Put the second function of each pair wherever a loaded module holds the first."""
    new = {id(old): (old, function) for old, function in pairs.items()}
    for names in _namespaces():
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
            # Not module.__dict__: that would load a module that waits for its first use.
            yield ModuleType.__getattribute__(module, "__dict__")
    openers = getattr(sys.modules.get("numpy.lib._datasource"), "_file_openers", None)
    yield getattr(openers, "_file_openers", {})


def _classes() -> Iterator[type]:
    matcher = getattr(sys.modules.get("glob"), "_StringGlobber", None)
    if matcher is not None:
        yield matcher


def _sets() -> Iterator[set[Any]]:
    """What os says its functions can do: a function in other hands can do the same."""
    for name, value in vars(os).items():
        if name.startswith("supports_") and isinstance(value, set):
            yield value
