"""What a program on ranks has turns in several turns, as if it had gone on.

Its lists have an entry for each round, each step, or each rank and in that one for each round or step; what is measured
is the same in all turns.
"""

from collections.abc import Mapping, Sequence
from typing import Any

BY_RANK = ("rounds", "steps", "wall", "seconds")


def merged(turns: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the turns of training/probe.py, or of worker.py, as one."""
    found = {**turns[0], "others": _after([turn["others"] for turn in turns])}
    for key in ("cases", "points", "away"):
        if key in found:
            # Where a turn had no room to put anything away, all that is left of the others' is left out.
            found[key] = [_one(each) for each in zip(*(turn[key] for turn in turns), strict=False)]
    if "run" in found:
        found["run"] = _one([turn["run"] for turn in turns])
    return found


def _one(turns: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return one measurement with what all turns have turns of it."""
    lists = {key: [each[key] for each in turns] for key in BY_RANK if key in turns[0]}
    return {**turns[0], **{key: _after(each) for key, each in lists.items()}}


def _after(lists: Sequence[list[Any]]) -> list[Any]:
    """Return the lists one behind the other, or those of each rank."""
    if lists[0] and isinstance(lists[0][0], list):
        return [_after(of_rank) for of_rank in zip(*lists, strict=True)]
    return [value for each in lists for value in each]
