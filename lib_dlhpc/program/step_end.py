"""What follows the passes of a step: which instructions differ, and what they cost each stage."""

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from lib_dlhpc.program.instructions import Instruction

if TYPE_CHECKING:
    from lib_dlhpc.program.program import Chunk, Prices

Row: TypeAlias = Sequence[Instruction | None]  # of each stage


class StepEnd(NamedTuple):
    """The prices of each stage, the same object where groups lie alike; and of each row the instructions that differ,
    or their prices do, with these and of how many stages they are."""

    prices: "tuple[Prices, ...]"
    distinct: "tuple[tuple[tuple[Instruction, Prices, int], ...], ...]"


def ends_of(stages: "Sequence[Sequence[Chunk]]", rows: Sequence[Row]) -> StepEnd:
    """Return what follows the passes of these stages."""
    first: dict[int, Prices] = {}
    stage_prices = (stage[0].last.prices[0] for stage in stages)
    prices = tuple([first.setdefault(id(priced.groups), priced) for priced in stage_prices])
    return StepEnd(prices, tuple(tuple(_distinct(row, prices)) for row in rows))


def _distinct(row: Row, prices: "tuple[Prices, ...]") -> "Iterator[tuple[Any, Prices, int]]":
    keys = [*zip(map(id, row), map(id, prices), strict=True)]
    known = dict(zip(keys, zip(row, prices, strict=True), strict=True))
    for key, count in Counter(keys).items():
        what, on = known[key]
        if what is not None:
            yield what, on, count
