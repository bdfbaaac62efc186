"""A timeline, and the mean step of one, in words and as columns, for notebooks (see results/)."""

from typing import TYPE_CHECKING

import numpy as np

from lib_dlhpc.results import Columns, Summary, percent, shown
from lib_dlhpc.spec.units import count
from lib_dlhpc.timeline.kinds import KINDS, STREAMS
from lib_dlhpc.timeline.overview import kinds

if TYPE_CHECKING:
    from lib_dlhpc.timeline.measure import Measured
    from lib_dlhpc.timeline.table import Timeline

RANKS, EVENTS = 8, 5000  # of a chart
CALLS = ("send", "receive", "collective")  # of a recorded program


def summary(of: "Timeline") -> Summary:
    """Return ranks, events and span, and the time of each kind of event."""
    found = {kind["kind"]: kind for kind in kinds(of)}
    span = float(of.stop.max() - of.start.min()) if len(of) else 0.0
    facts = {"span": shown(span, "s")}
    facts |= {
        f"{name} of a rank": shown(found[name]["seconds"] / of.ranks, "s")
        for name in ("forward", "backward", "update")
        if name in found
    }
    rows = [
        (name, f"{kind['events']:,}", shown(kind["seconds"] / of.ranks, "s"))
        for name, kind in found.items()
    ]
    title = f"{of.source}, {count(of.ranks, 'rank')}, {count(len(of), 'event')}"
    return Summary(title, facts, ("kind", "events", "time of a rank"), rows)


def columns(of: "Timeline") -> Columns:
    """Return a row for each event: rank, stream, kind, name, start, stop, seconds, bytes, peer."""
    words = {"stream": STREAMS, "kind": KINDS, "name": of.names}
    named = {key: np.array(legal, dtype=object)[getattr(of, key)] for key, legal in words.items()}
    table = {
        "rank": of.rank,
        **named,
        "start": of.start,
        "stop": of.stop,
        "seconds": of.stop - of.start,
        "bytes": of.bytes,
        "peer": of.peer,
    }
    return {key: values.tolist() for key, values in table.items()}


def drawn(of: "Timeline") -> "Timeline":
    """Return the events of a chart: RANKS ranks, evenly spaced, without single messages, EVENTS at most."""
    ranks = np.unique(np.linspace(0, of.ranks - 1, RANKS).round())
    wanted = np.isin(of.rank, ranks) & ((of.peer < 0) | of.where("", *CALLS))
    first = np.argsort(of.start, kind="stable")
    return of.select(first[wanted[first]][:EVENTS])


def measured_summary(of: "Measured") -> Summary:
    """Return the step time, and each term: mean of the ranks, and slowest rank."""
    facts = {"step": shown(of.step_time, "s")}
    rows = [
        (name, shown(mean, "s"), shown(of.slowest_terms[name], "s"), percent(mean / of.step_time))
        for name, mean in of.terms.items()
        if mean
    ]
    header = ("term", "mean of the ranks", f"rank {of.slowest}", "share of the step")
    ranks = len(of.per_rank["forward"])
    return Summary(f"{count(of.steps, 'step')} of {count(ranks, 'rank')}", facts, header, rows)


def measured_columns(of: "Measured") -> Columns:
    """Return a row for each term of each rank: rank, term, seconds."""
    ranks = len(of.per_rank["forward"])
    return {
        "rank": list(range(ranks)) * len(of.per_rank),
        "term": [name for name in of.per_rank for _ in range(ranks)],
        "seconds": [float(each) for seconds in of.per_rank.values() for each in seconds],
    }
