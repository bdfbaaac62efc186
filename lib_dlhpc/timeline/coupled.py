"""Where the ranks of a coupled workflow spend their time, by the same terms whichever engine filled the table.

    simulate          regions of that name
    train             forward, backward, update, and the batch being fetched
    wait for samples  a training rank has taken out all that there was
    wait for room     a simulating rank has filled the buffer
    exchange          rows and gradients exchanged, batches given and taken, and waits for ranks of the same side
    idle              nothing left to do, and what was not recorded

They sum to the time of the run, on every rank.
"""

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from lib_dlhpc.timeline.table import Timeline

TERMS = ("simulate", "train", "exchange", "wait for samples", "wait for room", "idle")
SAMPLES, ROOM, DONE = "wait for samples", "wait for room", "all done"


def coupled_terms(timeline: Timeline, seconds: float = 0.0) -> Mapping[str, NDArray[np.float64]]:
    """Return the s of each term, shape (ranks,). seconds: of the run, if it lasts longer than the table."""
    table = timeline.select(timeline.where("compute"))
    names = np.array(timeline.names)[table.name] if len(table) else np.array([], str)
    lasts = table.stop - table.start
    wait = table.where("", "wait")
    rows = {
        "simulate": table.where("", "region") & (names == "simulate"),
        "train": table.where("", "forward", "backward", "update", "input"),
        "exchange": wait & ~np.isin(names, (SAMPLES, ROOM, DONE)),
        SAMPLES: wait & (names == SAMPLES),
        ROOM: wait & (names == ROOM),
    }
    terms: dict[str, NDArray[np.float64]] = {
        name: np.bincount(table.rank[mask], weights=lasts[mask], minlength=timeline.ranks).astype(
            np.float64
        )
        for name, mask in rows.items()
    }
    total = max(seconds, float(timeline.stop.max(initial=0.0)))
    terms["idle"] = np.maximum(total - sum(terms.values()), 0.0)
    return terms


def mean_terms(timeline: Timeline, seconds: float = 0.0) -> dict[str, float]:
    """Return the terms of the mean rank, s."""
    terms = coupled_terms(timeline, seconds)
    return {name: float(terms[name].mean()) for name in TERMS}
