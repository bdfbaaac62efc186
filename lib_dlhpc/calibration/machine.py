"""Measure this machine on MPI ranks, and fit the [machine] table of an experiment.

Programs run on all ranks in sequence: the trainer's probe (its layers, updates and a tiny run), worker.py (numpy,
messages, collectives), and before, between and after them whole steps of small runs (training/probe_steps.py). Given
time, all programs take several turns: the slowdown of a shared machine varies from minute to minute, and each new
process has another memory layout. The caller provides the function that starts ranks.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import date
from subprocess import CompletedProcess, TimeoutExpired
from typing import TYPE_CHECKING, Any

import numpy as np

from lib_dlhpc.calibration.fit import Fit
from lib_dlhpc.calibration.host_link import HostLink, fit_host_link
from lib_dlhpc.calibration.layers import Layers, fit_layers
from lib_dlhpc.calibration.merge import merged
from lib_dlhpc.calibration.messages import Messages, fit_messages
from lib_dlhpc.calibration.numbers import Numbers, fit_numbers
from lib_dlhpc.calibration.programs import PROBE, STEPS, WORKER
from lib_dlhpc.calibration.step_fit import EFFICIENCY, SLOWDOWN, StepFit, fit_steps, interval
from lib_dlhpc.calibration.workspace import CalibrationError
from lib_dlhpc.lifetime.owned import temporary_folder
from lib_dlhpc.results import Columns, Result, Summary
from lib_dlhpc.spec.host import cores, host_class, kernels, versions
from lib_dlhpc.spec.machine import Machine, read_machine
from lib_dlhpc.spec.measured_machine import STAND_IN
from lib_dlhpc.spec.schema import to_table

if TYPE_CHECKING:
    import altair as alt

# Fraction of the seconds for all turns of a program; the rest is startup.
SHARES = {PROBE: 0.32, WORKER: 0.16, STEPS: 0.21}
TURN = 20.0  # s, about
LONG = 10.0  # s; shorter calibrations skip whole steps
PATIENCE = 180.0  # s beyond the requested time
LEAST, MOST = 2.0, 3600.0  # s
Run = Callable[..., CompletedProcess[str]]
Ends = tuple[float, float]


@dataclass(frozen=True, repr=False)
class Calibrated(Result):
    """A calibrated machine, with its fits and raw results."""

    machine: Machine
    layers: Layers
    messages: Messages | None
    numbers: Numbers
    host_link: HostLink | None
    whole: StepFit
    raw: Mapping[str, Any]

    def summary(self) -> Summary:
        """Return the measured parameters with their intervals, in words."""
        from lib_dlhpc.calibration.summary import summary

        return summary(self)

    def to_columns(self) -> Columns:
        """Return a row for each measured parameter: parameter, value, low, high, unit."""
        from lib_dlhpc.calibration.summary import columns

        return columns(self)

    def plot(self) -> "alt.LayerChart":
        """Return the 90% interval of each parameter, relative to its value."""
        from lib_dlhpc.results.charts import intervals

        return intervals(self.to_columns(), "parameter", self.summary().title)


def measure_machine(
    ranks: int,
    seconds: float,
    run: Run,
    progress: Callable[[int, int], None] = lambda done, of: None,
) -> dict[str, Any]:
    """Return the raw measurements on `ranks` ranks, in about `seconds` where a core of each rank is idle.

    run(ranks, *arguments, patience=s): starts a Python program on ranks and waits for its end. progress: is called with
    how many programs have ended, and of how many. Raises CalibrationError for less than 2 s or one rank, and if a
    program fails.
    """
    if ranks < 1:
        raise CalibrationError(f"ranks = {ranks}: expected a whole number, at least 1.")
    if not LEAST <= seconds < float("inf"):
        raise CalibrationError(f"seconds = {seconds:g}: expected at least {LEAST:g}.")
    turns = max(1, round(seconds / TURN))
    order = [PROBE, WORKER] * turns
    if seconds >= LONG:
        order = [STEPS, *(each for module in order for each in (module, STEPS))]
    results: dict[str, list[dict[str, Any]]] = {module: [] for module in SHARES}
    for done, module in enumerate(order, 1):
        share = SHARES[module] / order.count(module)
        results[module].append(_ended(module, ranks, share * seconds, run))
        progress(done, len(order))
    return {PROBE: merged(results[PROBE]), WORKER: merged(results[WORKER]), STEPS: results[STEPS]}


def _ended(module: str, ranks: int, seconds: float, run: Run) -> dict[str, Any]:
    """Run a program on ranks and return its results. Raises CalibrationError."""
    with temporary_folder("dlhpc-calibrate-") as folder:
        file = folder / f"{module}.json"
        try:
            done = run(
                ranks, "-m", module, str(file), f"{seconds:.3f}", patience=seconds + PATIENCE
            )
        except TimeoutExpired:
            raise CalibrationError(f"{module} on {ranks} ranks did not end in time.") from None
        if done.returncode or not file.exists():
            last = (done.stderr.strip() or done.stdout.strip() or "no output").splitlines()[-1]
            raise CalibrationError(f"{module} on {ranks} ranks failed: {last}")
        result: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    if result["ranks"] != ranks:
        raise CalibrationError(f"{ranks} ranks were asked for, and {result['ranks']} started.")
    return result


def fit_machine(raw: Mapping[str, Any], tier: Fit | None = None) -> Calibrated:
    """Return the machine fitted to raw measurements; `tier`: separately measured storage."""
    numbers = fit_numbers(raw[WORKER])
    layers = fit_layers(raw[PROBE], numbers.peak["fp32"])
    messages = fit_messages(raw[WORKER], numbers.gamma)
    ranks, link = int(raw[PROBE]["ranks"]), fit_host_link(raw[PROBE])
    values, ends = _numbers(layers, messages, numbers, link, raw[PROBE]["resident"])
    table: dict[str, Any] = {"name": STAND_IN, "progress": False}
    _put(table, values)
    table["device"]["layers"] = {kind: to_table(rate) for kind, rate in layers.rates.items()}
    whole = fit_steps(raw.get(STEPS, ()), read_machine(table))
    changed = _settled(whole, ends) | {"device.overhead": layers.tiny.overhead(whole.slowdown)}
    _put(table, {key: value for key, (value, _) in changed.items()})
    ends |= {key: pair for key, (_, pair) in changed.items()}
    if tier is not None:
        kept = {key: value for key, value in to_table(tier.tier).items() if key != "name"}
        table["storage"] = {tier.tier.name: kept}
        ends |= {
            f"storage.{tier.tier.name}.{key}": pair
            for key, pair in tier.intervals.items()
            if np.isfinite(pair).all()
        }
    table["measured"] = {
        "date": date.today().isoformat(),
        "host": host_class(),
        "ranks": ranks,
        "cores": cores(),
        "versions": versions() | kernels(),
        "intervals": {key: list(pair) for key, pair in ends.items()},
    }
    return Calibrated(read_machine(table), layers, messages, numbers, link, whole, raw)


def _put(table: dict[str, Any], values: Mapping[str, float]) -> None:
    """Insert numbers with dotted names into nested tables."""
    for key, value in values.items():
        *parents, last = key.split(".")
        place = table
        for parent in parents:
            place = place.setdefault(parent, {})
        place[last] = value


def _settled(whole: StepFit, ends: Mapping[str, Ends]) -> dict[str, tuple[float, Ends]]:
    """Return the numbers common to all parts as fitted to whole steps, with their intervals."""
    keys = {
        "device.slowdown": (whole.slowdown, whole.slowdown_of_runs, SLOWDOWN),
        "intra_node.efficiency": (whole.efficiency, whole.efficiency_of_runs, EFFICIENCY),
    }
    return {
        key: (middle, interval(middle, values, most, ends[key]))
        for key, (middle, values, most) in keys.items()
        if key in ends and values
    }


def _numbers(
    layers: Layers,
    messages: Messages | None,
    numbers: Numbers,
    link: HostLink | None,
    resident: list[int],
) -> tuple[dict[str, float], dict[str, Ends]]:
    """Return each number by its dotted name, and its interval, which contains it."""
    held = float(np.max(resident)), (float(np.min(resident)), 1.1 * float(np.max(resident)))
    found: dict[str, tuple[float, Ends]] = {
        "device.efficiency": (numbers.efficiency, numbers.efficiency_ends),
        "device.half_work": (numbers.half_work, numbers.half_work_ends),
        "device.launch": (numbers.launch, numbers.launch_ends),
        "device.memory_bandwidth": (numbers.memory_bandwidth, numbers.memory_bandwidth_ends),
        "device.overhead": layers.tiny.overhead(),
        "device.slowdown": (1.0, layers.slowdown_ends),
        "device.reserved_memory": held,
        "jitter": (layers.jitter, layers.jitter_ends),
    }
    for name, rate in numbers.peak.items():
        found[f"device.peak.{name}"] = rate, numbers.peak_ends[name]
    if messages is not None:
        found["intra_node.latency"] = messages.latency, messages.latency_ends
        found["intra_node.bandwidth"] = messages.bandwidth, messages.bandwidth_ends
        found["intra_node.efficiency"] = 1.0, (1.0, 1.0)
    if link is not None:
        found["host_link.latency"] = link.latency, link.latency_ends
        found["host_link.bandwidth"] = link.bandwidth, link.bandwidth_ends
        found["host_link.efficiency"] = 1.0, (1.0, 1.0)
    return {key: value for key, (value, _) in found.items()}, {
        key: (min(pair[0], value), max(pair[1], value)) for key, (value, pair) in found.items()
    }
