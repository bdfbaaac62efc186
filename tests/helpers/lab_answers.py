"""A learner's answers in tests of labs."""

import inspect
import linecache
from collections.abc import Iterable, Sequence
from typing import Any


def found(findings: Iterable[Any], law: str) -> Any:
    """Return the single finding whose law begins with the text."""
    (finding,) = [each for each in findings if each.law.startswith(law)]
    return finding


def run_cell(source: str, scope: dict[str, Any]) -> dict[str, Any]:
    """Run source in a scope as a notebook runs a cell: inspect finds it, and no file holds it. Return the scope."""
    name = f"<cell {hash(source)}>"
    linecache.cache[name] = (len(source), None, source.splitlines(True), name)
    exec(compile(source, name, "exec"), scope)
    return scope


def cells_of(
    solved: Any,
    functions: Iterable[str],
    scope: dict[str, Any],
    function: str = "",
    changes: Sequence[tuple[str, str]] = (),
) -> dict[str, Any]:
    """Run functions of a solution as cells of their own, with texts of one replaced. Return the scope."""
    for each in functions:
        source = inspect.getsource(getattr(solved, each))
        for old, new in changes if each == function else ():
            parts = source.split(old)
            assert len(parts) == 2, old
            source = new.join(parts)
        run_cell(source, scope)
    return scope
