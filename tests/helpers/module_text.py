"""Structure of a module's notebook: the parts of every lesson."""

import json
import re
from importlib import import_module
from pathlib import Path

PARTS = (
    "You will be able to",
    "You need",
    "The formula, opened",
    "It assumes",
    "It breaks when",
    "Do it for real",
    "Check yourself",
    "## Practice",
    "What surprised you",
    "In five lines",
    "Where the model fails",
    "Further reading",
    "doi.org",
)
LONGEST = 15  # lines of a code cell
QUESTIONS = re.compile(r"from (lib_dlhpc\.explore\.\w+)\.questions import ask")


def has_every_part(notebook: Path, guesses: int, checks: int, *more: str) -> None:
    """Assert that a module has all PARTS and `more`, the number of guesses and checks, and no long code cell.

    Its questions are in its package: all are asked, once, and the notebook gives no answer away.
    """
    cells = json.loads(notebook.read_text("utf-8"))["cells"]
    text = "\n".join("".join(cell["source"]) for cell in cells)
    for part in (*PARTS, *more):
        assert part in text
    for cell in cells:
        assert cell["cell_type"] == "markdown" or len(cell["source"]) <= LONGEST
    asked = QUESTIONS.search(text)
    if asked and hasattr(module := import_module(f"{asked[1]}.questions"), "lesson"):
        texts = module.lesson.texts.values()
        for name in module.lesson.names:
            assert len(re.findall(rf'ask\("{name}"\)', text)) == 1, name
        assert sum("guess" in each for each in texts) == guesses
        assert sum("check" in each or "compute" in each for each in texts) == checks
        return
    assert len(re.findall(r"lesson\.predict", text)) == guesses
    assert len(re.findall(r"lesson\.(?:choose|compute)|_check\(lesson", text)) == checks
