"""What a trace has, at a glance: ranks, span, events by kind, time by name."""

from typing import TYPE_CHECKING, Any

import numpy as np

from lib_dlhpc.spec.units import count, format_quantity
from lib_dlhpc.timeline.kinds import KINDS, STREAMS
from lib_dlhpc.timeline.printable import printable

if TYPE_CHECKING:
    from lib_dlhpc.timeline.table import Timeline

SHOWN, WIDTH = 20, 40  # names in the text, characters of one


def as_dict(timeline: "Timeline") -> dict[str, Any]:
    """Return it in SI units. Time by name is inclusive: what lies within an event counts in both."""
    begin = float(timeline.start.min()) if len(timeline) else 0.0
    end = float(timeline.stop.max()) if len(timeline) else 0.0
    busy = np.unique(timeline.rank).tolist()
    return {
        "source": timeline.source,
        "ranks": timeline.ranks,
        "ranks without events": sorted(set(range(timeline.ranks)) - set(busy)),
        "events": len(timeline),
        "start": begin,
        "stop": end,
        "span": end - begin,
        "kinds": kinds(timeline),
        "names": _names(timeline),
    }


def as_text(timeline: "Timeline") -> str:
    """Return it in words and two tables."""
    summary = as_dict(timeline)
    span = format_quantity(summary["span"], "s")
    lines = [
        f"{summary['source']}: {count(timeline.ranks, 'rank')}, {count(len(timeline), 'event')}"
        f" in {span}, from {summary['start']:.9g} s to {summary['stop']:.9g} s."
    ]
    if summary["ranks without events"] and len(timeline):
        without = summary["ranks without events"]
        some = ", ".join(map(str, without[:8])) + (" ..." if len(without) > 8 else "")
        lines.append(f"No events of {count(len(without), 'rank')}: {some}.")
    if summary["kinds"]:
        lines += ["", f"{'kind':<14} {'events':>12} {'time':>12} {'bytes':>12}"]
    for kind in summary["kinds"]:
        size = format_quantity(kind["bytes"], "B") if kind["bytes"] else ""
        time = format_quantity(kind["seconds"], "s")
        lines.append(f"{kind['kind']:<14} {kind['events']:>12,} {time:>12} {size:>12}")
    if summary["names"]:
        head = f"{'name':<{WIDTH}} {'stream':<14} {'events':>10} {'time':>10} {'most':>10}  of rank"
        lines += ["", head]
    for name in summary["names"][:SHOWN]:
        times = [format_quantity(name[key], "s") for key in ("seconds", "most")]
        shown = (
            f"{printable(name['name'], WIDTH):<{WIDTH}} {name['stream']:<14} {name['events']:>10,}"
        )
        lines.append(f"{shown} {times[0]:>10} {times[1]:>10}  {name['rank']}")
    if summary["names"][SHOWN:]:
        rest = summary["names"][SHOWN:]
        time = format_quantity(sum(name["seconds"] for name in rest), "s")
        lines.append(f"and {count(len(rest), 'name')} more: {time}")
    return "\n".join(lines)


def kinds(timeline: "Timeline") -> list[dict[str, Any]]:
    """Return events, seconds and bytes of each kind."""
    length = timeline.stop - timeline.start
    events = np.bincount(timeline.kind, minlength=len(KINDS))
    seconds = np.bincount(timeline.kind, weights=length, minlength=len(KINDS))
    return [
        {
            "kind": kind,
            "events": int(events[number]),
            "seconds": float(seconds[number]),
            "bytes": int(timeline.bytes[timeline.kind == number].sum()),
        }
        for number, kind in enumerate(KINDS)
        if events[number]
    ]


def _names(timeline: "Timeline") -> list[dict[str, Any]]:
    """Return the names of each stream, the longest in all first, with the rank that has most of its time."""
    if not len(timeline):
        return []
    of_stream = timeline.name.astype(np.int64) * len(STREAMS) + timeline.stream
    keys, key = np.unique(of_stream, return_inverse=True)
    pairs, pair = np.unique(key * timeline.ranks + timeline.rank, return_inverse=True)
    each = np.bincount(pair, weights=timeline.stop - timeline.start)
    owner, rank = np.divmod(pairs, timeline.ranks)
    events, seconds = np.bincount(key), np.bincount(owner, weights=each)
    worst = np.lexsort((-rank, each, owner))[
        np.searchsorted(owner, np.arange(len(keys)), "right") - 1
    ]
    return [
        {
            "name": timeline.names[keys[at] // len(STREAMS)],
            "stream": STREAMS[keys[at] % len(STREAMS)],
            "events": int(events[at]),
            "seconds": float(seconds[at]),
            "most": float(each[worst[at]]),
            "rank": int(rank[worst[at]]),
        }
        for at in np.argsort(-seconds, kind="stable").tolist()
    ]
