"""Merge the results of several turns of an MPI program into those of one run.

Its lists have an entry for each round or step, or for each rank a list of these.
"""

from collections.abc import Mapping, Sequence
from typing import Any

BY_RANK = ("rounds", "steps", "wall", "seconds")


def merged(turns: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the merged results of all turns of training/probe.py or worker.py."""
    found = {**turns[0], "others": _concatenated([turn["others"] for turn in turns])}
    for key in ("cases", "points", "away"):
        if key in found:
            # If one turn had no space to offload, the other turns' points are dropped.
            found[key] = [_one(each) for each in zip(*(turn[key] for turn in turns), strict=False)]
    if "run" in found:
        found["run"] = _one([turn["run"] for turn in turns])
    return found


def _one(turns: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return one measurement with the values of all turns."""
    lists = {key: [turn[key] for turn in turns] for key in BY_RANK if key in turns[0]}
    return {**turns[0], **{key: _concatenated(each) for key, each in lists.items()}}


def _concatenated(lists: Sequence[list[Any]]) -> list[Any]:
    """Return the concatenated lists, by rank where they are nested."""
    if lists[0] and isinstance(lists[0][0], list):
        return [_concatenated(of_rank) for of_rank in zip(*lists, strict=True)]
    return [value for each in lists for value in each]
