"""What an output of another tool says about a machine, and where it says so."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from lib_dlhpc.errors import SpecError

LINKS = ("intra_node", "inter_node")
WITHIN = 1.645  # standard deviations that hold 90% of a normal distribution
SHOWN = 70  # characters of a line that an error quotes


@dataclass(frozen=True)
class File:
    """A text, its name, and the part of the machine that it measures where the text does not say.

    part: such as "inter_node", "storage.scratch" or "device"; "" if not stated. ranks: of a collective, 0 if not
    stated.
    """

    name: str
    text: str
    part: str = ""
    ranks: int = 0

    @property
    def lines(self) -> Iterator[tuple[int, str]]:
        """Number and text of each line, from 1."""
        return enumerate(self.text.splitlines(), 1)

    def broken(self, line: int, why: str) -> SpecError:
        """Return the error for a line that cannot be read."""
        text = self.text.splitlines()[line - 1].strip()[:SHOWN]
        return SpecError(f"{self.name}, line {line}: {why}: {text!r}.")

    def number(self, word: str, line: int, zero: bool = False) -> float:
        """Return a word of a line as a number above 0, or of at least 0 with `zero`; raises SpecError."""
        try:
            value = float(word)
        except ValueError:
            raise self.broken(line, f"{word!r} is not a number") from None
        if not 0 < value < float("inf") and not (zero and value == 0):
            raise self.broken(
                line, f"{word!r} must be {'at least' if zero else 'above'} 0 and finite"
            )
        return value

    def source(self, tool: str, first: int, last: int = 0) -> "Source":
        """Return the source of what stands in these lines."""
        return Source(self.name, tool, first, last or first)

    def link(self, tool: str) -> str:
        """Return the link that the file measures; raises SpecError if that was not stated."""
        if self.part not in LINKS:
            raise SpecError(
                f"{self.name}: {tool} does not say whether its ranks were on one node; write"
                f" intra_node={self.name} or inter_node={self.name}."
            )
        return self.part

    def tier(self, tool: str) -> str:
        """Return the storage tier that the file measures; raises SpecError if that was not stated."""
        if not self.part.startswith("storage."):
            raise SpecError(
                f"{self.name}: {tool} does not say which storage tier of the machine it measured; write"
                f" storage.NAME={self.name}, such as storage.scratch={self.name}."
            )
        return self.part


@dataclass(frozen=True)
class Source:
    """Lines of a file, and the tool that wrote them."""

    file: str
    tool: str
    first: int
    last: int

    def __str__(self) -> str:
        where = (
            f"line {self.first}" if self.first == self.last else f"lines {self.first}-{self.last}"
        )
        return f"{self.file}, {where}: {self.tool}"


@dataclass(frozen=True)
class Timed:
    """Repeats of one time, as a sum of terms: seconds = sum of terms[key] * x[key].

    terms: by name of a number of the machine, such as "inter_node.latency"; x is that number if it is in s, its
    inverse if it is a rate. A name without a dot is of no number of the machine, such as the gap between messages.
    links: how many links of a node the bytes pass at most; they pass the NICs of the node together. nodes: that
    worked together; a node's own tier has its part of their rate.
    """

    terms: Mapping[str, float]
    seconds: tuple[float, ...]
    source: Source
    links: int = 1
    nodes: int = 1


@dataclass(frozen=True)
class Value:
    """A number or a name of the machine that a file states, without an interval."""

    key: str
    value: Any
    source: Source
    note: str = ""


@dataclass(frozen=True)
class Note:
    """What the reader of a machine file should know, and no number says."""

    text: str


Measurement: TypeAlias = Timed | Value | Note


def rated(
    key: str, rates: Sequence[float], source: Source, nodes: int = 1, amount: float = 1.0
) -> Timed:
    """Return repeats of a rate. amount: of what the key counts in one of what the rates count."""
    return Timed({key: amount}, tuple(1 / rate for rate in rates), source, nodes=nodes)


def spread(mean: float, deviation: float) -> tuple[float, ...]:
    """Return mean and ends of the range that holds 90% of a normal distribution; the mean if that reaches 0."""
    ends = (mean - WITHIN * deviation, mean, mean + WITHIN * deviation)
    return ends if ends[0] > 0 else (mean,)


def ring(link: str, kind: str, ranks: int, size: float) -> dict[str, float]:
    """Return the terms of a collective as a ring of `ranks`: latencies and bytes of the link.

    kind: "allreduce", or else one pass, as of an all-gather. The law that predictions use (schedules/rings.py).
    """
    passes = 2 if kind == "allreduce" else 1
    share = passes * (ranks - 1) / ranks
    return {f"{link}.latency": passes * (ranks - 1), f"{link}.bandwidth": share * size}
