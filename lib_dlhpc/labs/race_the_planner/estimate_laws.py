"""Findings on a learner's estimate: its bytes beside the ledger, term by term, and its order of the objective.

estimate(experiment, layout)    the objective but for a factor, and B of the fullest device, {term: B}
"""

from collections.abc import Callable, Mapping, Sequence
from math import inf, isfinite
from typing import Any

import numpy as np

from lib_dlhpc.labs.findings import Finding, broken, kept
from lib_dlhpc.labs.mistakes import LabError
from lib_dlhpc.labs.race_the_planner.tracks import Track
from lib_dlhpc.spec.units import format_quantity as show

BYTES_ORDER, VALUE_ORDER = 0.9, 0.7  # rank correlations, the second on average over the tracks
# A factor by which the median of a term of the bytes may be off: an attention kernel may store scores or not.
SIZES = {"state": 1.5, "activations": 3.0}
MOST = 60  # layouts of a track that are compared
HELD = {  # a learner's terms, and the ledger's
    "state": ("weights", "gradients", "master weights", "optimizer state"),
    "activations": ("activations",),
}
SPENT = {  # what a step is spent on, in the terms of a prediction
    "computing": ("forward", "backward", "update"),
    "the bubble": ("pipeline bubble",),
    "exposed communication": ("exposed communication",),
}
STATE, ACTIVATIONS = (
    f"Your estimate of {term}: rank correlation {BYTES_ORDER:g}, median within a factor of {size:g}"
    for term, size in SIZES.items()
)
VALUE = f"Your estimate of the objective: mean rank correlation {VALUE_ORDER:g}"
HINTS = {
    "state": "Which of tensor, pipeline and ZeRO divide which of weights, gradients and optimizer state?",
    "activations": (
        "Did you count the blocks of a stage, the microbatches in flight, the samples of each, and what recomputation"
        " leaves?"
    ),
    "exposed communication": "Which link does a group of replicas use, and how many of a node's NICs?",
}
LATE = "When does the host take longer to launch the kernels of a block than the device takes to compute them?"
Values = np.ndarray[Any, np.dtype[np.float64]]


def estimate_findings(estimate: Callable[..., Any], tracks: Sequence[Track]) -> list[Finding]:
    """Return whether an estimate orders the layouts of the tracks as the ledger and the predictions do."""
    laws = {"state": STATE, "activations": ACTIVATIONS}
    try:
        found = [_bytes_finding(estimate, tracks, term, law) for term, law in laws.items()]
        return [*found, _value_finding(estimate, tracks)]
    except LabError as error:
        return [broken(law, str(error)) for law in (*laws.values(), VALUE)]


def _bytes_finding(
    estimate: Callable[..., Any], tracks: Sequence[Track], term: str, law: str
) -> Finding:
    found = []
    for number, track in enumerate(tracks, 1):
        rows = _spread(range(len(track.layouts)))
        own = np.array([_estimated(estimate, track, row)[1][term] for row in rows])
        right = np.array([_sum(track.ledger(row), HELD[term]) for row in rows])
        order, ratio = correlation(own, right), float(np.median(own / right))
        both = f"Track {number}: a rank correlation of {order:.2f}, a median of {ratio:.2g} times the ledger's."
        if order < BYTES_ORDER or not 1 / SIZES[term] <= ratio <= SIZES[term]:
            worst = int(np.argmax(abs(np.log(np.maximum(own, 1.0) / right))))
            where = ", ".join(f"{n} {track.layouts[rows[worst]][n]}" for n in track.fields)
            words = f"{both} The furthest: {where}, {show(own[worst], 'B')}."
            return broken(law, f"{words} {HINTS[term]}")
        found.append(order)
    return kept(law, f"Rank correlations: {', '.join(f'{each:.2f}' for each in found)}.")


def _value_finding(estimate: Callable[..., Any], tracks: Sequence[Track]) -> Finding:
    found, words = [], []
    for number, track in enumerate(tracks, 1):
        rows = _spread([row for row, value in enumerate(track.values) if value < inf])
        own = np.array([_estimated(estimate, track, row)[0] for row in rows])
        right = np.array([track.values[row] for row in rows])
        terms = [track.outcome(row).terms for row in rows]
        shares = {
            name: np.array([_sum(each, those) / sum(each.values()) for each in terms])
            for name, those in SPENT.items()
        }
        found.append(correlation(own, right))
        words.append(f"Track {number}, by {track.objective}: {missed(own, right, shares)}")
    shown = f"Rank correlations: {', '.join(f'{each:.2f}' for each in found)}."
    if float(np.mean(found)) >= VALUE_ORDER:
        return kept(VALUE, shown)
    return broken(VALUE, f"{shown} {words[int(np.argmin(found))]}")


def missed(own: Values, right: Values, shares: Mapping[str, Values]) -> str:
    """Return the term that an estimate misses most: where its share is large, the estimate is too small."""
    if own.min() == own.max():
        return "it is the same for all layouts."
    ratio = own / right
    falls = {name: correlation(ratio, each) for name, each in shares.items()}
    name = max(falls, key=lambda each: abs(falls[each]))
    how = "too small" if falls[name] < 0 else "too large"
    hint = LATE if (name, how) == ("computing", "too small") else HINTS.get(name, "")
    return f"it is {how} where {name} takes much of a step. {hint}".rstrip()


def correlation(one: Values, other: Values) -> float:
    """Return Spearman's rank correlation, 0 where one of both is constant."""
    ranks = [_ranks(each) for each in (one, other)]
    if any(each.min() == each.max() for each in ranks):
        return 0.0
    return float(np.corrcoef(ranks[0], ranks[1])[0, 1])


def _ranks(values: Values) -> Values:
    """Return ranks, equal ones for equal values."""
    _, places, counts = np.unique(values, return_inverse=True, return_counts=True)
    middle: Values = (np.cumsum(counts) - (counts - 1) / 2)[places]
    return middle


def _spread(rows: Sequence[int]) -> list[int]:
    """Return at most MOST rows, from all parts of the list."""
    return list(rows[:: max(1, -(-len(rows) // MOST))])


def _sum(terms: Mapping[str, float], those: Sequence[str]) -> float:
    return sum(terms.get(name, 0.0) for name in those)


def _estimated(
    estimate: Callable[..., Any], track: Track, row: int
) -> tuple[float, dict[str, float]]:
    """Return what an estimate gives for a row. Raises LabError where it is no number and no terms."""
    try:
        value, sizes = estimate(track.experiment, dict(track.layouts[row]))
        found = float(value), {term: float(sizes[term]) for term in HELD}
    except LabError:
        raise
    except Exception as error:
        legal = ", ".join(map(repr, HELD))
        words = f"estimate returns the objective, and {{term: bytes}} with the terms {legal}"
        raise LabError(f"{words}. {type(error).__name__}: {error}") from None
    if not all(map(isfinite, (found[0], *found[1].values()))):
        raise LabError(
            f"estimate returns {value} and {sizes}: expected finite numbers, even for a layout that does not fit."
        )
    return found
