"""A table for notebooks: a caption, headings with a scope, and the colors of the page around it."""

from collections.abc import Mapping, Sequence
from html import escape

NUMBER = ' style="text-align: right; font-variant-numeric: tabular-nums"'


def as_html(
    title: str,
    facts: Mapping[str, str],
    header: Sequence[str],
    rows: Sequence[Sequence[str]],
    more: int = 0,
) -> str:
    """Return a Summary as an HTML table: the title and the facts are its caption; `more`: rows left out.

    No color is set, so that it is readable on light and dark pages.
    """
    words = escape(", ".join(f"{name} {value}" for name, value in facts.items()))
    caption = f"<strong>{escape(title)}</strong><br/>{words}"
    head = "".join(f'<th scope="col">{escape(name)}</th>' for name in header)
    foot = f'<tr><td colspan="{len(header)}">{more:,} more rows</td></tr>' if more else ""
    return (
        f'<table><caption style="caption-side: top; text-align: left">{caption}</caption>'
        f"<thead><tr>{head}</tr></thead>"
        f"<tbody>{''.join(map(_row, rows))}{foot}</tbody></table>"
    )


def _row(cells: Sequence[str]) -> str:
    name, *values = map(escape, cells)
    numbers = "".join(f"<td{NUMBER}>{value}</td>" for value in values)
    return f'<tr><th scope="row">{name}</th>{numbers}</tr>'
