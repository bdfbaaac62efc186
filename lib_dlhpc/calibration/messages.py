"""Fit messages and collectives: latency and bandwidth of the link between two ranks, eager to rendezvous switch.

The law is that of the prediction formulas: latency + bytes / bandwidth, plus gamma per reduced byte. Small messages
are sent eagerly, large ones by rendezvous: the switch is where two straight lines fit better than one. The formulas
use one line, fitted to the message sizes of training, from SMALLEST on. Smaller messages are faster than the fit by
microseconds; the interval of the latency includes them.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import log2
from typing import Any

import numpy as np

from lib_dlhpc.calibration.fit import least_error
from lib_dlhpc.calibration.robust import Floats, Points, calm, typical

# The library's allreduce is modeled as a ring; "halves" is ZeRO's reduce-scatter, then all-gather.
SUMMED = ("ring", "recursive_doubling", "library", "halves")
# passes of a ring, in one call of a library
ONE_CALL = {"allreduce": 2, "reduce_scatter": 1, "all_gather": 1}
FITTED = ("message", *SUMMED, *ONE_CALL)
SMALLEST = 1 << 12  # B; smallest messages of training: gradients, activations
# B of one library call (worker.py), or of one message (schedules/ring_collectives.py)
PIECE = 1 << 20
STEP = 1.2  # times the line below it: minimum jump of a protocol switch
BEYOND = 4.0  # times the largest measured rate: above it, bytes cost nothing measurable
BETTER = 0.7  # of the error with one line: two lines must be below it


@dataclass(frozen=True)
class Messages:
    """The fitted link. step: B of the eager to rendezvous switch, 0 if none is visible.

    errors: of the fitted points, by kind.
    """

    latency: float
    latency_ends: tuple[float, float]
    bandwidth: float
    bandwidth_ends: tuple[float, float]
    step: int
    jump: float  # s of extra latency above the switch
    errors: dict[str, Floats]


def fit_messages(results: Mapping[str, Any], gamma: float) -> Messages | None:
    """Return the fit of messages and collectives; None for a single rank. gamma: s/B."""
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

    # If bytes cost nothing measurable: the largest measured rate, a lower bound.
    most = max(
        term[1] / typical(seconds) for term, seconds in zip(terms, fitted.seconds, strict=True)
    )

    def shown(values: Floats) -> Floats:
        return np.array([values[0], 1 / values[1] if values[1] * BEYOND * most > 1 else most])

    latency, bandwidth = fitted.intervals(x, shown)
    least = min(
        typical(np.asarray(p["seconds"])[quiet]) for p in fitted_kinds if p["what"] == "message"
    )
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
    """Return the size of the protocol switch, and the s of latency that it adds; (0, 0) if none.

    Each of the two lines minimizes the relative error over two sizes or more; the switch minimizes their sum.
    """
    n, t = np.asarray(sizes, float), np.asarray(seconds, float)
    one = _left(n, t)
    found = [
        (_left(n[:index], t[:index]) + _left(n[index:], t[index:]), index)
        for index in range(2, len(n) - 1)
    ]
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
    """Return the number of latencies and the bytes sent of a point, and its reduced bytes."""
    if what == "message":
        return (1.0, float(size)), 0.0
    if what == "recursive_doubling":
        whole = int(log2(ranks))
        rounds = whole + 2 * (2**whole != ranks)
        return (float(rounds), rounds * float(size)), (whole + (2**whole != ranks)) * float(size)
    share = (ranks - 1) / ranks * size
    if what in ONE_CALL:
        passes = ONE_CALL[what]
        return (float(passes * (ranks - 1)), passes * share), share * (what != "all_gather")
    calls = 2
    if what == "library":
        calls *= -(-size // PIECE)
    elif what == "halves":  # the reduce-scatter sends messages of about a PIECE
        calls = max(1, size // ranks // PIECE) + 1
    return (float(calls * (ranks - 1)), 2 * share), share
