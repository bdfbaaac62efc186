"""Fit a machine to the raw results of a device's ranks: by the fits of `dlhpc calibrate`, each number with its origin.

What the ranks cannot tell is not in the machine: it stays as the experiment's machine has it, and a note says so.
"""

from collections.abc import Mapping
from datetime import date
from typing import Any, NamedTuple

import numpy as np

from lib_dlhpc.calibration.imported_machine import INCLUDED, ImportedMachine, nested
from lib_dlhpc.calibration.messages import FITTED, fit_messages
from lib_dlhpc.calibration.numbers import fit_numbers
from lib_dlhpc.calibration.robust import HIGH, LOW, TRIES, Floats
from lib_dlhpc.spec.host import cores, host_class, versions
from lib_dlhpc.spec.machine import field_of, read_machine
from lib_dlhpc.spec.measured_machine import STAND_IN
from lib_dlhpc.spec.units import count, format_quantity

# quantiles of a normal distribution: one standard deviation from its mean
SIGMA = (0.1587, 0.5, 0.8413)
ISSUES = 0.5  # of the host's time: a device that needs as much for a call was waiting for the host
EVERY = 0.0, float("inf")
Ends = tuple[float, float]


class Number(NamedTuple):
    """A measured number, its 90% interval, and what it was measured with."""

    value: float
    ends: Ends
    origin: str


def device_machine(raw: Mapping[str, Any]) -> ImportedMachine:
    """Return the machine of raw results (worker.measure), whose other numbers are of STAND_IN."""
    found, notes = _numbers(raw)
    intervals = {
        key: (min(n.ends[0], n.value), max(n.ends[1], n.value)) for key, n in found.items()
    }
    flags = {"progress": True, "device.unfused_loss": True}
    table = nested({"name": STAND_IN, **flags, **{k: n.value for k, n in found.items()}})
    table["measured"] = {
        "date": date.today().isoformat(),
        "host": f"{host_class()}, {raw['title']}",
        "ranks": raw["ranks"],
        "cores": cores(),
        "versions": versions() | raw["versions"],
        "intervals": {key: list(ends) for key, ends in intervals.items()},
    }
    origins = {key: _said(key, intervals[key], n.origin) for key, n in found.items()}
    origins["progress"] = f"{raw['backend']} has threads or streams of its own"
    origins["device.unfused_loss"] = (
        "PyTorch's cross_entropy, not compiled: a kernel for each operation"
    )
    return ImportedMachine(read_machine(table), table, origins, intervals, tuple(notes), "")


def _numbers(raw: Mapping[str, Any]) -> tuple[dict[str, Number], list[str]]:
    """Return all numbers by dotted name, and notes of what could not be measured."""
    kinds = dict.fromkeys(each["what"] for each in raw["points"])
    precisions = {w.split()[1]: w for w in kinds if w.startswith("gemm")}
    reference = "bf16" if raw["kind"] in ("cuda", "rocm") else "fp32"
    numbers = fit_numbers(raw, precisions, reference, EVERY)
    edges = [p["size"] for p in raw["points"] if p["what"] == precisions[reference]]
    products = f"torch.mm in {reference}, edges {min(edges):,} to {max(edges):,}"
    found = {
        f"device.peak.{name}": Number(
            rate, numbers.peak_ends[name], f"the fastest torch.mm in {name}"
        )
        for name, rate in numbers.peak.items()
    } | {
        "device.efficiency": Number(numbers.efficiency, numbers.efficiency_ends, products),
        "device.half_work": Number(numbers.half_work, numbers.half_work_ends, products),
        "device.memory_bandwidth": Number(
            numbers.memory_bandwidth,
            numbers.memory_bandwidth_ends,
            "torch.add of fp32 arrays, 12 B per element",
        ),
        "device.streaming": Number(1.0, (1.0, 1.0), INCLUDED),
    }
    calls, notes = _calls(
        raw, Number(numbers.launch, numbers.launch_ends, "torch.add of four numbers")
    )
    found |= calls | _power(raw, notes) | {"jitter": _jitter(raw)}
    if raw["memory"]:
        found["device.memory"] = Number(raw["memory"], (raw["memory"],) * 2, "torch: total memory")
    links = _links(raw, numbers.gamma)
    if not links:
        notes.append("One rank: no messages and no collectives were measured.")
    notes.append(
        "Not measured: the network between nodes, storage, overhead and slowdown of whole steps."
    )
    return found | links, notes


def _calls(raw: Mapping[str, Any], call: Number) -> tuple[dict[str, Number], list[str]]:
    """Return launch, and dispatch where the host's and the device's part of a call can be separated."""
    if not raw["queued"]:
        return {"device.launch": call}, []
    on_host = _typical(raw["issued"], "the host issues a torch.add of four numbers")
    on_device = _typical(
        raw["queued"], "torch.add of four numbers, queued behind a matmul, by events"
    )
    if on_device.value < ISSUES * on_host.value:
        return {"device.launch": on_device, "device.dispatch": on_host}, []
    note = "The device may have waited for the host: device.launch is an upper bound."
    return {"device.launch": on_device, "device.dispatch": on_host}, [note]


def _typical(values: Floats, origin: str) -> Number:
    low, middle, high = (float(np.quantile(values, q)) for q in (LOW, 0.5, HIGH))
    return Number(middle, (low, high), f"{origin}, {len(values)} rounds")


def _power(raw: Mapping[str, Any], notes: list[str]) -> dict[str, Number]:
    """Return idle and busy power; a note says so if the driver reports none."""
    idle, busy = raw["power"]["idle"], raw["power"]["busy"]
    if not idle or not busy:
        notes.append(
            f"Power was not measured: none can be read of {raw['kind']} here (of cuda, by nvidia-ml-py)."
        )
        return {}
    where = "NVML, device of rank 0,"
    return {
        "device.idle_power": _typical(idle, f"{where} before the first matmul"),
        "device.busy_power": _typical(
            busy, f"{where} in matmuls without a pause, under the limit that is set"
        ),
    }


def _jitter(raw: Mapping[str, Any]) -> Number:
    """Return sigma over mean of equal steps: the median of the ranks, with a bootstrap interval."""
    steps, dice = np.asarray(raw["steps"], float), np.random.default_rng(0)

    def sigma(each: Floats) -> float:
        low, middle, high = np.quantile(each, SIGMA, axis=1)
        return float(min(1.0, np.median((high - low) / 2 / middle)))

    tries = [sigma(dice.choice(steps, steps.shape[1], axis=1)) for _ in range(TRIES)]
    low, high = np.quantile(tries, (LOW, HIGH))
    origin = f"{steps.shape[1]} equal steps of matmuls on {count(len(steps), 'rank')}, other processes included"
    return Number(sigma(steps), (float(low), float(high)), origin)


def _links(raw: Mapping[str, Any], gamma: float) -> dict[str, Number]:
    """Return the link between devices of a node."""
    messages = fit_messages(raw, gamma)
    if messages is None:
        return {}
    kinds = ", ".join(kind for kind in FITTED if kind in messages.errors)
    off = float(np.median(np.abs(np.concatenate([*messages.errors.values()]))))
    origin = f"{raw['backend']}, {raw['ranks']} ranks: {kinds}; the line is off by {off:.0%} in the median"
    return {
        "intra_node.latency": Number(messages.latency, messages.latency_ends, origin),
        "intra_node.bandwidth": Number(messages.bandwidth, messages.bandwidth_ends, origin),
        "intra_node.efficiency": Number(1.0, (1.0, 1.0), INCLUDED),
    }


def _said(key: str, ends: Ends, origin: str) -> str:
    """Return interval and origin of a number; the origin alone if it has no scatter."""
    if ends[0] == ends[1]:
        return origin
    unit = field_of(key)["unit"]
    low, high = (format_quantity(end, unit) if unit else f"{end:.3g}" for end in ends)
    return f"{low} to {high}; {origin}"
