"""Text panels of the explorer as HTML: headline, walls, explanations. Everything is escaped."""

import re
from collections.abc import Iterable, Sequence
from html import escape

from lib_dlhpc.prediction.reports.explain import Explanation

SHORT = 12  # characters; a shorter cell, such as 460 billion, takes one line
FITTING = 4  # columns of a table that a phone has room for; rows of a wider one become cards there


PLAIN = re.compile(r"[a-z]+(-[a-z]+)? ")  # not a field of an experiment
COMMAND = re.compile(r"`([^`]+)`")  # as the command line writes it


def problem_html(problem: str) -> str:
    """Return a mistake in the input, or nothing."""
    if not problem:
        return ""
    return f'<div class="dlhpc-walls broken" role="alert"><p>{escape(problem)}</p></div>'


def notice_html(words: str) -> str:
    """Return something to know that is no mistake, or nothing."""
    if not words:
        return ""
    sentence = words[0].upper() + words[1:] if PLAIN.match(words) else words
    shown = COMMAND.sub(r"<code>\1</code>", escape(sentence))
    return f'<div class="dlhpc-walls notice" role="status"><p>{shown}</p></div>'


def explanation_html(item: Explanation) -> str:
    """Return a number as a fold that opens to formula, inputs with sources, and assumptions."""
    rows = "".join(
        f"<tr><th>{escape(name)}</th><td>{escape(value)}</td><td>{escape(source)}</td></tr>"
        for name, value, source in item.inputs
    )
    return (
        f'<details class="dlhpc-why"><summary>{escape(item.name)} = {escape(item.value)}</summary>'
        f"<p><b>Formula</b> {escape(item.formula)}</p>"
        f"<table><thead><tr><th>input</th><th>value</th><th>where it comes from</th></tr></thead>"
        f"<tbody>{rows}</tbody></table>"
        f"<p><b>Source</b> {escape(item.source)}</p><p><b>Assumes</b> {escape(item.assumes)}</p></details>"
    )


def table_html(lines: Sequence[Iterable[str]]) -> str:
    """Return lines of text as a table, the first of them its head."""
    names, *rows = [[escape(cell) for cell in line] for line in lines]
    place = 'style="text-align: left; padding-right: 2em"'
    whole = 'style="text-align: left; padding-right: 2em; white-space: nowrap"'
    head = "".join(f"<th {place}>{name}</th>" for name in names)
    body = "".join(
        "<tr>"
        + "".join(
            f'<td data-column="{name}" {whole if len(cell) < SHORT else place}>{cell}</td>'  # a card names columns
            for name, cell in zip(names, row, strict=True)
        )
        + "</tr>"
        for row in rows
    )
    cards = ' class="dlhpc-cards"' if len(names) > FITTING else ""
    table = f"<table{cards}><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
    return wide_html(table, "Table")


def wide_html(inside: str, name: str) -> str:
    """Return what may be wider than a narrow page: it scrolls by itself, for a keyboard too."""
    group = f'role="group" aria-label="{escape(name)}"'
    return f'<div tabindex="0" {group} style="overflow-x: auto">{inside}</div>'
