"""What a file says, in a TOML file beside it, so that it can be edited without Python.

say = sentences(__file__)                       formulas.toml beside formulas.py: one_head = "..."
slips = [(say.one_head, right / heads), ...]    what a lab says to known mistakes, which have numbers
"""

import tomllib
from pathlib import Path
from types import SimpleNamespace


def sentences(file: str) -> SimpleNamespace:
    """Return the sentences of a file, or tables of sentences, by their names."""
    path = Path(file).with_suffix(".toml")
    return SimpleNamespace(**tomllib.loads(path.read_text("utf-8")))
