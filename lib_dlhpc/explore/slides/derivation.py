"""A worked derivation: formulas below each other, each with its reason, and what they give with numbers.

    Derivation("The bubble of a pipeline", [Step(r"T = (m + p - 1)\\,t", "The last stage waits first.")], ...)

A module has its own in derivation.py, as DERIVATIONS. The last formula is evaluated with numbers, and so is the
library's model of the same thing: a test holds the one to the other.
"""

from collections.abc import Sequence
from typing import NamedTuple


class Step(NamedTuple):
    """One line: a formula in TeX, and why it follows from the line before."""

    tex: str
    because: str


class Derivation(NamedTuple):
    """A derivation for one slide. numbers: an example in words; notes: what to ask, and where learners stumble.

    derived: what the last formula says in that example; library: what the library says.
    """

    title: str
    steps: Sequence[Step]
    numbers: str
    notes: str
    derived: float
    library: float
