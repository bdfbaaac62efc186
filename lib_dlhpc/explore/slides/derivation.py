"""A worked derivation: formulas below each other, each with its reason, and what they give with numbers.

A module has the lines of its own in derivation.toml, with numbers = "{P} stages: the bubble is {bubble:.1%}.", and
what these are in derivation.py:

    DERIVATIONS = written(globals(), (bubble, formula(P)), ...)

The last formula is evaluated with numbers, and so is the library's model of the same thing: a test holds the one to
the other.
"""

import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from lib_dlhpc.teaching.filled import filled


class Step(NamedTuple):
    """One line: a formula in TeX, and why it follows from the line before."""

    tex: str
    because: str


class Derivation(NamedTuple):
    """A derivation for one slide. notes: what to ask, and where learners stumble; numbers: an example in words.

    derived, library: what the last formula says with these numbers, and what the library says.
    """

    title: str
    steps: Sequence[Step]
    notes: str
    numbers: str
    derived: float
    library: float


def written(names: Mapping[str, Any], *examples: tuple[float, float]) -> list[Derivation]:
    """Return the derivations of the derivation.toml beside a file. names: of the file; examples: derived, library."""
    path = Path(names["__file__"]).with_suffix(".toml")
    texts = tomllib.loads(path.read_text("utf-8"))["derivation"]
    return [
        Derivation(
            text["title"],
            [Step(*step) for step in text["steps"]],
            text["notes"],
            filled(text["numbers"], names),
            *example,
        )
        for text, example in zip(texts, examples, strict=True)
    ]
