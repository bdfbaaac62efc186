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

LATENCY_UP_TO = 1 << 16  # B; longer messages say nothing about a latency
SAME = 1e-6  # relative; rounding error
FAR = 0.2  # median relative error of a file's points in the fit of all: files contradict each other
Ends = tuple[float, float]


@dataclass(frozen=True)
class Fitted:
    """A number of a machine, its 90 % interval, and the lines that it was fitted to."""

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
    columns = _columns(rows)
    size = next((key for key in columns if key.endswith(".bandwidth")), "")
    chosen = [at for at, row in enumerate(rows) if not size or row.get(size, 0.0) >= SMALLEST]
    if not size.endswith("_node.bandwidth") or len(chosen) < 2:
        chosen = list(range(len(rows)))
    terms = np.array([[rows[at].get(key, 0.0) for key in columns] for at in chosen])
    seconds = _repeats([group[at].seconds for at in chosen])
    terms, columns = _determined(terms, columns)
    points = Points(terms, seconds)
    x = points.fit()

    def shown(values: Floats) -> Floats:
        rates = [_is_rate(key) for key in columns]
        with np.errstate(divide="ignore"):
            return np.where(rates, 1 / np.asarray(values, float), values)

    ends = points.intervals(x, shown)
    found: list[Fitted] = []
    for at, key in enumerate(columns):
        value = float(shown(x)[at])
        if "." not in key or not math.isfinite(value):
            continue
        low, high = ends[at]
        if key.endswith(".latency"):
            sizes = [row[size] for row in rows if row.get(key) and size in row]
            if sizes and min(sizes) > LATENCY_UP_TO:
                continue
            low = min(
                [
                    low,
                    *(
                        min(group[n].seconds) / row[key]
                        for n, row in enumerate(rows)
                        if row.get(key)
                    ),
                ]
            )
        used = [group[n].source for n in chosen if rows[n].get(key)]
        found.append(Fitted(key, value, (min(low, value), max(high, value)), _merged(used)))
    return found, _contradictions([group[n].source for n in chosen], points.errors(x), found)


def _columns(rows: Sequence[Mapping[str, float]]) -> list[str]:
    return list(dict.fromkeys(key for row in rows for key in row))


def _is_rate(key: str) -> bool:
    return "." in key and field_of(key)["unit"] != "s"


def _determined(terms: Floats, columns: list[str]) -> tuple[Floats, list[str]]:
    """Return the columns that the points tell apart; bandwidths stay, for they are what a tool measures first."""
    while len(columns) > 1 and np.linalg.matrix_rank(terms / terms.max(axis=0)) < len(columns):
        at = next(n for n, key in enumerate(columns) if not key.endswith("bandwidth"))
        terms, columns = np.delete(terms, at, axis=1), columns[:at] + columns[at + 1 :]
    return terms, columns


def _repeats(seconds: Sequence[tuple[float, ...]]) -> Floats:
    """Return repeats of equal number: fewer ones are repeated."""
    width = math.lcm(*(len(each) for each in seconds))
    return np.array([np.repeat(each, width // len(each)) for each in seconds])


def _merged(sources: Sequence[Source]) -> tuple[Source, ...]:
    """Return one source for each file and test, from its first to its last line."""
    by_file: dict[tuple[str, str], list[Source]] = {}
    for each in sources:
        by_file.setdefault((each.file, each.tool), []).append(each)
    return tuple(
        Source(file, tool, min(s.first for s in some), max(s.last for s in some))
        for (file, tool), some in by_file.items()
    )


def _contradictions(
    sources: Sequence[Source], errors: Floats, found: Sequence[Fitted]
) -> list[str]:
    """Return a note if the points of a file or of a test are far from the fit of all."""
    tests = [(each.file, each.tool) for each in sources]
    off = {
        test: float(np.median([e for e, of in zip(errors, tests, strict=True) if of == test]))
        for test in dict.fromkeys(tests)
    }
    if len(off) < 2 or max(map(abs, off.values())) < FAR:
        return []
    shown = ", ".join(f"{file} ({tool}) {error:+.0%}" for (file, tool), error in off.items())
    keys = ", ".join(each.key for each in found)
    return [f"{keys}: measurements contradict each other; fitted over measured time: {shown}."]
