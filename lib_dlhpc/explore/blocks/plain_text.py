"""What a widget says in plain text: for readers of a stored notebook, and for nbval, which compares it.

A picture of a chart says nothing to a program, and a widget shows nothing where no kernel runs. So each
widget that a cell ends with carries its text beside it, as text/plain.

text_of(widget)       titles and summaries of its figures, rows of its tables
Readable              a base for widgets whose text/plain is that text
Column, Row, Line, Table    such widgets
"""

import os
import re
from collections.abc import Iterable, Sequence
from html import unescape
from typing import Any

import ipywidgets

from lib_dlhpc.explore.blocks.panels import table_html

TAG = re.compile(r"<style>.*?</style>|<[^>]+>", re.DOTALL)
PAGE_HAS_VEGA = "DLHPC_PAGE_HAS_VEGA"  # environment variable; set by serve.py for its kernels


class Readable:
    """A widget with `plain_text()` as its text/plain. A served page never shows it and does not ask for it."""

    def plain_text(self) -> str:
        """Return what the widget says."""
        texts = (text_of(child) for child in getattr(self, "children", ()))
        return "\n".join(text for text in texts if text)

    def __str__(self) -> str:
        return self.plain_text()  # of a widget that a terminal prints

    def _repr_mimebundle_(self, **options: Any) -> Any:
        bundle = super()._repr_mimebundle_(**options)  # type: ignore[misc]
        # anywidget returns metadata as well.
        data = bundle[0] if isinstance(bundle, tuple) else bundle
        if data and not os.environ.get(PAGE_HAS_VEGA):
            data["text/plain"] = self.plain_text()
        return bundle


def text_of(widget: Any) -> str:
    """Return the text of all that is Readable in a widget, a line for each."""
    if isinstance(widget, Readable):
        return widget.plain_text()
    return Readable.plain_text(widget)


class Column(Readable, ipywidgets.VBox):
    """Widgets below each other."""


class Row(Readable, ipywidgets.Box):
    """Widgets beside each other."""


class Line(Readable, ipywidgets.HTML):
    """Some words in HTML."""

    def plain_text(self) -> str:
        """Return the words without their tags."""
        return unescape(TAG.sub(" ", self.value)).strip()


class Table(Readable, ipywidgets.HTML):
    """Lines of text as a table, the first of them its head."""

    def __init__(self, lines: Sequence[Iterable[str]]) -> None:
        self.rows = [[str(cell) for cell in line] for line in lines]
        super().__init__(table_html(self.rows))

    def plain_text(self) -> str:
        """Return the table, its columns below each other."""
        widths = [max(map(len, column)) for column in zip(*self.rows, strict=True)]
        rows = (
            "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True))
            for line in self.rows
        )
        return "\n".join(row.rstrip() for row in rows)
