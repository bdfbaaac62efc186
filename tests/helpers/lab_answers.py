"""A learner's answers in tests of labs."""

import linecache
from collections.abc import Iterable
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
