"""What the explorer shows of a prediction, beside that of A: causes of a step, memory, headlines, all in words."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from html import escape
from typing import Any

import numpy as np

from lib_dlhpc.costs.compute import peak_rate
from lib_dlhpc.explore.blocks.charts import State, append, between
from lib_dlhpc.explore.explorer.controls import node_counts
from lib_dlhpc.explore.explorer.device_charts import scaling_state, totals_state
from lib_dlhpc.prediction import Breakdown, breakdown
from lib_dlhpc.prediction.replays import Replay
from lib_dlhpc.results import palette
from lib_dlhpc.spec.units import format_plain
from lib_dlhpc.spec.units import format_quantity as show

MESSAGES = {  # purpose of exposed communication: name, color
    "tensor": ("tensor collectives", palette.COLLECTIVES),
    "experts": ("experts' all-to-all", palette.EXPERTS),
    "halo": ("halo exchange", palette.NEIGHBORS),
    "pipeline": ("stage to stage", palette.NEIGHBORS),
    "data": ("gradients", palette.GRADIENTS),
    "offload": ("offload", palette.CHECKPOINT),
}
HATCHED = {"recompute", "bubble", "offload"}
COLUMNS = "row part start stop middle share share_of_axis size long short ink color ghost hatched"
SMALL = 0.005  # of a step: smaller parts are not named


@dataclass(frozen=True)
class Part:
    """A part of a step, or of memory: s or B."""

    name: str
    size: float
    color: str


def step_parts(p: Breakdown) -> list[Part]:
    """Return the causes of a step's time; they add up to it, exposed communication by its purpose."""
    again = float(p.recomputation)
    found = [
        Part("forward", float(p.forward), palette.FORWARD),
        Part("backward", float(p.backward) - again, palette.BACKWARD),
        Part("recompute", again, palette.BACKWARD),
        Part("update", float(p.update), palette.UPDATE),
        *(
            Part(name, float(p.exposed.get(kind, 0.0)), color)
            for kind, (name, color) in MESSAGES.items()
        ),
        Part("bubble", float(p.pipeline_bubble), palette.BUBBLE),
        Part("straggler wait", float(p.straggler_wait), palette.IDLE),
        Part("input", float(p.input_stall), palette.INPUT),
        Part("checkpoint", float(p.checkpoint), palette.CHECKPOINT),
    ]
    return [part for part in found if part.size > 0]


def memory_parts(p: Breakdown) -> list[Part]:
    """Return what the fullest device holds, in B."""
    colors = palette.MEMORY
    return [Part(n, float(v), colors.get(n, palette.OTHER)) for n, v in p.memory.items() if v > 0]


def step_state(p: Breakdown, a: Breakdown | None, bands: Mapping[str, Any]) -> State:
    """Return the columns of "explorer_step". bands: (low, high) s where the machine was measured."""
    low, high = (float(bound) for bound in p.step_time_bounds)
    words = (
        f"between {show(low, 's')} with all communication hidden and {show(high, 's')} with none"
    )
    if "one step" in bands:
        low, high = bands["one step"]
        words = f"90 % band: {between(bands['one step'])}"
    rows = [step_parts(p), step_parts(a) if a else []]
    longest = max(high, *(sum(part.size for part in row) for row in rows))
    data = {"parts": _columns(rows, longest, "s")}
    hint = [] if a else ["move a control: this bar stays here, as A"]
    data["hint"] = {"row": ["A"] * len(hint), "words": hint}
    data["span"] = {"row": ["yours"], "low": [low], "high": [high], "words": [words]}
    largest = sorted(rows[0], key=lambda part: -part.size)[:3]
    total = float(p.step_time)
    named = ", ".join(f"{part.name} {part.size / total:.0%}" for part in largest)
    return data, f"One step takes {show(total, 's')}: {named}. It lies {words}."


def memory_state(p: Breakdown, a: Breakdown | None) -> State:
    """Return the columns of "explorer_memory"."""
    capacity = float(p.experiment.machine.device.memory)
    rows = [memory_parts(p), memory_parts(a) if a else []]
    totals = [sum(part.size for part in row) for row in rows]
    end = max(capacity, *totals) * 1.06
    data = {"parts": _columns(rows, end, "B")}
    data["over"] = {"row": [], "start": [], "stop": []}
    if totals[0] > capacity:
        append(data["over"], row="yours", start=capacity, stop=totals[0])
    need, have = show(totals[0], "B"), show(capacity, "B")
    fits = totals[0] <= capacity
    words = f"✓ fits: {need} of {have}" if fits else f"✗ does not fit: {need} in {have}"
    late = capacity > 0.45 * end
    data["wall"] = {
        "capacity": [capacity],
        "end": [end],
        "words": [words],
        "side": ["right" if late else "left"],
        "shift": [-4 if late else 4],
    }
    largest = max(rows[0], key=lambda part: part.size)
    verdict = "Fits" if fits else "Does not fit"
    return data, f"{verdict}: {need} of {have}. Largest: {largest.name}, {show(largest.size, 'B')}."


def _columns(rows: list[list[Part]], longest: float, unit: str) -> dict[str, list[Any]]:
    columns: dict[str, list[Any]] = {name: [] for name in COLUMNS.split()}
    for row, parts in zip(("yours", "A"), rows, strict=True):
        start, whole = 0.0, sum(part.size for part in parts)
        for part in parts:
            share = f"{part.size / whole:.0%}"
            append(
                columns,
                row=row,
                part=part.name,
                start=start,
                stop=start + part.size,
                middle=start + part.size / 2,
                share=share,
                share_of_axis=part.size / longest,
                size=show(part.size, unit),
                long=f"{part.name} {share}",
                short=share,
                color=part.color,
                ghost=row == "A",
                ink="#ffffff"
                if part.color in (palette.BACKWARD, palette.UPDATE, palette.EXPERTS)
                else "#000000",
                hatched=part.name in HATCHED,
            )
            start += part.size
    return columns


def key_html(parts: list[Part], of_a: list[Part], unit: str) -> str:
    """Return the legend: every part with its size, and what it differs from A by."""
    before, total = {part.name: part.size for part in of_a}, sum(part.size for part in parts)
    now = {part.name for part in parts}
    gone = [replace(part, size=0.0) for part in of_a if part.name not in now]
    items = []
    for part in [*parts, *gone]:
        by = part.size - before.get(part.name, 0.0) if of_a else 0.0
        changed = (
            f" <i>{'+' if by > 0 else '−'}{show(abs(by), unit)}</i>"
            if abs(by) > SMALL * total
            else ""
        )
        if part.size < SMALL * total and not changed:
            continue
        hatch = ' class="hatched"' if part.name in HATCHED else ""
        items.append(
            f'<span><b{hatch} style="background-color:{part.color}"></b>{escape(part.name)}'
            f" {show(part.size, unit)}{changed}</span>"
        )
    return f'<div class="dl-key">{"".join(items)}</div>'


def tokens(p: Breakdown) -> float:
    """Return the tokens of a sample; 0 where samples are no sequences."""
    return float(p.experiment.model.options.get("sequence", 0))


def model_flop(p: Breakdown) -> tuple[float, str]:
    """Return the FLOP of a sample that count for MFU, without recomputation, and in words where they come from."""
    model = p.experiment.model
    if tokens(p):
        return 6.0 * float(model.parameters) * tokens(p), "6 FLOP for each parameter and token"
    return float(model.train_flop), "three times those of a forward pass"


def mfu(p: Breakdown) -> float:
    """Return model FLOP utilization: the model's FLOP/s over the peak of all devices."""
    e = p.experiment
    peak = float(peak_rate(e.machine.device, e.strategy.precision)) * float(e.devices)
    return model_flop(p)[0] * float(p.throughput) / peak


def expected_time(p: Breakdown) -> float:
    """Return the s of the run, failures included where nodes fail."""
    if np.isinf(p.experiment.machine.node_mtbf):
        return float(p.time_to_train)
    return float(p.resilience.expected_time)


@dataclass(frozen=True)
class Headline:
    """A number of the first line. better: -1 where less is better, 1 where more is."""

    name: str
    value: float
    text: str
    unit: str
    remark: str
    meaning: str
    better: int = 0


def headlines(p: Breakdown, replay: Replay | None = None) -> list[Headline]:
    """Return the headline numbers, the time to train first."""
    e, rate = p.experiment, float(p.throughput)
    seconds, flop = expected_time(p), model_flop(p)
    unit = "tokens" if tokens(p) else "samples"
    many = rate * (tokens(p) or 1)
    peak = show(float(peak_rate(e.machine.device, e.strategy.precision)), "FLOP/s")
    energy = float(p.energy_to_train)
    return [
        Headline(
            "Time to train",
            seconds,
            show(seconds, "s"),
            "",
            _time_remark(p, replay, seconds),
            "Steps times the time of a step, and the start; with failures, their expected losses.",
            -1,
        ),
        Headline(
            "One step",
            float(p.step_time),
            show(float(p.step_time), "s"),
            "",
            f"of {int(p.steps):,} steps",
            "One update of the weights: forward, backward, synchronization, and what is not hidden.",
            -1,
        ),
        Headline(
            "Throughput",
            many,
            format_plain(many),
            f"{unit}/s",
            f"batch of {int(e.global_batch):,} samples",
            f"{unit.capitalize()} of all devices a second.",
            1,
        ),
        Headline(
            "MFU",
            mfu(p),
            f"{mfu(p):.1%}",
            "",
            f"of {peak} a device",
            f"Model FLOP utilization: {flop[1]} over the peak of all devices. Recomputed FLOP do not count.",
            1,
        ),
        Headline(
            "Energy",
            energy,
            show(energy / 3600, "Wh"),
            "",
            f"{format_plain(float(p.device_hours))} device-hours",
            "Devices and nodes at their modeled power, times PUE, over the whole run.",
            -1,
        ),
    ]


def _time_remark(p: Breakdown, replay: Replay | None, seconds: float) -> str:
    if replay:
        return (
            f"published {show(replay.published_time, 's')}, predicted {replay.error(seconds):+.1%}"
        )
    if seconds > float(p.time_to_train):
        good = float(p.resilience.goodput)
        return f"with failures; {show(float(p.time_to_train), 's')} without, goodput {good:.0%}"
    if tokens(p):
        seen = float(p.steps) * float(p.experiment.global_batch) * tokens(p)
        return f"{format_plain(seen / 1e9)} billion tokens"
    epochs = float(p.experiment.run.epochs)
    return f"{epochs:g} epoch{'s' * (epochs != 1)} of {p.experiment.dataset.name or 'the data set'}"


def headline_html(
    now: list[Headline], a: list[Headline] | None, trust: tuple[str, str, str]
) -> str:
    """Return the headline numbers with what they differ from A by. trust: short, words, level."""
    short, words, level = trust
    tiles = []
    for number, line in enumerate(now):
        by = _difference(line, a[number]) if a else ""
        first = f' class="first {level}"' if number == 0 else ""
        warning = (
            f'<em class="trust">{escape(short)}</em>' if number == 0 and level == "poor" else ""
        )
        tiles.append(
            f'<div{first}><dt><abbr title="{escape(line.meaning)}" tabindex="0">{escape(line.name)}</abbr></dt>'
            f"<dd>{escape(line.text)}{_unit(line.unit)}{warning}{by}<small>{escape(line.remark)}</small></dd></div>"
        )
    sign = {"good": "✓", "fair": "≈", "poor": "✗"}.get(level, "?")
    tiles.append(
        f'<div class="trust {level}"><dt><abbr title="How far predictions of this kind are off publications."'
        f' tabindex="0">Trust</abbr></dt><dd>{sign} {escape(short)}<small>{escape(words)}</small></dd></div>'
    )
    return f'<dl class="dl-nums" aria-label="Predicted">{"".join(tiles)}</dl>'


def _unit(unit: str) -> str:
    return f' <span class="unit">{escape(unit)}</span>' if unit else ""


def _difference(now: Headline, a: Headline) -> str:
    if not a.value or abs(now.value - a.value) <= 5e-4 * abs(a.value):
        return ""
    ratio = now.value / a.value
    if now.name == "MFU":
        text = f"{(now.value - a.value) * 100:+.1f} points"
    else:
        text = f"{ratio - 1:+.1%}" if 0.5 < ratio < 2 else f"× {ratio:.3g}"
    good = (ratio > 1) == (now.better > 0)
    sign = "▲" if ratio > 1 else "▼"
    word = "better" if good else "worse"
    return f' <i class="{word}" title="{word} than A"><span aria-hidden="true">{sign}</span> {text}</i>'


def over_devices(p: Breakdown) -> dict[str, State]:
    """Predict the run on every sensible number of nodes, the batch a replica kept: "scaling" and "totals"."""
    machine, strategy = p.experiment.machine, p.experiment.strategy
    several: dict[str, Any]
    if int(machine.nodes) > 1:
        several = {"nodes": node_counts(int(machine.nodes), int(strategy.nodes))}
    else:
        most, now = int(machine.devices_per_node), int(p.experiment.devices_per_node)
        several = {"devices_per_node": node_counts(most, now)}
    ((name, counts),), per_node = several.items(), int(p.experiment.devices_per_node)
    devices = counts * per_node if name == "nodes" else counts * int(strategy.nodes)
    several = {name: counts[devices % int(strategy.replica) == 0]}  # whole replicas
    curve = breakdown(replace(p.experiment, strategy=replace(strategy, **several)), p.compute_scale)
    low, high = curve.step_time_bounds
    many, now_at = curve.experiment.devices, float(p.experiment.devices)
    scaling = scaling_state(
        many,
        curve.speedup,
        hidden=curve.speedup * curve.step_time / low,
        exposed=curve.speedup * curve.step_time / high,
        now=(now_at, float(p.speedup)),
    )
    totals = totals_state(
        many, curve.time_to_train, curve.energy_to_train, curve.device_hours, now=now_at
    )
    return {"scaling": scaling, "efficiency": scaling, "totals": totals}
