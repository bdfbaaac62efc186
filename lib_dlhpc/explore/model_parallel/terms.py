"""The terms of a step that ran for real, beside what was predicted of it; hybrid parallelism shows them too."""

from collections.abc import Callable, Mapping

from lib_dlhpc.explore.blocks.panels import table_html
from lib_dlhpc.spec.units import format_quantity as show

LEAST = 1e-9  # s: a shorter term is rounding


def terms_html(
    ways: Mapping[str, Mapping[str, float]], heading: str, error: Callable[[float, float], str]
) -> str:
    """Return the terms that any of the ways has, and their sums, as a table.

    ways: predicted first and measured last, in s by term. error: what the last column says of a pair of these.
    """
    there = [{n: s if s > LEAST else 0.0 for n, s in terms.items()} for terms in ways.values()]
    names = [name for name in there[0] if any(terms.get(name) for terms in there)]
    rows = {name: [terms.get(name, 0.0) for terms in there] for name in names}
    rows["all"] = [sum(terms.values()) for terms in there]
    lines = [
        [name, *(show(s, "s") for s in row), error(row[0], row[-1])] for name, row in rows.items()
    ]
    return table_html([["time of one step", *ways, heading], *lines])


def less_measured(predicted: float, measured: float) -> str:
    """Return predicted less measured, and its share of what was measured."""
    off = predicted - measured
    share = f" ({off / measured:+.0%})" if measured else ""
    return f"{'−' if off < 0 else '+'}{show(abs(off), 's')}{share}"


def less_predicted(predicted: float, measured: float) -> str:
    """Return measured less predicted."""
    return show(measured - predicted, "s")
