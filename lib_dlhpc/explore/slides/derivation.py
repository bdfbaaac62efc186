"""A worked derivation: formulas below each other, each with its reason, and what they give with numbers.

A module has the lines of its own in derivation.toml, and their numbers in derivation.py:

    DERIVATIONS = written(__file__, Example(f"{P} stages: the bubble is {bubble:.1%}.", bubble, formula(P)), ...)

The last formula is evaluated with numbers, and so is the library's model of the same thing: a test holds the one to
the other.
"""

import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple


class Step(NamedTuple):
    """One line: a formula in TeX, and why it follows from the line before."""

    tex: str
    because: str


class Example(NamedTuple):
    """Numbers for a derivation, in words: what its last formula says with them, and what the library says."""

    numbers: str
    derived: float
    library: float


class Derivation(NamedTuple):
    """A derivation for one slide. notes: what to ask, and where learners stumble. The others: as of Example."""

    title: str
    steps: Sequence[Step]
    notes: str
    numbers: str
    derived: float
    library: float


def written(file: str, *examples: Example) -> list[Derivation]:
    """Return the derivations of the derivation.toml beside a file, with their examples."""
    texts = tomllib.loads(Path(file).with_suffix(".toml").read_text("utf-8"))["derivation"]
    return [
        Derivation(text["title"], [Step(*step) for step in text["steps"]], text["notes"], *example)
        for text, example in zip(texts, examples, strict=True)
    ]
