"""Write the API reference from the docstrings, with pdoc: `make docs`, or `python docs/build.py FOLDER`."""

import pkgutil
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from types import ModuleType

import lib_dlhpc

# Without pages: the notebooks' controls, the command line, old names.
WITHOUT = ("explore", "commands", "cli", "renamed")


def public(package: ModuleType = lib_dlhpc) -> Iterator[tuple[ModuleType, list[str]]]:
    """Yield each package and the names that its page has: its own, and those of its modules."""
    modules = [each for each in pkgutil.iter_modules(package.__path__) if each.name not in WITHOUT]
    own = getattr(package, "__all__", [])
    yield package, [*own, *(module.name for module in modules if module.name not in own)]
    for module in modules:
        if module.ispkg:
            yield from public(import_module(f"{package.__name__}.{module.name}"))


def main(folder: str = "build/docs") -> None:
    """Write a page for each module into `folder`."""
    import pdoc

    for package, names in public():
        for name in getattr(package, "__all__", []):
            setattr(package, name, getattr(package, name))  # some are imported on first use
        package.__all__ = names
    theme = Path(__file__).parent / "pdoc"
    pdoc.render.configure(show_source=False, template_directory=theme)
    pdoc.pdoc("lib_dlhpc", output_directory=Path(folder))
    print(f"API reference: {Path(folder).resolve() / 'index.html'}")


if __name__ == "__main__":
    main(*sys.argv[1:])
