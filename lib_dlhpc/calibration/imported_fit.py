"""Fit what outputs of other tools say about a machine, by the fits of `dlhpc calibrate`.

Times of one link, or of one number of a storage tier, are points of one law, whatever tool measured them. Latency and
bandwidth of a link are fitted to messages from messages.SMALLEST on, as in calibrate; the interval of the latency
includes the shortest message.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from lib_dlhpc.calibration.messages import SMALLEST
from lib_dlhpc.calibration.robust import Floats, Points
from lib_dlhpc.importing.measurements import Source, Timed
from lib_dlhpc.spec.machine import field_of

# B; longer messages say nothing about a latency, shorter ones nothing about a bandwidth.
LONG = 1 << 16
SAME = 1e-6  # relative; rounding error
FAR = 0.2  # median relative error of a file's points in the fit of all: files contradict each other
Ends = tuple[float, float]


@dataclass(frozen=True)
class Fitted:
    """A number of a machine, its 90% interval, and the lines that it was fitted to."""

    key: str
    value: float
    ends: Ends
    sources: tuple[Source, ...]

    @property
    def repeated(self) -> bool:
        """Whether there is an interval: a single value has none."""
        return self.ends[1] - self.ends[0] > SAME * self.value


def fit_times(
    times: Sequence[Timed], nics: int, own_tiers: frozenset[str]
) -> tuple[list[Fitted], list[str]]:
    """Return all numbers that the times determine, and notes.

    nics: of a node. own_tiers: storage tiers of a node, such as "storage.nvme"; others are shared.
    """
    found: list[Fitted] = []
    notes: list[str] = []
    for group in _groups(times):
        rows = [_terms(each, nics, own_tiers) for each in group]
        fitted, said = _fit(group, rows)
        found += fitted
        notes += said
    return found, notes


def _groups(times: Sequence[Timed]) -> list[list[Timed]]:
    """Return the times by law: those that share a number belong together."""
    groups: list[tuple[set[str], list[Timed]]] = []
    for each in times:
        keys = set(each.terms)
        linked = [group for group in groups if group[0] & keys]
        groups = [group for group in groups if not group[0] & keys]
        groups.append(
            (
                keys.union(*(group[0] for group in linked)),
                [*(t for g in linked for t in g[1]), each],
            )
        )
    return [group for _, group in groups]


def _terms(each: Timed, nics: int, own_tiers: frozenset[str]) -> dict[str, float]:
    """Return the terms of a time with the links, and the nodes, that work together."""
    terms = dict(each.terms)
    for key in terms:
        if key == "inter_node.bandwidth":
            terms[key] /= max(1, min(nics, each.links))
        elif key.rpartition(".")[0] in own_tiers:
            terms[key] /= each.nodes
    return terms


def _fit(group: list[Timed], rows: list[dict[str, float]]) -> tuple[list[Fitted], list[str]]:
    chosen = _chosen(group, rows)
    used = [group[at].source for at in chosen]
    columns, terms = _determined([rows[at] for at in chosen])
    points = Points(terms, _repeats([group[at].seconds for at in chosen]))
    x = points.fit()

    def shown(values: Floats) -> Floats:
        rates = [_is_rate(key) for key in columns]
        with np.errstate(divide="ignore"):
            return np.where(rates, 1 / np.asarray(values, float), values)

    found: list[Fitted] = []
    with np.errstate(divide="ignore"):  # where a law says nothing about a point
        ends = points.intervals(x, shown)
    for index, (key, (low, high)) in enumerate(zip(columns, ends, strict=True)):
        value = float(shown(x)[index])
        if "." not in key or not math.isfinite(value) or not _is_said(key, rows):
            continue
        if key.endswith(".latency"):
            least = [
                min(t.seconds) / row[key]
                for t, row in zip(group, rows, strict=True)
                if row.get(key)
            ]
            low = min(low, *least)
        sources = _merged([source for source, row in zip(used, terms, strict=True) if row[index]])
        found.append(Fitted(key, value, (min(low, value), max(high, value)), sources))
    return found, _contradictions(used, points.errors(x), found)


def _size(row: Mapping[str, float]) -> float:
    """Return the bytes that a link carries; infinite for what is no message."""
    return next((row[key] for key in row if key.endswith("_node.bandwidth")), math.inf)


def _chosen(group: Sequence[Timed], rows: Sequence[Mapping[str, float]]) -> list[int]:
    """Return the points to fit: of each test the messages from SMALLEST on, or all if it has none."""
    tests = [(each.source.file, each.source.tool) for each in group]
    large = {test for test, row in zip(tests, rows, strict=True) if _size(row) >= SMALLEST}
    return [
        index
        for index, row in enumerate(rows)
        if _size(row) >= SMALLEST or tests[index] not in large
    ]


def _is_said(key: str, rows: Sequence[Mapping[str, float]]) -> bool:
    """Return whether the messages are short enough for a latency, or long enough for a bandwidth."""
    sizes = [_size(row) for row in rows if row.get(key)]
    if key.endswith("_node.latency"):
        return min(sizes) <= LONG
    return max(sizes) >= LONG


def _determined(rows: Sequence[Mapping[str, float]]) -> tuple[list[str], Floats]:
    """Return numbers that the points tell apart, and their terms: (points, numbers).

    First constants of a message go, then what such sizes say little about.
    """
    columns = list(dict.fromkeys(key for row in rows for key in row))
    while True:
        terms = np.array([[row.get(key, 0.0) for key in columns] for row in rows])
        if np.linalg.matrix_rank(terms / terms.max(axis=0)) == len(columns):
            return columns, terms
        small = max(map(_size, rows)) < LONG
        order = sorted(
            columns,
            key=lambda key: ("." in key, key.endswith("bandwidth") != small, columns.index(key)),
        )
        columns.remove(order[0])


def _is_rate(key: str) -> bool:
    return "." in key and field_of(key)["unit"] != "s"


def _repeats(seconds: Sequence[tuple[float, ...]]) -> Floats:
    """Return repeats of equal number: fewer ones are repeated."""
    width = math.lcm(*(len(each) for each in seconds))
    return np.array([np.repeat(each, width // len(each)) for each in seconds])


def _merged(sources: Sequence[Source]) -> tuple[Source, ...]:
    """Return one source for each file and test, from its first to its last line."""
    by_file: dict[tuple[str, str], list[Source]] = {}
    for source in sources:
        by_file.setdefault((source.file, source.tool), []).append(source)
    return tuple(
        Source(file, tool, min(s.first for s in some), max(s.last for s in some))
        for (file, tool), some in by_file.items()
    )


def _contradictions(
    sources: Sequence[Source], errors: Floats, found: Sequence[Fitted]
) -> list[str]:
    """Return a note if the points of a file or of a test are far from the fit of all."""
    tests = [(source.file, source.tool) for source in sources]
    off = {
        test: float(np.median([e for e, of in zip(errors, tests, strict=True) if of == test]))
        for test in dict.fromkeys(tests)
    }
    if len(off) < 2 or max(map(abs, off.values())) < FAR:
        return []
    shown = ", ".join(f"{file} ({tool}) {error:+z.0%}" for (file, tool), error in off.items())
    keys = ", ".join(each.key for each in found)
    return [f"{keys}: measurements contradict each other; fitted over measured time: {shown}."]
