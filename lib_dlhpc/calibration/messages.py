"""What messages and collectives say: latency and bandwidth of the link between two ranks, and where protocols change.

The law is that of the formulas: latency, bytes over bandwidth, and for sums gamma a byte. Small messages go
eagerly, large ones when the receiver is ready: such a step is found where two straight lines fit better than one.
The formulas know of one line: it is that of what training sends, which is no less than SMALLEST. What is smaller
takes less than it says, by microseconds; the interval of the latency goes down to that.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import log2
from typing import Any

import numpy as np

from lib_dlhpc.calibration.fit import least_error
from lib_dlhpc.calibration.robust import Floats, Points, calm, typical

# The library's as if it went round a ring; "halves" are those of one, which ZeRO goes: one adds up and leaves each
# its part, the other collects.
SUMMED = ("ring", "recursive_doubling", "library", "halves")
FITTED = ("message", *SUMMED)
SMALLEST = 1 << 12  # B of messages that training sends: gradients, activations
PIECE = (
    1 << 20
)  # B of a sum that the library is given at once (worker.py), or of a message (schedules/halves.py)
STEP = 1.2  # times the time of the line before it: then a step is one
BEYOND = 4.0  # times the largest rate that was measured: there bytes cost nothing that shows
BETTER = 0.7  # of the error with one line: then two lines are better


@dataclass(frozen=True)
class Messages:
    """What was found of the link. step: B from which on messages go another way, 0 where no step shows.

    errors: by kind, of the points that were fitted.
    """

    latency: float
    latency_ends: tuple[float, float]
    bandwidth: float
    bandwidth_ends: tuple[float, float]
    step: int
    jump: float  # s more of latency from the step on
    errors: dict[str, Floats]


def fit_messages(results: Mapping[str, Any], gamma: float) -> Messages | None:
    """Return what the points of messages and collectives amount to; None of a lone rank. gamma: s/B."""
    quiet, ranks = calm(results["others"]), int(results["ranks"])
    fitted_kinds = [point for point in results["points"] if point["what"] in FITTED]
    points = [point for point in fitted_kinds if point["size"] >= SMALLEST]
    if not points:
        return None
    terms, known = zip(*(_terms(p["what"], p["size"], ranks) for p in points), strict=True)
    fitted = Points(
        terms, [np.asarray(p["seconds"])[quiet] for p in points], gamma * np.asarray(known)
    )
    x = fitted.fit()

    # Where bytes seem to cost nothing, the largest rate that was measured: a lower bound.
    most = max(
        term[1] / typical(seconds) for term, seconds in zip(terms, fitted.seconds, strict=True)
    )

    def shown(values: Floats) -> Floats:
        return np.array([values[0], 1 / values[1] if values[1] * BEYOND * most > 1 else most])

    latency, bandwidth = fitted.intervals(x, shown)
    least = min(typical(np.asarray(p["seconds"])[quiet]) for p in fitted_kinds if p["what"] == "message")
    latency = (min(latency[0], least), latency[1])
    errors, kinds = fitted.errors(x), np.array([p["what"] for p in points])
    sizes, took = curve(results, "message")
    step, jump = protocol_step(sizes, took)
    return Messages(
        float(x[0]),
        latency,
        float(shown(x)[1]),
        bandwidth,
        step,
        jump,
        {kind: errors[kinds == kind] for kind in FITTED if kind in kinds},
    )


def curve(results: Mapping[str, Any], what: str) -> tuple[list[int], list[float]]:
    """Return sizes in B and typical seconds of one kind of point."""
    quiet = calm(results["others"])
    chosen = [point for point in results["points"] if point["what"] == what]
    return (
        [int(point["size"]) for point in chosen],
        [typical(np.asarray(point["seconds"])[quiet]) for point in chosen],
    )


def protocol_step(sizes: Sequence[int], seconds: Sequence[float]) -> tuple[int, float]:
    """Return the size from which on messages take another way, and the s of latency that this adds; (0, 0) if none.

    The two lines are of least relative error each, with two sizes or more; the step is where they leave least.
    """
    n, t = np.asarray(sizes, float), np.asarray(seconds, float)
    one = _left(n, t)
    found = [(_left(n[:at], t[:at]) + _left(n[at:], t[at:]), at) for at in range(2, len(n) - 1)]
    if not found:
        return 0, 0.0
    least, at = min(found)
    before, after = _line(n[:at], t[:at]), _line(n[at:], t[at:])
    there = before[0] + before[1] * n[at], after[0] + after[1] * n[at]
    if least > BETTER * one or there[1] < STEP * there[0]:
        return 0, 0.0
    return int(n[at]), float(there[1] - there[0])


def _line(n: Floats, t: Floats) -> Floats:
    return least_error(np.stack([np.ones(len(n)), n], axis=1), t)


def _left(n: Floats, t: Floats) -> float:
    a, b = _line(n, t)
    return float(np.abs((a + b * n) / t - 1).sum())


def _terms(what: str, size: int, ranks: int) -> tuple[tuple[float, float], float]:
    """Return how often a point has the latency and how many bytes pass, and how many bytes are added up."""
    if what == "message":
        return (1.0, float(size)), 0.0
    if what == "recursive_doubling":
        whole = int(log2(ranks))
        rounds = whole + 2 * (2**whole != ranks)
        return (float(rounds), rounds * float(size)), (whole + (2**whole != ranks)) * float(size)
    calls = 2
    if what == "library":
        calls *= -(-size // PIECE)
    elif what == "halves":  # the first adds up in messages of about a PIECE
        calls = max(1, size // ranks // PIECE) + 1
    share = (ranks - 1) / ranks * size
    return (float(calls * (ranks - 1)), 2 * share), share
