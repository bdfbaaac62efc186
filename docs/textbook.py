"""A module as a page to read without Python: text, formulas and stored figures, with each answer folded.

page(path)    Markdown with HTML, from the outputs that the notebook has stored
"""

import json
import re
from collections.abc import Iterator
from html import escape
from pathlib import Path
from typing import Any

from lib_dlhpc.explore.slides.picture import formula
from lib_dlhpc.explore.slides.tex import readable

GUESS = "Guess first, then open the result"
LIVE = "Only on the live page, where it is checked"
ONLY_LIVE = {  # what an output says where it has nothing to read
    "A number to work out.": f"*A number to work out. {LIVE}.*",
    "Problems by hand: one solved, one begun, the others to work out.": f"*Problems by hand. {LIVE}.*",
    "No guesses yet.": "*Your guesses beside the results. Only on the live page.*",
}
NOTE = """```{{note}}
This page is for reading: each figure shows one setting, and results are folded. To move the controls, have your
answers checked and run it on your own machine, {install} and open `dlhpc explore`.
```
"""
MATH = re.compile(r"(\$\$?)(?!\s*\d)(.+?)\1", re.DOTALL)
COLUMNS = re.compile(r"\S {2,}\S")
INK = re.compile(r'(fill|stroke)="(?:black|#000000)"')
INLINE, DISPLAYED = 16, 20  # px of type


def page(path: Path) -> str:
    """Return the page of a notebook, as Markdown with HTML."""
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    parts = [part for cell in cells for part in _cell(cell)]
    parts.insert(1, NOTE.format(install="[install](../docs/guide/install.md)"))
    return "\n\n".join(parts) + "\n"


def _cell(cell: dict[str, Any]) -> Iterator[str]:
    if cell["cell_type"] == "markdown":
        first, *rest = MATH.sub(_drawn, "".join(cell["source"])).split("\n\n", 1)
        yield from (first, *rest) if first.startswith("# ") else ("\n\n".join((first, *rest)),)
        return
    found = [output["data"] for output in cell["outputs"]]
    images = ["".join(data["image/png"]).replace("\n", "") for data in found if "image/png" in data]
    texts = ["".join(data["text/plain"]) for data in found if "text/plain" in data]
    for text in texts or [""]:
        yield from output(text, images)


def output(text: str, images: list[str]) -> Iterator[str]:
    """Yield what an output says as Markdown: a guess, things to try, options or a table. images: PNG in base64."""
    first, *rest = text.split("\n")
    shown = "\n\n".join(
        f'<img alt="{escape(first)}" src="data:image/png;base64,{image}">' for image in images
    )
    if first in ONLY_LIVE:
        yield ONLY_LIVE[first]
    elif first.startswith("- "):
        yield from _tried(text)
    elif rest and rest[0].startswith("Answer:"):
        yield f"**{escape(first)}**"
        yield folded(GUESS, "\n\n".join(filter(None, (shown, *map(escape, rest)))))
    elif COLUMNS.search(text):
        yield f"```text\n{text}\n```"
    elif rest and rest[0].startswith("- "):  # one question, or several
        yield "\n".join(
            escape(line) if line.startswith("- ") else f"\n**{escape(line)}**\n"
            for line in (first, *rest)
        )
    else:
        yield "\n\n".join(filter(None, (shown, *map(escape, (first, *rest)))))


def _tried(text: str) -> Iterator[str]:
    """Yield each thing to try, with what one sees folded."""
    for part in re.split(r"^- ", text, flags=re.MULTILINE)[1:]:
        asked, _, seen = part.strip().partition("\n")
        yield folded(asked, escape(seen)) if seen else f"- {escape(asked)}"


def folded(summary: str, text: str) -> str:
    """Return Markdown that opens at a click on its summary."""
    return f"<details><summary>{escape(summary)}</summary>\n\n{text}\n\n</details>"


def _drawn(match: re.Match[str]) -> str:
    """Return a formula as SVG in the color of the text, with its words for those who cannot see it."""
    displayed, tex = match[1] == "$$", match[2].strip()
    drawn, (wide, high) = formula(" ".join(tex.split()))
    points = DISPLAYED if displayed else INLINE
    size = f"width:{72 * points * wide:.0f}px;max-width:100%;height:{72 * points * high:.0f}px"
    style = f"{size};vertical-align:middle;{'display:block;margin:1em auto' if displayed else ''}"
    start = f'<svg role="img" aria-label="{escape(readable(tex))}" style="{style}" '
    one_line = " ".join(INK.sub(r'\1="currentColor"', drawn).split())
    svg = re.sub(r' (?:width|height)="[\d.]+"', "", one_line, count=2)
    return svg.replace("<svg ", start, 1)
