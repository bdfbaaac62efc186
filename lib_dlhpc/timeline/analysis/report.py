"""An analysis in words, with what limits the run first, and as a dictionary in SI units."""

from typing import Any

import numpy as np

from lib_dlhpc.spec.units import count, format_quantity
from lib_dlhpc.timeline.analysis.analysis import Analysis
from lib_dlhpc.timeline.analysis.finding import Finding, duration
from lib_dlhpc.timeline.printable import printable

SHOWN, WIDTH = 12, 32  # names, pairs and findings in the text; characters of a name
MATRIX_SHOWN = 12  # ranks of a matrix in the text
MOST_PAIRS = 10_000  # in the dictionary
GOOD = 0.95  # parallel efficiency above which nothing limits much


def limit(analysis: Analysis) -> str:
    """Return in one sentence what limits the run: the largest loss, and the costliest finding of its kind."""
    efficiency = analysis.efficiency
    span, ranks = format_quantity(analysis.span, "s"), count(analysis.ranks, "rank")
    if not analysis.compute.any():
        return f"Nothing is computed in these {span} of {ranks}."
    share = f"on average a rank computes {efficiency.parallel:.0%} of {span}"
    # Where ranks keep step, all wait for the one that waits for storage.
    stalled = float(analysis.stalled.max()) / analysis.span
    losses = {
        "Load imbalance": 1 - efficiency.load_balance,
        "Waiting for other ranks": max(1 - efficiency.serialization - stalled, 0.0),
        "Moving data between ranks": 1 - efficiency.transfer,
        "Waiting for storage": stalled,
    }
    worst = max(losses, key=lambda name: losses[name])
    if efficiency.parallel >= GOOD:
        return f"Nothing limits this run much: {share}."
    return f"{worst} limits this run: {share}, and this costs most ({losses[worst]:.0%})."


def as_text(analysis: Analysis) -> str:
    """Return the analysis for a terminal."""
    efficiency = analysis.efficiency
    parts = [limit(analysis), "", *_findings(analysis), ""]
    parts += [
        f"Efficiency (1 is ideal; as POP defines them)   {duration(analysis.span)} run,"
        f" {duration(efficiency.ideal_seconds)} on an ideal network",
        f"  parallel            {efficiency.parallel:6.3f}   = load balance x communication",
        f"    load balance      {efficiency.load_balance:6.3f}",
        f"    communication     {efficiency.communication:6.3f}   = serialization x transfer",
        f"      serialization   {efficiency.serialization:6.3f}",
        f"      transfer        {efficiency.transfer:6.3f}",
        "",
        "Seconds of a rank               mean        most  of rank",
    ]
    waits = {f"waits: {kind}": seconds for kind, seconds in analysis.waits.items()}
    rows = {"computes": analysis.compute, "communicates, exposed": analysis.exposed, **waits}
    for name, seconds in {**rows, "waits for storage": analysis.stalled}.items():
        if name == "computes" or seconds.any():
            line = f"  {name:<25}{duration(seconds.mean()):>9}   {duration(seconds.max()):>9}"
            parts.append(f"{line}  {int(np.argmax(seconds))}")
    return "\n".join([*parts, *_regions(analysis), *_path(analysis), *_messages(analysis)])


def as_dict(analysis: Analysis) -> dict[str, Any]:
    """Return the analysis in SI units, in words that do not change. Of pairs, the MOST_PAIRS with most bytes."""
    efficiency, matrix, regions = analysis.efficiency, analysis.matrix, analysis.regions
    return {
        "limit": limit(analysis),
        "source": analysis.source,
        "ranks": analysis.ranks,
        "events": analysis.events,
        "span": analysis.span,
        "findings": [_finding(finding) for finding in analysis.findings],
        "nothing": analysis.nothing,
        "efficiency": {
            name: getattr(efficiency, name)
            for name in ("parallel", "load_balance", "communication", "serialization", "transfer")
        }
        | {"ideal_seconds": efficiency.ideal_seconds},
        "imbalance": analysis.imbalance,
        "compute": analysis.compute.tolist(),
        "exposed": analysis.exposed.tolist(),
        "stalled": analysis.stalled.tolist(),
        "waits": {kind: seconds.tolist() for kind, seconds in analysis.waits.items()},
        "regions": [
            {
                "name": name,
                "calls": int(regions.calls[k].sum()),
                "inclusive": float(regions.inclusive[k].sum()),
                "exclusive": float(regions.exclusive[k].sum()),
                "most": float(regions.exclusive[k].max()),
                "rank": int(np.argmax(regions.exclusive[k])),
            }
            for k, name in enumerate(regions.names)
        ],
        "critical_path": [
            {"name": name, "seconds": seconds, "rank": rank}
            for name, seconds, rank in _path_names(analysis)
        ],
        "pairs": [
            {"source": source, "target": target, "bytes": size, "messages": messages}
            for source, target, size, messages in _pairs(analysis, MOST_PAIRS)
        ],
        "pairs left out": max(int(np.count_nonzero(matrix.messages)) - MOST_PAIRS, 0),
        "collectives": {
            "bytes": matrix.collective_bytes.tolist(),
            "calls": matrix.collective_calls.tolist(),
        },
        "message sizes": [
            {"from": low, "messages": messages} for low, messages in _sizes(analysis) if messages
        ],
    }


def _findings(analysis: Analysis) -> list[str]:
    findings = analysis.findings
    if not findings:
        return [analysis.nothing]
    lines = [count(len(findings), "finding") + ", the costliest first:"]
    for number, finding in enumerate(findings[:SHOWN], 1):
        rank, start, stop, name = finding.where
        lines.append(
            f"{number:>3}. {finding.kind}, {duration(finding.seconds)}: {finding.sentence}"
        )
        lines.append(
            f"     Look at rank {rank}, {start:.6g} s to {stop:.6g} s, {printable(name, WIDTH)}."
        )
    if findings[SHOWN:]:
        lines.append(f"     and {len(findings) - SHOWN} more (--json has all)")
    return lines


def _finding(finding: Finding) -> dict[str, Any]:
    return {
        "kind": finding.kind,
        "rank": finding.rank,
        "peer": finding.peer,
        "seconds": finding.seconds,
        "where": finding.where._asdict(),
        "sentence": finding.sentence,
    }


def _regions(analysis: Analysis) -> list[str]:
    regions = analysis.regions
    lines = [
        "",
        f"{'Time by name, all ranks':<{WIDTH + 2}} {'calls':>10} {'within':>10} {'own':>10}  most, rank",
    ]
    for k, name in enumerate(regions.names[:SHOWN]):
        own = regions.exclusive[k]
        lines.append(
            f"  {printable(name, WIDTH):<{WIDTH}} {int(regions.calls[k].sum()):>10,}"
            f" {duration(regions.inclusive[k].sum()):>10} {duration(own.sum()):>10}"
            f"  {duration(own.max())}, {int(np.argmax(own))}"
        )
    if regions.names[SHOWN:]:
        rest = regions.exclusive[SHOWN:].sum()
        lines.append(f"  and {count(len(regions.names) - SHOWN, 'name')} more: {duration(rest)}")
    return lines


def _path(analysis: Analysis) -> list[str]:
    names = _path_names(analysis)
    if not names:
        return []
    total = sum(seconds for _, seconds, _ in names) or 1.0
    lines = ["", f"Critical path: {count(len(analysis.path), 'event')}, most of it in"]
    lines += [
        f"  {printable(name, WIDTH):<{WIDTH}} {duration(seconds):>10} {seconds / total:>5.0%}, most on rank {rank}"
        for name, seconds, rank in names[:5]
    ]
    return lines


def _path_names(analysis: Analysis) -> list[tuple[str, float, int]]:
    """Return name, s, and the rank with most of it, of what is on the critical path, the longest first."""
    path = analysis.path
    if not len(path):
        return []
    shape = (len(path.names), analysis.ranks)
    at = path.name.astype(np.int64) * analysis.ranks + path.rank
    seconds = np.bincount(at, weights=path.stop - path.start, minlength=shape[0] * shape[1])
    seconds = seconds.reshape(shape)
    order = np.argsort(-seconds.sum(axis=1), kind="stable")
    return [
        (path.names[k], float(seconds[k].sum()), int(np.argmax(seconds[k])))
        for k in order.tolist()
        if seconds[k].any()
    ]


def _messages(analysis: Analysis) -> list[str]:
    matrix = analysis.matrix
    lines = [""]
    if not matrix.messages.any():
        calls = int(matrix.collective_calls.sum())
        size = format_quantity(float(matrix.collective_bytes.sum()), "B")
        return [
            *lines,
            f"No messages between two ranks; {count(calls, 'part')} in collectives, {size}.",
        ]
    messages = count(int(matrix.messages.sum()), "message")
    size = format_quantity(float(matrix.bytes.sum()), "B")
    if analysis.ranks <= MATRIX_SHOWN:
        lines.append(f"{messages}, {size}; bytes from rank (row) to rank (column):")
        lines.append("      " + "".join(f"{rank:>9}" for rank in range(analysis.ranks)))
        for rank, row in enumerate(matrix.bytes.tolist()):
            cells = (format_quantity(float(cell), "B") if cell else "." for cell in row)
            lines.append(f"  {rank:>4}" + "".join(f"{cell:>9}" for cell in cells))
    else:
        lines.append(f"{messages}, {size}; most bytes:")
        for source, target, moved, number in _pairs(analysis, SHOWN):
            amount = format_quantity(float(moved), "B")
            lines.append(f"  rank {source} to {target}: {amount} in {count(number, 'message')}")
    lines += ["", "Message sizes"]
    most = max(number for _, number in _sizes(analysis))
    for low, number in _sizes(analysis):
        if number:
            bar = "#" * max(1, round(40 * number / most))
            lines.append(f"  from {format_quantity(float(low), 'B'):>9} {number:>12,}  {bar}")
    return lines


def _pairs(analysis: Analysis, most: int) -> list[tuple[int, int, int, int]]:
    """Return sender, receiver, bytes and messages of pairs, most bytes first."""
    size, messages = analysis.matrix.bytes.reshape(-1), analysis.matrix.messages.reshape(-1)
    used = np.flatnonzero(messages)
    used = used[np.argsort(-size[used], kind="stable")][:most]
    return [
        (
            int(pair // analysis.ranks),
            int(pair % analysis.ranks),
            int(size[pair]),
            int(messages[pair]),
        )
        for pair in used
    ]


def _sizes(analysis: Analysis) -> list[tuple[int, int]]:
    """Return the least bytes of each class of message size, and how many messages it has."""
    histogram = analysis.matrix.histogram.tolist()
    return [(2 ** (k - 1) if k else 0, number) for k, number in enumerate(histogram)]
