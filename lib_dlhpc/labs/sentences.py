"""What a lab says to known mistakes, in a TOML file beside the Python file, so that it can be edited without Python.

say = sentences(__file__)                       formulas.toml beside formulas.py: name = "Sentence."
slips = [(say.one_head, right / heads), ...]
"""

import tomllib
from pathlib import Path
from types import SimpleNamespace


def sentences(file: str) -> SimpleNamespace:
    """Return the sentences of a file by their names."""
    path = Path(file).with_suffix(".toml")
    return SimpleNamespace(**tomllib.loads(path.read_text("utf-8")))
