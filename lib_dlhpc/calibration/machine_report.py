"""A calibrated machine as commented TOML, as a short table, or as JSON."""

from collections.abc import Iterator, Mapping
from dataclasses import fields
from typing import TYPE_CHECKING, Any

import numpy as np
import tomli_w

from lib_dlhpc.calibration.messages import SMALLEST, curve
from lib_dlhpc.calibration.programs import PROBE, STEPS, WORKER
from lib_dlhpc.calibration.robust import Floats, calm
from lib_dlhpc.spec.machine import Machine, field_of
from lib_dlhpc.spec.measured import Measured
from lib_dlhpc.spec.measured_machine import STAND_IN, value_of
from lib_dlhpc.spec.plain import in_si
from lib_dlhpc.spec.schema import to_table
from lib_dlhpc.spec.units import count, format_quantity, parse_quantity

if TYPE_CHECKING:
    from lib_dlhpc.calibration.machine import Calibrated

BUSY = 0.3  # cores busy with other processes; above it, a note is printed
SHOWN = 5  # points of a curve in the table
NAMES = {
    "device.peak.fp32": "GEMM peak rate, fp32",
    "device.peak.fp64": "GEMM peak rate, fp64",
    "device.efficiency": "fraction of peak, large matmuls",
    "device.half_work": "FLOP at half of that rate",
    "device.launch": "one numpy call",
    "device.memory_bandwidth": "numpy sum bandwidth",
    "device.overhead": "step overhead outside the layers",
    "device.reserved_memory": "rank's memory before its first array",
    "jitter": "jitter: sigma over mean of a step",
    "intra_node.latency": "message: latency",
    "intra_node.bandwidth": "message: bandwidth",
    "host_link.latency": "host link: latency",
    "host_link.bandwidth": "host link: bandwidth, bidirectional",
    "device.slowdown": "slowdown of compute within a step",
    "intra_node.efficiency": "bandwidth within a step, over isolated",
}


def as_toml(found: "Calibrated") -> str:
    """Return the [machine] of an experiment, with measurements and fit errors as comments."""
    measured = _measured(found)
    head = [
        f"Measured by `dlhpc calibrate` on {measured.date}: {measured.host};"
        f" {count(measured.ranks, 'rank')}, one thread each.",
        f'These numbers replace those of the machine that an experiment names; this machine is called "{STAND_IN}".',
        "",
        *as_lines(found),
    ]
    comments = "".join(f"# {line}".rstrip() + "\n" for line in head)
    return comments + tomli_w.dumps({"machine": _table(found.machine)})


def as_lines(found: "Calibrated") -> list[str]:
    """Return a readable table: each number with its 90% interval, the curves, the protocol switch, fit errors."""
    return [*_numbers(found), "", *_curves(found), *_step(found), "", *_fits(found), *_busy(found)]


def as_dict(found: "Calibrated") -> dict[str, Any]:
    """Return everything as plain tables in SI units: the machine, fit errors, and raw measurements."""
    step = {"size": found.messages.step, "latency": found.messages.jump} if found.messages else {}
    return {
        "machine": in_si(_table(found.machine), found.machine),
        "protocol_step": step,
        "errors": {name: errors.tolist() for name, errors in _errors(found)},
        "networks": found.layers.steps.tolist(),
        "whole": vars(found.whole),
        "raw": dict(found.raw),
    }


def _numbers(found: "Calibrated") -> Iterator[str]:
    yield f"{'':<38}{'measured':>14}   90% interval"
    for key, name in NAMES.items():
        ends = _measured(found).intervals.get(key)
        if ends is not None:
            unit = field_of(key)["unit"]
            value, low, high = (
                _shown(each, unit) for each in (value_of(found.machine, key), *ends)
            )
            yield f"{name:<38}{value:>14}   {low} to {high}"


def _curves(found: "Calibrated") -> Iterator[str]:
    raw = found.raw[WORKER]
    named = {
        "gemm float32": ("GEMM of edge", lambda size, took: _shown(2 * size**3 / took, "FLOP/s")),
        "message": ("message of", lambda size, took: _shown(took, "s")),
        "ring": ("allreduce, ring, of", lambda size, took: _shown(took, "s")),
        "recursive_doubling": (
            "allreduce, recursive doubling,",
            lambda size, took: _shown(took, "s"),
        ),
        "library": ("allreduce, MPI library,", lambda size, took: _shown(took, "s")),
        "halves": ("reduce-scatter + all-gather,", lambda size, took: _shown(took, "s")),
    }
    for what, (name, shown) in named.items():
        sizes, took = curve(raw, what)
        if not sizes:
            continue
        chosen = sorted(set(np.linspace(0, len(sizes) - 1, SHOWN).round().astype(int).tolist()))
        unit = "" if what.startswith("gemm") else "B"
        cells = (f"{_shown(sizes[at], unit)}: {shown(sizes[at], took[at])}" for at in chosen)
        yield f"{name:<33}" + "   ".join(cells)


def _step(found: "Calibrated") -> list[str]:
    messages = found.messages
    if messages is None:
        return ["one rank: messages not measured"]
    if not messages.step:
        return ["no protocol switch visible in message times"]
    return [
        f"eager to rendezvous switch at {_shown(messages.step, 'B')}:"
        f" {_shown(messages.jump, 's')} more"
    ]


def _fits(found: "Calibrated") -> Iterator[str]:
    steps = np.abs(found.layers.steps)
    yield (
        f"layers of {len(steps)} networks: fit off by {np.median(steps):.0%} in the median,"
        f" {steps.max():.0%} at most"
    )
    if found.whole.errors:
        whole = np.abs(found.whole.errors)
        yield (
            f"whole steps of {count(len(whole), 'real run')}: prediction off by"
            f" {np.median(whole):.0%} in the median, {whole.max():.0%} at most"
        )
    elif found.raw.get(STEPS):
        yield "whole steps: other processes used the cores during every run; fitted to the parts alone"
    if found.messages:
        off = np.abs(np.concatenate([*found.messages.errors.values()]))
        yield (
            f"messages and collectives from {_shown(SMALLEST, 'B')} on: linear fit off by"
            f" {np.median(off):.0%} in the median, {off.max():.0%} at most"
        )
        yield f"median error  {_medians(found.messages.errors)}"
    link = {"host link": found.host_link.errors} if found.host_link else {}
    own = {**found.numbers.errors, **found.layers.errors, **link}
    for first in range(0, len(own), 8):
        some = dict(list(own.items())[first : first + 8])
        yield ("median error  " if first == 0 else " " * 14) + _medians(some)
    if found.layers.held:
        rate = _shown(found.machine.device.peak["fp32"], "FLOP/s")
        yield (
            f"{', '.join(found.layers.held)}: capped at the GEMM peak rate, {rate}; uncapped points"
            " would give more, because memory traffic does not explain their time"
        )


def _medians(errors: Mapping[str, Floats]) -> str:
    return ", ".join(f"{name} {np.median(np.abs(each)):.0%}" for name, each in errors.items())


def _busy(found: "Calibrated") -> list[str]:
    """Return a note if other processes used the cores."""
    loads = [np.asarray(found.raw[module]["others"]) for module in (PROBE, WORKER)]
    load = max(float(np.mean(load[calm(load)])) for load in loads)
    if load < BUSY:
        return []
    return [f"NOTE  other processes kept {load:.1f} cores busy: rerun when the machine is idle."]


def _errors(found: "Calibrated") -> Iterator[tuple[str, Floats]]:
    yield from found.numbers.errors.items()
    yield from found.messages.errors.items() if found.messages else ()
    yield from found.layers.errors.items()
    if found.host_link:
        yield "out and back", found.host_link.errors


def _measured(found: "Calibrated") -> Measured:
    assert found.machine.measured is not None
    return found.machine.measured


def _table(machine: Machine) -> dict[str, Any]:
    """Return the measured numbers, rounded, and the name of the base machine."""
    assert machine.measured is not None
    table: dict[str, Any] = {"name": STAND_IN, "progress": machine.progress}
    for key in machine.measured.intervals:
        *parents, last = key.split(".")
        place, source = table, to_table(machine)
        for parent in parents:
            place, source = place.setdefault(parent, {}), source[parent]
        place[last] = _rounded(source[last], field_of(key)["unit"])
        if parents[:1] == ["storage"]:  # also numbers without an interval, such as unlimited rates
            tier = machine.storage[parents[1]]
            own = {item.name: item.default for item in fields(tier) if item.name != "name"}
            kept = {name: source[name] for name in own if getattr(tier, name) != own[name]}
            place.update(kept | place)
    layers = to_table(machine.device)["layers"]
    table["device"]["layers"] = {
        kind: {
            name: value if value == float("inf") else _rounded(value, _unit(name))
            for name, value in rate.items()
            if value not in (0.0, "0 s", float("inf"))
        }
        for kind, rate in layers.items()
    }
    provenance = to_table(machine.measured)
    del provenance["complete"]  # not the whole machine
    table["measured"] = provenance | {
        "intervals": {
            key: [_rounded(end, field_of(key)["unit"]) for end in ends]
            for key, ends in machine.measured.intervals.items()
        }
    }
    return table


def _unit(name: str) -> str:
    return {"launch": "s", "rate": "FLOP/s", "bandwidth": "B/s"}[name.removeprefix("backward_")]


def _rounded(value: Any, unit: str) -> Any:
    """Return a number with its unit as text, to four digits; text as it is."""
    if isinstance(value, str):
        value = parse_quantity(value, unit)
    return format_quantity(value, unit, 4).replace("µ", "u") if unit else float(f"{value:.4g}")


def _shown(value: float, unit: str) -> str:
    return format_quantity(value, unit) if unit else f"{value:.3g}"
