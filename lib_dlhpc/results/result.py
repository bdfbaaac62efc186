"""Result: what every verb returns knows how to show itself, and to become a data frame or a chart."""

import textwrap
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np

from lib_dlhpc.results.frames import frame
from lib_dlhpc.spec.units import format_quantity

if TYPE_CHECKING:
    import altair as alt

Columns: TypeAlias = dict[str, list[Any]]
WIDTH, LINES = 100, 8  # of a repr


class Summary(NamedTuple):
    """A result in words: a title, the most important numbers with units, and a table of text."""

    title: str
    facts: Mapping[str, str]  # name -> value with its unit
    header: Sequence[str]
    rows: Sequence[Sequence[str]]  # the first cell of a row names it
    more: int = 0  # rows left out


class Result(ABC):
    """Base of the results; a subclass defines `summary`, `to_columns` and `plot`.

    A subclass that is a dataclass has `repr=False`, which leaves the short repr in place.
    """

    @abstractmethod
    def summary(self) -> Summary:
        """Return the result in words."""

    @abstractmethod
    def to_columns(self) -> Columns:
        """Return the result as tidy columns of equal length, in SI units."""

    @abstractmethod
    def plot(self) -> "alt.TopLevelMixin":
        """Return the result as an Altair chart."""

    def to_frame(self) -> Any:
        """Return `to_columns` as a pandas data frame, or a polars one where pandas is missing.

        Raises ModuleNotFoundError without either.
        """
        return frame(self.to_columns())

    def __repr__(self) -> str:
        """Return the title and the most important numbers in a few lines."""
        of = self.summary()
        words = ", ".join(f"{name} {value}" for name, value in of.facts.items())
        lines = textwrap.wrap(words, WIDTH, initial_indent="  ", subsequent_indent="  ")[:LINES]
        head = textwrap.shorten(f"{type(self).__name__}: {of.title}", WIDTH, placeholder=" ...")
        return "\n".join([head, *lines])

    def _repr_html_(self) -> str:
        """Return the table that notebooks show."""
        from lib_dlhpc.results.html import as_html

        return as_html(*self.summary())


def shown(values: Any, unit: str) -> str:
    """Return a number with its unit, such as "254 ms", or the range of an array: "243 ms to 299 ms"."""
    low, high = (format_quantity(float(end(values)), unit) for end in (np.min, np.max))
    return low if low == high else f"{low} to {high}"


def percent(fractions: Any) -> str:
    """Return a fraction in percent, or the range of an array."""
    low, high = (f"{float(end(fractions)):.1%}" for end in (np.min, np.max))
    return low if low == high else f"{low} to {high}"
