"""Where the time of a simulated execution trace goes, rank by rank.

compute: the device computes. exposed communication: it does not, and a collective that the rank has joined, or a
message to or from it, is in flight. idle: the rest, as waiting for a message that has not left.
"""

from typing import Any

from lib_dlhpc.spec.units import count, format_quantity
from lib_dlhpc.timeline import Timeline
from lib_dlhpc.timeline.measure import WORK
from lib_dlhpc.timeline.spans import covered, in_order

SHOWN = 16  # ranks in the text
TERMS = ("compute", "exposed communication", "idle")


def as_dict(timeline: Timeline, machine: str, nodes: int) -> dict[str, Any]:
    """Return it in SI units."""
    table = in_order(timeline)
    total = float(timeline.stop.max(initial=0.0))
    work, talk = table.where("compute", *WORK, "region"), table.where("communication")
    compute = covered(table, work)
    exposed = covered(table, work | talk) - compute
    terms = zip(
        compute.tolist(), exposed.tolist(), (total - compute - exposed).tolist(), strict=True
    )
    return {
        "machine": machine,
        "nodes": nodes,
        "ranks": timeline.ranks,
        "seconds": total,
        "terms": [
            {"rank": rank} | dict(zip(TERMS, term, strict=True)) for rank, term in enumerate(terms)
        ],
    }


def as_text(timeline: Timeline, machine: str, nodes: int) -> str:
    """Return it in words and a table."""
    report = as_dict(timeline, machine, nodes)
    total = format_quantity(report["seconds"], "s")
    ranks = f"{count(timeline.ranks, 'rank')} on {count(nodes, 'node')} of {machine}"
    lines = [f"{ranks}: {total}", "", f"{'rank':>6}" + "".join(f"{name:>24}" for name in TERMS)]
    for term in report["terms"][:SHOWN]:
        times = "".join(f"{format_quantity(term[name], 's'):>24}" for name in TERMS)
        lines.append(f"{term['rank']:>6}{times}")
    if timeline.ranks > SHOWN:
        lines.append(f"and {count(timeline.ranks - SHOWN, 'rank')} more; --json has them all.")
    return "\n".join(lines)
