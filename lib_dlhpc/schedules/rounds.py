"""The data: a Round of messages, and a Schedule of rounds. The other files of this package build or read them.

Every rank has one buffer of `elements` numbers. A message takes `count` of them, from `offset` on, to
the same offset in the buffer of another rank, where they are reduced into the local data (reduce) or
overwrite it (copy). Pieces of one kind between the same ranks in a round form one message. The messages of
a round start once their ranks have finished the previous round. A rank may send and receive
concurrently; it sends the data that it held when the round began. A message of no elements is
legal: it still costs its latency.

A round may be one of a switch that combines and copies (`switch`; in_network.py). Its messages are what arrives
where; on the way the switch merges them, so a link carries their bytes once.
"""

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import field
from functools import cached_property
from types import MappingProxyType
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from lib_dlhpc.arrays import Ints
from lib_dlhpc.errors import SpecError, suggest
from lib_dlhpc.records import dataclass

KINDS = {"reduce": True, "copy": False}
FIELDS = ("source", "target", "offset", "count")
ONE = np.empty(1)  # what scalars broadcast with, to a round of one message
# What a switch does with the messages of a round.
COMBINE = "combine"  # it adds those to one target
MULTICAST = "multicast"  # it copies what a source sends
# it adds, and sends the sum back at once; in the next round, of copies, it is there
STREAM = "stream"


@dataclass(frozen=True, eq=False)
class Round:
    """Messages that start together: five arrays of one length, one entry a message."""

    source: Ints  # rank
    target: Ints  # rank
    offset: Ints  # first element, the same on both sides
    count: Ints  # elements
    reduce: NDArray[np.bool_]  # True: the target combines; False: it overwrites
    switch: str = ""  # COMBINE, MULTICAST or STREAM; "": no switch changes them

    def __init__(
        self,
        source: Ints,
        target: Ints,
        offset: Ints,
        count: Ints,
        reduce: NDArray[np.bool_],
        switch: str = "",
    ) -> None:
        # Faster than the __init__ of a frozen dataclass, for long schedules.
        fields = self.__dict__
        fields["source"], fields["target"], fields["offset"] = source, target, offset
        fields["count"], fields["reduce"], fields["switch"] = count, reduce, switch

    def __len__(self) -> int:
        return len(self.source)

    def __repr__(self) -> str:
        shown = [
            f"{s} -> {t}: {'reduce' if r else 'copy'} {elements_text(o, o + c)}"
            for s, t, o, c, r in list(zip(*self.arrays, strict=True))[:8]
        ]
        more = [f"... {len(self) - 8} more"] if len(self) > 8 else []
        return f"Round({'; '.join(shown + more)})"

    @property
    def arrays(self) -> tuple[NDArray[Any], ...]:
        """Source, target, offset, count, reduce."""
        return self.source, self.target, self.offset, self.count, self.reduce


# Accepted in place of a Round: [(source, target, offset, count, "reduce" or "copy"), ...]
RoundLike: TypeAlias = Round | Sequence[tuple[int, int, int, int, str]]
Rounds: TypeAlias = Iterable[RoundLike]


@dataclass(frozen=True, eq=False)
class Schedule:
    """The rounds of a collective on `ranks` buffers of `elements` numbers each.

    `generate` yields the rounds for each reader, so a schedule of half a billion messages takes no
    memory: `for round in schedule`, or `tuple(schedule)` to store them.
    """

    name: str
    ranks: int
    elements: int
    generate: Callable[[], Rounds]
    goal: str = "allreduce"  # a key of `GOALS`
    options: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))

    def rounds(self) -> Iterator[Round]:
        """Yield the rounds in order. Raises SpecError for an invalid round."""
        stream = self.generate()
        if not isinstance(stream, Iterable):
            raise SpecError(f"{self.name} returned {stream!r}; it must yield rounds.")
        for number, value in enumerate(stream):
            if isinstance(value, Round):
                yield value
            else:
                yield as_round(value, f"{self.name}, round {number}")

    def __iter__(self) -> Iterator[Round]:
        return self.rounds()

    @cached_property
    def messages(self) -> int:
        """Number of messages; all pieces that one rank sends another in a round count as one."""
        return sum(len(as_sent(part)) for part in self.rounds())


def as_sent(part: Round) -> Round:
    """Return the round with one row per message; the counts of its pieces are summed."""
    if part.switch or not len(part) or int(np.bincount(part.source).max()) <= 1:
        return part
    pairs = (part.source * (int(part.target.max()) + 1) + part.target) * 2 + part.reduce
    _, first, piece_of = np.unique(pairs, return_index=True, return_inverse=True)
    if len(first) == len(part):
        return part
    count = np.bincount(piece_of, weights=part.count).astype(np.int64)
    order = np.argsort(first)  # a port serves its messages in the order of the round
    first, count = first[order], count[order]
    return Round(
        part.source[first], part.target[first], part.offset[first], count, part.reduce[first]
    )


def one_by_one(part: Round) -> Iterator[Round]:
    """Yield the round, or that of a switch in parts in which no two messages reach the same elements of a rank."""
    if part.switch not in (COMBINE, STREAM) or not len(part):
        yield part
        return
    order = np.lexsort((part.offset, part.target))
    place = np.stack([part.target, part.offset])[:, order]
    new = np.ones(len(part), np.bool_)
    new[1:] = (place[:, 1:] != place[:, :-1]).any(0)
    turn = np.empty(len(part), np.int64)
    turn[order] = np.arange(len(part)) - np.flatnonzero(new)[np.cumsum(new) - 1]
    for number in range(int(turn.max()) + 1):
        yield Round(*(column[turn == number] for column in part.arrays))


def stored(schedule: Schedule) -> Schedule:
    """Return the same schedule with its rounds stored in memory, for repeated reads."""
    rounds = tuple(schedule.rounds())
    return dataclasses.replace(schedule, generate=lambda: rounds)


def messages(
    source: ArrayLike,
    target: ArrayLike,
    offset: ArrayLike,
    count: ArrayLike,
    reduce: ArrayLike,
    switch: str = "",
) -> Round:
    """Return the round of these messages; scalars broadcast.

    source, target: ranks. offset, count: elements. reduce: True to combine, False to overwrite.
    switch: see Round. Raises SpecError for anything but integers and booleans.
    """
    numbers = [np.asarray(value) for value in (source, target, offset, count)]
    kind = np.asarray(reduce)
    for name, value in zip(FIELDS, numbers, strict=True):
        if value.size and value.dtype.kind not in "iu":
            raise SpecError(
                f"{name} = {value.flat[0]}: expected whole numbers (use // instead of /)."
            )
    if kind.size and kind.dtype.kind != "b":
        raise SpecError(f"reduce = {kind.flat[0]}: expected True (combine) or False (overwrite).")
    try:
        shape = np.broadcast(*numbers, kind, ONE).shape
    except ValueError:
        lengths = ", ".join(
            f"{n} {v.size}" for n, v in zip([*FIELDS, "reduce"], [*numbers, kind], strict=True)
        )
        raise SpecError(f"A round needs arrays of one length; here: {lengths}.") from None
    # Most columns have that shape already; np.broadcast_arrays would be most of the time of a short round.
    s, t, o, c, r = (
        (column if column.shape == shape else np.broadcast_to(column, shape)).reshape(-1)
        for column in (*numbers, kind)
    )
    s, t, o, c = (column.astype(np.int64, copy=False) for column in (s, t, o, c))
    return Round(s, t, o, c, r.astype(np.bool_, copy=False), switch)


def as_round(value: RoundLike, where: str = "round") -> Round:
    """Return `value` if it is a Round, else the round of its tuples (source, target, offset, count, kind).

    Raises SpecError, which names `where` and the invalid tuple.
    """
    if isinstance(value, Round):
        return value
    try:
        rows = list(value)
    except TypeError:
        raise SpecError(f"{where}: {value!r} is not a round; yield a list of messages.") from None
    for row in rows:
        _check_row(row, where)
    source, target, offset, count, kinds = zip(*rows, strict=True) if rows else [()] * 5
    return messages(source, target, offset, count, [KINDS[kind] for kind in kinds])


def elements_text(start: int, stop: int) -> str:
    """Format the range start .. stop - 1 of elements."""
    if stop - start == 1:
        return f"element {start}"
    return f"elements {start} to {stop - 1}" if stop > start else "no elements"


def _check_row(row: Any, where: str) -> None:
    if not isinstance(row, tuple | list) or len(row) != 5:
        raise SpecError(
            f"{where}: {row!r} is not a message; write (source, target, offset, count, 'reduce' or 'copy')."
        )
    *numbers, kind = row
    for name, value in zip(FIELDS, numbers, strict=True):
        if isinstance(value, bool) or not isinstance(value, int | np.integer):
            raise SpecError(
                f"{where}: {name} = {value!r} in {row!r}: expected a whole number (use // instead of /)."
            )
    if not isinstance(kind, str) or kind not in KINDS:
        raise SpecError(
            f"{where}: {kind!r} in {row!r}: expected 'reduce' or 'copy'.{suggest(str(kind), KINDS)}"
        )
