"""Code of this package on a slide: as it runs, so that it cannot drift, without its docstrings."""

import ast
import inspect
from importlib import import_module
from operator import attrgetter
from textwrap import dedent
from typing import Any

from lib_dlhpc.explore.slides.notebook import plain
from lib_dlhpc.explore.slides.slide import CODE, Slide


def listed(title: str, targets: list[str]) -> Slide:
    """Return the slide of some functions, each "module:name"; its notes have what their docstrings say."""
    found = [_found(target) for target in targets]
    lines = "\n\n".join(_bare(dedent(inspect.getsource(each)).rstrip()) for each in found)
    files = sorted({target.partition(":")[0].replace(".", "/") + ".py" for target in targets})
    said = "\n".join(f"{each.__name__}: {plain(inspect.getdoc(each) or '')}" for each in found)
    ask = "Ask what each line does before you say it, and what each rank has after one pass."
    source = f"Code: {', '.join(files)}, as it runs and is tested"
    return Slide(title, tuple(lines.split("\n")), f"{ask}\n{said}", kind=CODE, source=source)


def _found(target: str) -> Any:
    module, _, name = target.partition(":")
    return attrgetter(name)(import_module(module))


def _bare(source: str) -> str:
    """Return the source of a function without its docstring."""
    (function,) = ast.parse(source).body
    assert isinstance(function, ast.FunctionDef)
    lines, first = source.split("\n"), function.body[0]
    if ast.get_docstring(function) is not None:
        del lines[first.lineno - 1 : first.end_lineno]
    return "\n".join(lines)
