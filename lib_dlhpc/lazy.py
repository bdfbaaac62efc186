"""Names of a package that are imported on first use (PEP 562): what imports one of its files reads no others.

    if TYPE_CHECKING:
        from lib_dlhpc.schedules.price import price
    __all__ = ["price"]
    lazy_names(__name__, {"price": ["price"]})

The imports are for type checkers and editors, and must say the same as the table.
"""

import sys
from collections.abc import Iterable, Mapping
from importlib import import_module
from types import ModuleType
from typing import Any


class _Package(ModuleType):
    homes: dict[str, str]  # the module of each name

    def __getattr__(self, name: str) -> Any:
        if name not in self.homes:
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")
        self.__dict__[name] = value = getattr(import_module(self.homes[name]), name)
        return value

    def __setattr__(self, name: str, value: Any) -> None:
        # A file that is imported is set on its package; a function of the same name takes precedence.
        if not (name in self.homes and isinstance(value, ModuleType)):
            super().__setattr__(name, value)

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *self.homes})


def lazy_names(package: str, files: Mapping[str, Iterable[str]]) -> None:
    """Let a package import names on first use: {file: its names}, the file relative to the package."""
    module = sys.modules[package]
    homes = {name: f"{package}.{file}" for file, each in files.items() for name in each}
    module.__dict__["homes"] = homes
    module.__class__ = _Package
