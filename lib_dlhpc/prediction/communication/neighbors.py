"""A program whose ranks exchange messages with two neighbors, in closed form: how long each rank waits, and for which.

In a step rank r works b_r s, sends to both neighbors, receives from the one before it, then from the one behind
it, works a_r s more, and meets all others in an allreduce. Sends never wait; a message takes m s, meeting w s. With
all in step at 0, rank r sends at b_r and

    waits  max(b_{r-1} - b_r, 0)  for the first sender, whose message is there at  f_r = max(b_r, b_{r-1} + m),
    waits  max(b_{r+1} - f_r, 0)  for the second, whose is there at                g_r = max(f_r, b_{r+1} + m),
    comes to the allreduce at  g_r + a_r,  and waits there for the last of all,

and the step lasts  max_r (g_r + a_r) + w. What is waited for is the late sender's and the late comer's in
the sense of Scalasca (Geimer et al. 2010, doi:10.1002/cpe.1556). Messages do not share links here.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from lib_dlhpc.arrays import Floats
from lib_dlhpc.errors import SpecError


@dataclass(frozen=True, eq=False)
class NeighborsPrediction:
    """The duration of a run, and the s of each rank by term, (ranks,); the terms add up to `seconds` on every rank."""

    seconds: float
    terms: Mapping[str, Floats]


def predict_neighbors(
    before: ArrayLike, after: ArrayLike, message: float, meeting: float
) -> NeighborsPrediction:
    """Return the duration of a run with (steps, ranks) s of work before and after its messages.

    message, meeting: s of a message, and of the allreduce when all have joined. Raises SpecError for other shapes.
    """
    b, a = np.asarray(before, np.float64), np.asarray(after, np.float64)
    if b.ndim != 2 or a.shape != b.shape:
        raise SpecError(f"before {b.shape}, after {a.shape}: expected both (steps, ranks).")
    left, right = np.roll(b, 1, axis=1), np.roll(b, -1, axis=1)
    first = np.maximum(b, left + message)
    second = np.maximum(first, right + message)
    for_sender = np.maximum(left - b, 0) + np.maximum(right - first, 0)
    comes = second + a
    at_allreduce = comes.max(axis=1, keepdims=True) - comes
    seconds = float(comes.max(axis=1).sum() + len(b) * meeting)
    terms = {
        "works": (b + a).sum(axis=0),
        "waits for a sender": for_sender.sum(axis=0),
        "waits at a collective": at_allreduce.sum(axis=0),
    }
    terms["moves data"] = seconds - sum(terms.values())
    return NeighborsPrediction(seconds, terms)
