"""The steps of traces in words, a column each, and as a dictionary in SI units."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from lib_dlhpc.spec.units import format_quantity
from lib_dlhpc.timeline.steps.terms import TERMS, StepTerms

NAME, WIDTH, TITLE = 26, 22, 52
SHOWN = 12  # ranks, and kinds of exchanges, in the text


def as_text(traces: Mapping[str, StepTerms]) -> str:
    """Return the mean step of each trace in a column of its own, by its name."""
    every = list(traces.values())
    heads = [name if len(name) < WIDTH else "..." + name[4 - WIDTH :] for name in traces]
    lines = [_line("Mean step of a rank", heads)]
    lines.append(_line("ranks", [_traced(each) for each in every]))
    lines.append(_line("steps", [f"{each.steps} by {each.found}" for each in every]))
    lines.append(_line("step", [_time(each.seconds.mean()) for each in every]))
    for term in TERMS:
        if term != "checkpoint" or any(each.terms[term].any() for each in every):
            lines.append(_line(f"  {term}", [_share(each, term) for each in every]))
    lines.append(
        _line("communication in flight", [_time(each.communication.mean()) for each in every])
    )
    lines.append(_line("  of it exposed", [f"{each.exposed_share:.0%}" for each in every]))
    lines.append(_line("bytes exchanged", [_bytes(each.exchanged) for each in every]))
    for name, each in zip(heads, every, strict=True):
        lines += ["", *_exchanges(name if len(traces) > 1 else "", each)]
    if len(every) == 1 and len(every[0].rank) > 1:
        lines += ["", *_ranks(every[0])]
    return "\n".join(lines)


def as_dict(found: StepTerms) -> dict[str, Any]:
    """Return the steps of one trace; lists by rank and step."""
    return {
        "ranks": found.ranks,
        "traced_ranks": found.rank,
        "found": found.found,
        "steps": found.steps,
        "step": float(found.seconds.mean()),
        "terms": {term: float(found.terms[term].mean()) for term in TERMS},
        "communication": float(found.communication.mean()),
        "exposed_share": found.exposed_share,
        "bytes": found.exchanged,
        "exchanges": [exchange._asdict() for exchange in found.exchanges],
        "per_rank_and_step": {term: found.terms[term].tolist() for term in TERMS},
    }


def _line(name: str, cells: list[str]) -> str:
    return f"{name:<{NAME}}" + "".join(f"{cell:>{WIDTH}}" for cell in cells)


def _traced(found: StepTerms) -> str:
    there = len(found.rank)
    return str(there) if there == found.ranks else f"{there} of {found.ranks:,}"


def _time(seconds: Any) -> str:
    return format_quantity(float(seconds), "s")


def _bytes(size: float) -> str:
    return format_quantity(float(size), "B") if size else "not in the trace"


def _share(found: StepTerms, term: str) -> str:
    mean, step = found.terms[term].mean(), found.seconds.mean()
    return f"{_time(mean)} {mean / step:4.0%}"


def _exchanges(name: str, found: StepTerms) -> list[str]:
    title = f"Collectives, per step and rank{f': {name}' if name else ''}"
    if not found.exchanges:
        return [f"{title}: none"]
    lines = [f"{title:<{TITLE}}{'bytes':>18}{'calls':>8}{'in flight':>12}"]
    lines += [
        f"  {each.name:<{TITLE - 2}}{_bytes(each.bytes):>18}{each.calls:>8.4g}{_time(each.seconds):>12}"
        for each in found.exchanges[:SHOWN]
    ]
    rest = found.exchanges[SHOWN:]
    if rest:
        seconds = _time(sum(each.seconds for each in rest))
        lines.append(f"  and {len(rest)} more kinds and sizes: {seconds}")
    return lines


def _ranks(found: StepTerms) -> list[str]:
    """Return the slowest steps' ranks first: those that compute longest."""
    compute = found.terms["compute"].mean(axis=1)
    order = np.argsort(-compute, kind="stable")[:SHOWN]
    lines = [
        f"{'Rank, most compute first':<{NAME}}" + "".join(f"{term:>{WIDTH}}" for term in TERMS)
    ]
    for row in order.tolist():
        cells = [_time(found.terms[term][row].mean()) for term in TERMS]
        lines.append(_line(f"  {found.rank[row]}", cells))
    return lines
