"""Columns and sentences for the drawings of the lesson on hybrid parallelism; see charts.py for their use."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from lib_dlhpc.explore.blocks.charts import State, append
from lib_dlhpc.explore.blocks.lines import Curves, line_columns, value_at
from lib_dlhpc.prediction import Breakdown
from lib_dlhpc.results import palette
from lib_dlhpc.spec.units import format_plain, format_quantity

# Hatched: a device is idle, and no message is in flight.
TERMS = {
    "compute": (palette.BACKWARD, False),
    "recomputation": (palette.FORWARD, False),
    "tensor allreduces": (palette.COLLECTIVES, False),
    "halos": (palette.NEIGHBORS, False),
    "stage to stage": (palette.STAGES, False),
    "gradients": (palette.GRADIENTS, False),
    "pipeline bubble": (palette.BUBBLE, True),
    "waiting": (palette.IDLE, True),
    "input stall": (palette.INPUT, False),
}
HELD = {
    "activations": (palette.FORWARD, False),
    "weights and state": (palette.BACKWARD, False),
    "messages": (palette.COLLECTIVES, False),
    "samples": (palette.INPUT, False),
    "driver": (palette.IDLE, False),
}
KINDS = {
    "tensor": "tensor allreduces",
    "halo": "halos",
    "pipeline": "stage to stage",
    "data": "gradients",
}
STATES = ("weights", "master weights", "gradients", "optimizer state")
WHITE = {"compute", "weights and state"}  # white letters on these
FAST, SLOW = (0xE5, 0xF2, 0xFA), (0x0B, 0x4F, 0x80)  # of the map, light to dark
LIGHT = 0.55  # from there on letters are white


class Way(NamedTuple):
    """One layout of the devices, predicted. seconds: 0 where there is no such way."""

    tensor: int
    pipeline: int
    spatial: int
    data: int
    seconds: float = 0.0  # of a step
    memory: float = 0.0  # B, of the fullest device
    capacity: float = 0.0  # B
    illegal: str = ""  # why there is no such way
    parts: tuple[float, ...] = ()  # s, by TERMS
    held: tuple[float, ...] = ()  # B, by HELD

    @property
    def fits(self) -> bool:
        """Whether it can run."""
        return not self.illegal and self.memory <= self.capacity


def way_of(step: Breakdown) -> Way:
    """Return a layout with its prediction."""
    strategy = step.experiment.strategy
    tensor, pipeline = int(strategy.tensor), int(strategy.pipeline)
    spatial = int(strategy.spatial)
    return Way(
        tensor=tensor,
        pipeline=pipeline,
        spatial=spatial,
        data=int(step.experiment.devices) // (tensor * pipeline * spatial),
        seconds=float(step.step_time),
        memory=float(step.memory_total),
        capacity=float(step.experiment.machine.device.memory),
        parts=tuple(parts_of(step).values()),
        held=tuple(held_by(step).values()),
    )


def parts_of(step: Breakdown) -> dict[str, float]:
    """Return the seconds of a predicted step by TERMS; they add up to the step."""
    again = float(step.recomputation)
    found = dict.fromkeys(TERMS, 0.0)
    found["compute"], found["recomputation"] = float(step.compute) - again, again
    for kind, seconds in step.exposed.items():
        if seconds:
            found[KINDS[kind]] = float(seconds)
    # Rounding may leave a bubble of less than nothing.
    found["pipeline bubble"] = max(0.0, float(step.pipeline_bubble))
    found["waiting"] = float(step.straggler_wait)
    found["input stall"] = float(step.input_stall)
    return found


def held_by(step: Breakdown) -> dict[str, float]:
    """Return the bytes that the fullest device holds by HELD."""
    terms = step.memory
    return {
        "activations": float(terms["activations"] + terms["working set"]),
        "weights and state": float(sum(terms[name] for name in STATES)),
        "messages": float(terms["communication buffer"]),
        "samples": float(terms["input batch"]),
        "driver": float(terms["driver and workspace"]),
    }


def terms_state(rows: Mapping[str, Mapping[str, float]]) -> State:
    """Seconds of a step by part, for each combination, the first the chosen one."""
    parts, sums = _stacked(rows, "s", TERMS)
    each = [f"{row}: {words}" for row, words in zip(sums["row"], sums["words"], strict=True)]
    if not rows:
        return {"parts": parts, "sums": sums}, "No layout is possible."
    first = next(iter(rows.values()))
    most = sorted(first, key=lambda part: -first[part])[:3]
    whole = sum(first.values())
    named = ", ".join(f"{part} {first[part] / whole:.0%}" for part in most if first[part] > 0)
    return {"parts": parts, "sums": sums}, f"{'; '.join(each)}. Of the first: {named}."


def memory_state(rows: Mapping[str, Mapping[str, float]], capacity: float) -> State:
    """Bytes of the fullest device by part, for each combination, and the memory of a device."""
    parts, sums = _stacked(rows, "B", HELD, room=capacity)
    totals = {row: sum(held.values()) for row, held in rows.items()}
    end = 1.06 * max([capacity, *totals.values()])
    wall = {
        "capacity": [capacity],
        "end": [end],
        "words": [f"has {format_quantity(capacity, 'B')}"],
        "side": ["right" if capacity > 0.6 * end else "left"],
    }
    for i, row in enumerate(sums["row"]):
        sums["words"][i] += " ✓" if totals[row] <= capacity else " ✗"
    over = [row for row, total in totals.items() if total > capacity]
    verdict = f"Does not fit: {', '.join(over)}." if over else "All of them fit."
    each = [f"{row}: {words}" for row, words in zip(sums["row"], sums["words"], strict=True)]
    return {"parts": parts, "sums": sums, "wall": wall}, f"{'; '.join(each)}. {verdict}"


def scaling_state(curves: Curves, published: Sequence[tuple[int, float, str]], now: int) -> State:
    """Samples a second against GPUs for "weak", "strong" and "ideal"; now: the GPUs that are chosen."""
    columns, ends = line_columns(curves)
    two = {name: curve for name, curve in curves.items() if name != "ideal"}
    points: dict[str, list[Any]] = {n: [] for n in ("x", "y", "words")}
    for gpus, rate, words in published:
        append(points, x=gpus, y=rate, words=words)
    data: dict[str, dict[str, Any]] = {
        "lines": columns,
        "ends": ends,
        "published": points,
        "now": value_at({"weak": two["weak"]}, now, lambda y: f"{format_plain(y)} a second"),
    }
    gains = []
    for name, (x, y) in two.items():
        if len(x) > 1:
            gain, more = y[-1] / y[0], x[-1] / x[0]
            gains.append(f"{name}: {more:,.0f} times the GPUs are {gain:,.3g} times as fast")
    return data, f"{'; '.join(gains) or 'Nothing fits'}."


def map_state(cells: Sequence[Way], best: Way | None, published: tuple[int, int]) -> State:
    """The map of all ways; best: the fastest that fits; published: (tensor, pipeline)."""
    columns: dict[str, list[Any]] = {
        n: []
        for n in (
            "tensor",
            "pipeline",
            "data",
            "fits",
            "legal",
            "words",
            "short",
            "details",
            "mark",
            "color",
            "ink",
        )
    }
    fitting = [cell.seconds for cell in cells if cell.fits]
    low, high = (min(fitting), max(fitting)) if fitting else (1.0, 1.0)
    for cell in cells:
        shade = (cell.seconds - low) / max(high - low, 1e-9) if cell.fits else 0.0
        marks = ["best"] * (cell == best) + ["published"] * (cell[:2] == published)
        words, details = _cell_words(cell)
        append(
            columns,
            tensor=cell.tensor,
            pipeline=cell.pipeline,
            data=cell.data or "",
            fits=cell.fits,
            legal=not cell.illegal,
            words=words,
            short=words.split()[0] if cell.fits else words[:1],
            details=f"tensor {cell.tensor}, pipeline {cell.pipeline}: {details}",
            mark=", ".join(marks),
            color=_mixed(shade),
            ink="white" if shade > LIGHT else "black",
        )
    if best is None and not cells:
        return {"cells": columns}, "Being computed."
    if best is None:
        return {"cells": columns}, "Nothing fits: take more GPUs, or recompute activations."
    summary = f"{len(fitting)} of {len(cells)} layouts fit. The fastest is {_way(best)}, {_seconds(best)} a step"
    there = [cell for cell in cells if cell[:2] == published]
    if there:
        summary += f"; published was {_way(there[0])}, {_cell_words(there[0])[1]}"
    return {"cells": columns}, f"{summary}."


def _cell_words(cell: Way) -> tuple[str, str]:
    """Return what stands in a cell, and the same in full."""
    if cell.illegal:
        return "–", cell.illegal
    if cell.fits:
        return _seconds(cell), f"{_seconds(cell)} a step with {format_quantity(cell.memory, 'B')}"
    need, has = format_quantity(cell.memory, "B"), format_quantity(cell.capacity, "B")
    return f"✗ {need}", f"does not fit: a GPU needs {need} and has {has}"


def _stacked(
    rows: Mapping[str, Mapping[str, float]],
    unit: str,
    looks: Mapping[str, tuple[str, bool]],
    room: float = 0.0,
) -> tuple[dict[str, list[Any]], dict[str, list[Any]]]:
    parts: dict[str, list[Any]] = {
        n: []
        for n in (
            "row",
            "part",
            "start",
            "stop",
            "middle",
            "still",
            "share",
            "part_of_axis",
            "details",
            "long",
            "short",
            "ink",
        )
    }
    sums: dict[str, list[Any]] = {n: [] for n in ("row", "stop", "words")}
    longest = max([room, *(sum(values.values()) for values in rows.values())])
    for row, values in rows.items():
        start, whole = 0.0, sum(values.values())
        for part, value in values.items():
            if value > 0:
                share = f"{value / whole:.0%}"
                append(
                    parts,
                    row=row,
                    part=part,
                    start=start,
                    stop=start + value,
                    middle=start + value / 2,
                    still=looks[part][1],
                    share=share,
                    part_of_axis=value / longest,
                    details=format_quantity(value, unit),
                    long=f"{part} {share}",
                    short=share,
                    ink="white" if part in WHITE else "black",
                )
            start += value
        append(sums, row=row, stop=start, words=format_quantity(whole, unit))
    return parts, sums


def _mixed(shade: float) -> str:
    mixed = (round(a + shade * (b - a)) for a, b in zip(FAST, SLOW, strict=True))
    return "#" + "".join(f"{value:02x}" for value in mixed)


def _way(cell: Way) -> str:
    return f"{cell.tensor} × {cell.pipeline} × {cell.data} (tensor, pipeline, data)"


def _seconds(cell: Way) -> str:
    return format_quantity(cell.seconds, "s")
