"""Structure of a module's notebook: the parts of every lesson."""

import json
import re
from pathlib import Path

PARTS = (
    "You will be able to",
    "You need",
    "The formula, opened",
    "It assumes",
    "It breaks when",
    "Do it for real",
    "Check yourself",
    "What surprised you",
    "In five lines",
    "Where the model fails",
    "Further reading",
    "doi.org",
)
LONGEST = 15  # lines of a code cell


def has_every_part(notebook: Path, guesses: int, checks: int, *more: str) -> None:
    """Assert that a module has all PARTS and `more`, the number of guesses and checks, and no long code cell."""
    cells = json.loads(notebook.read_text("utf-8"))["cells"]
    text = "\n".join("".join(cell["source"]) for cell in cells)
    for part in (*PARTS, *more):
        assert part in text
    assert len(re.findall(r"lesson\.predict", text)) == guesses
    assert len(re.findall(r"lesson\.choose|_check\(lesson", text)) == checks
    for cell in cells:
        assert cell["cell_type"] == "markdown" or len(cell["source"]) <= LONGEST
