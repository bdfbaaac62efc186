"""The explorer's two charts: the causes of a step's time and what the fullest device holds, beside those of A."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from html import escape
from typing import Any

from lib_dlhpc.explore.blocks.bars import bar
from lib_dlhpc.explore.blocks.charts import State, beside, between, columns
from lib_dlhpc.prediction import Breakdown
from lib_dlhpc.prediction.changes.difference import step_causes
from lib_dlhpc.results import palette
from lib_dlhpc.spec.units import format_quantity as show

COLORS = {  # of the causes of a step
    "forward": palette.FORWARD,
    "backward": palette.BACKWARD,
    "recompute": palette.BACKWARD,
    "update": palette.UPDATE,
    "tensor collectives": palette.COLLECTIVES,
    "context exchange": palette.CONTEXT,
    "experts' all-to-all": palette.EXPERTS,
    "halo exchange": palette.NEIGHBORS,
    "stage to stage": palette.NEIGHBORS,
    "gradients": palette.GRADIENTS,
    "offload": palette.CHECKPOINT,
    "bubble": palette.BUBBLE,
    "waiting for the slowest": palette.IDLE,
    "input": palette.INPUT,
    "checkpoint": palette.CHECKPOINT,
}
HATCHED = {"recompute", "bubble", "offload"}
SMALL = 0.003  # of a step: smaller parts are not named


@dataclass(frozen=True)
class Part:
    """A part of a step, or of memory: s or B."""

    name: str
    size: float
    color: str


def step_parts(p: Breakdown) -> list[Part]:
    """Return the causes of a step's time; they add up to it, exposed communication by its purpose."""
    return [Part(name, size, COLORS[name]) for name, size in step_causes(p).items()]


def memory_parts(p: Breakdown) -> list[Part]:
    """Return what the fullest device holds, in B."""
    colors = palette.MEMORY
    return [Part(n, float(v), colors.get(n, palette.OTHER)) for n, v in p.memory.items() if v > 0]


def step_state(p: Breakdown, a: Breakdown | None, bands: Mapping[str, Any]) -> State:
    """Return the columns of "explorer_step". bands: (low, high) s where the machine was measured."""
    if "one step" in bands:
        low, high = bands["one step"]
        words = f"the 90% band: {between(bands['one step'])}"
    else:
        low, high = (float(bound) for bound in p.step_time_bounds)
        least = f"{show(low, 's')} (communication and input fully overlapped)"
        words = f"{least} to {show(high, 's')} (no overlap)"
    rows = [step_parts(p), step_parts(a) if a else []]
    longest = max(high, *(sum(part.size for part in row) for row in rows))
    hint = [] if a else ["move a control: this bar stays here, as A"]
    data = {
        "parts": _columns(rows, longest, "s"),
        "hint": {"row": ["A"] * len(hint), "words": hint},
        "span": {"row": ["yours"], "low": [low], "high": [high], "words": [words]},
    }
    largest = sorted(rows[0], key=lambda part: -part.size)[:3]
    total = float(p.step_time)
    named = ", ".join(f"{part.name} {part.size / total:.0%}" for part in largest)
    return (
        data,
        f"One step takes {show(total, 's')}: {named}. The line below the bar spans {words}.",
    )


def memory_state(p: Breakdown, a: Breakdown | None) -> State:
    """Return the columns of "explorer_memory"."""
    capacity = float(p.experiment.machine.device.memory)
    rows = [memory_parts(p), memory_parts(a) if a else []]
    totals = [sum(part.size for part in row) for row in rows]
    end = max(capacity, *totals) * 1.06
    need, have = show(totals[0], "B"), show(capacity, "B")
    over_by = show(totals[0] - capacity, "B")
    fits, late = totals[0] <= capacity, capacity > 0.45 * end
    wall = {
        "capacity": capacity,
        "end": end,
        "words": f"✓ fits: {need} of {have}" if fits else f"✗ exceeds {have} by {over_by}",
        **beside(late, 4),
    }
    over = [] if fits else [{"row": "yours", "start": capacity, "stop": totals[0]}]
    data = {"parts": _columns(rows, end, "B"), "over": columns(over), "wall": columns([wall])}
    largest = max(rows[0], key=lambda part: part.size)
    verdict = f"Fits: {need} of {have}" if fits else f"{need} needed, {have} available"
    return data, f"{verdict}. Largest: {largest.name}, {show(largest.size, 'B')}."


def _columns(rows: list[list[Part]], longest: float, unit: str) -> dict[str, list[Any]]:
    found = []
    for row, parts in zip(("yours", "A"), rows, strict=True):
        colors = {part.name: part.color for part in parts}
        for each in bar(row, {part.name: part.size for part in parts}, colors, longest, unit):
            look = {"color": colors[each["part"]], "ghost": row == "A"}
            found.append({**each, **look, "hatched": each["part"] in HATCHED})
    return columns(found)


def key_html(parts: list[Part], of_a: list[Part], unit: str) -> str:
    """Return the legend: every part with its size, and what it differs from A by."""
    before, total = {part.name: part.size for part in of_a}, sum(part.size for part in parts)
    now = {part.name for part in parts}
    items = ""
    for part in [*parts, *(replace(part, size=0.0) for part in of_a if part.name not in now)]:
        by = part.size - before.get(part.name, 0.0) if of_a else 0.0
        changed = abs(by) > SMALL * total
        if part.size < SMALL * total and not changed:
            continue
        more = f" <i>{'+' if by > 0 else '−'}{show(abs(by), unit)}</i>" if changed else ""
        hatch = ' class="hatched"' if part.name in HATCHED else ""
        items += (
            f'<span><b{hatch} style="background-color:{part.color}"></b>{escape(part.name)}'
            f"<em> {show(part.size, unit)}</em>{more}</span>"
        )
    return f'<div class="dl-key" role="group" aria-label="Key" tabindex="0">{items}</div>'
