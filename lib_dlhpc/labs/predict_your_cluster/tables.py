"""What a learner is shown of a hidden cluster: calibration points, and runs compared with their prediction.

points_lines(points, unit), run_lines(own, ...)     tables as lines of text, the first of them the head
times_as_fast(own), most_off(own)                   what the learner is asked to guess
"""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from lib_dlhpc.errors import SpecError
from lib_dlhpc.labs.predict_your_cluster.hidden_cluster import (
    DAYS,
    TERMS,
    Cluster,
    Job,
    Points,
    jobs_of,
    predicted_terms,
    simulated,
)
from lib_dlhpc.labs.predict_your_cluster.laws import fit_of, numbers, result
from lib_dlhpc.spec.units import format_quantity as show

RANKS = (2, 4, 8)
FULL = (8, 2)  # ranks, nodes: where most is shared
Lines = list[list[str]]
Given = Mapping[str, Callable[..., Any]]


def points_lines(points: Points, what: str, unit: str) -> Lines:
    """Return the quickest, the middle and the slowest repeat of each size."""
    head = [what, "quickest", "median", "slowest"]
    rows = [
        [show(size, unit), *(show(f(seconds), "s") for f in (min, np.median, max))]
        for size, seconds in points
    ]
    return [head, *rows]


def check_layout(ranks: int, nodes: int) -> None:
    """Raise SpecError unless the hidden cluster has such a layout."""
    if ranks not in RANKS:
        raise SpecError(f"ranks = {ranks}: legal: {', '.join(map(str, RANKS))}.")
    legal = [n for n in RANKS if n <= ranks]
    if nodes not in legal:
        raise SpecError(f"nodes = {nodes}: legal for {ranks} ranks: {', '.join(map(str, legal))}.")


def run_lines(own: Cluster, job: Job, given: Given, ranks: int, nodes: int) -> tuple[Lines, str]:
    """Return a run on the hidden cluster compared with the learner's prediction, and a sentence on the band.

    Raises LabError where a function gives no numbers, SpecError for a layout that is not there.
    """
    check_layout(ranks, nodes)
    fits = [fit_of(given["fit_messages"], given["fit_products"], own, day) for day in range(DAYS)]
    predicted = numbers(given["terms"], ("compute", "communication"), fits[0], job, ranks)
    repaired = numbers(given["repaired"], TERMS, fits[0], job, ranks, nodes)
    low, high = map(float, result(given["band"], fits, job, ranks))
    measured = simulated(own, job, ranks, nodes)
    step = sum(measured.values())
    lines = [["", "predicted", "repaired", "measured", "predicted off", "repaired off"]]
    for name in TERMS:
        ways = [predicted.get(name, 0.0), repaired[name], measured[name]]
        off = [f"{(way - measured[name]) / step:+z.1%}" for way in ways[:2]]
        lines.append([name, *(show(way, "s") for way in ways), *off])
    totals = [sum(predicted.values()), sum(repaired.values()), step]
    off = [f"{way / step - 1:+z.1%}" for way in totals[:2]]
    lines.append(["a step", *(show(way, "s") for way in totals), *off])
    holds = "holds" if low <= step <= high else "does not hold"
    return lines, f"Your band, {show(low, 's')} to {show(high, 's')}, {holds} what was measured."


def times_as_fast(own: Cluster) -> float:
    """Return how many times as fast a step of the large network is on 8 ranks as on 2, a rank a node."""
    job = jobs_of(own)[1]
    two, eight = (sum(simulated(own, job, ranks, ranks).values()) for ranks in (2, 8))
    return two / eight


def most_off(own: Cluster) -> str:
    """Return which term of the large network is off most where most is shared."""
    job = jobs_of(own)[1]
    predicted, measured = predicted_terms(own, job, FULL[0]), simulated(own, job, *FULL)
    return max(TERMS, key=lambda name: abs(measured[name] - float(predicted[name])))
