"""Hints of a lab in its notebook: one button a topic, which opens the next of three hints.

hints()    the hints of the lab in whose folder the notebook is
"""

import re
from collections.abc import Sequence
from html import escape
from pathlib import Path

import ipywidgets

from lib_dlhpc.explore.blocks.plain_text import Column, Line
from lib_dlhpc.explore.blocks.style import PAGE_STYLE
from lib_dlhpc.labs import hints as lab_hints
from lib_dlhpc.labs.attempts import lab_here
from lib_dlhpc.labs.hints import STAGES

CODE = re.compile(r"`([^`]+)`")


def hints() -> Column:
    """Return the hints of this lab. Raises SpecError where the folder has no hints.toml."""
    lab, found = lab_here(), lab_hints.read(Path.cwd())
    column = Column([ipywidgets.HTML(PAGE_STYLE), *(Topic(lab, *each) for each in found.items())])
    column.add_class("dlhpc-results")
    return column


class Topic(Column):
    """The hints on one topic; those that the learner opened before are open."""

    def __init__(self, lab: str, topic: str, texts: Sequence[str]) -> None:
        self._lab, self._topic, self._texts = lab, topic, texts
        self._opened = lab_hints.opened(lab, topic)
        self._words = Line()
        self.button = ipywidgets.Button(
            layout={"width": "auto", "max_width": "100%", "align_self": "flex-start"}
        )
        self.button.on_click(lambda _: self.reveal())
        super().__init__([self._words, self.button])
        self._show()

    def reveal(self) -> None:
        """Show the next hint, and count it."""
        if self._opened < len(STAGES):
            self._opened += 1
            self._show(lab_hints.use(self._lab, self._topic))

    def _show(self, failed: str = "") -> None:
        shown = "".join(f"<li>{_html(text)}</li>" for text in self._texts[: self._opened])
        listed = f"<ol>{shown}</ol>" if shown else ""
        said = f"<p>{escape(failed)}</p>" if failed else ""
        self._words.value = f'<div role="status"><b>{_html(self._topic)}</b>{listed}{said}</div>'
        left = self._opened < len(STAGES)
        name = self._topic.replace("`", "")
        self.button.description = (
            f"Open hint {self._opened + 1} of {len(STAGES)}: {name}"
            if left
            else f"All hints opened: {name}"
        )
        self.button.disabled = not left


def _html(text: str) -> str:
    """Return text with what is between backticks as code."""
    return CODE.sub(r"<code>\1</code>", escape(text, quote=False))
