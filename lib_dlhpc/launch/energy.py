"""Joules of a run, from the counters that a machine has; else modeled as CPU time times a stated wattage.

One reader a source: RAPL for processors and their memory (Linux powercap), NVML for NVIDIA devices, and Slurm's
accounting for all nodes of a job. Counters are of the whole machine: what else runs on it counts as well.
"""

import importlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from lib_dlhpc.spec.experiment import Experiment
from lib_dlhpc.spec.units import format_energy

POWERCAP = Path("/sys/class/powercap")
NO_VALUE = 2**64 - 2  # NO_VAL64 of <slurm/slurm.h>
MODELED = "modeled: CPU time times busy power of a device"


class Counter(NamedTuple):
    """An energy counter: its value in J, and the J after which it starts again at 0."""

    joules: float
    wraps: float = float("inf")


class JobEnergy(NamedTuple):
    """The J of a job on all of its nodes, by the scheduler's accounting, and those of its steps by name."""

    joules: float
    steps: dict[str, float]


class Power(NamedTuple):
    """The mean power of a run in W, where it comes from, and whether a counter measured it."""

    watts: float
    source: str
    measured: bool


Counters = Mapping[str, Counter]  # by source and name, such as "RAPL package-0"


def spent(before: Counters, after: Counters) -> dict[str, float]:
    """Return the J between two readings of each counter; one that is lower than before has wrapped once."""
    found = {}
    for name in before.keys() & after.keys():
        joules = after[name].joules - before[name].joules
        found[name] = joules + after[name].wraps if joules < 0 else joules
    return found


def rapl(root: Path = POWERCAP) -> dict[str, Counter]:
    """Return the RAPL counters of packages and memory; none where they cannot be read (most kernels: root only).

    Other zones lie within a package (core, uncore) or contain it (psys). Source: Linux, Documentation/power/powercap.
    """
    found = {}
    for zone in sorted(root.glob("intel-rapl:*")):
        try:
            name = (zone / "name").read_text().strip()
            micro, most = (
                int((zone / file).read_text()) for file in ("energy_uj", "max_energy_range_uj")
            )
        except (OSError, ValueError):
            continue
        if name.startswith("package") or name == "dram":
            package = zone.name.split(":")[1]
            label = f"RAPL {name}" if name != "dram" else f"RAPL dram-{package}"
            found[label] = Counter(micro / 1e6, most / 1e6)
    return found


def nvml(library: str = "pynvml") -> dict[str, Counter]:
    """Return the energy counters of NVIDIA devices since the driver was loaded; none without the library or devices."""
    try:
        lib: Any = importlib.import_module(library)
    except ImportError:
        return {}
    try:
        lib.nvmlInit()
        handles = [lib.nvmlDeviceGetHandleByIndex(n) for n in range(lib.nvmlDeviceGetCount())]
        milli = [lib.nvmlDeviceGetTotalEnergyConsumption(handle) for handle in handles]
    except lib.NVMLError:  # no driver, or devices before Volta
        return {}
    return {f"NVML device {n}": Counter(each / 1e3) for n, each in enumerate(milli)}


def slurm_joules(text: str) -> float | None:
    """Return the J of a job from its accounting; None where no plugin counts energy, or none is there yet.

    text: of `sacct -j JOB --format=JobIDRaw,ConsumedEnergyRaw --noheader --parsable2`; steps are within the job's line.
    """
    for line in text.splitlines():
        job, _, joules = line.partition("|")
        if job.isdigit():
            return _counted(joules)
    return None


def slurm_steps(text: str) -> dict[str, float]:
    """Return the J of each step of a job, such as "batch" and "0"; of those that were counted.

    text: as of `slurm_joules`. Steps that overlap, as a batch step and the ranks that it starts, count the same nodes.
    """
    found = {}
    for line in text.splitlines():
        name, _, joules = line.partition("|")
        job, dot, step = name.partition(".")
        if dot and job.isdigit() and (counted := _counted(joules)):
            found[step] = counted
    return found


def _counted(joules: str) -> float | None:
    """Return the J of a cell; None for none, for 0, and for NO_VAL64, Slurm's 2^64 - 2 of a counter that failed."""
    counted = joules.strip().isdigit() and 0 < int(joules) < NO_VALUE
    return float(joules) if counted else None


def counters() -> dict[str, Counter]:
    """Return all counters of this machine, read now."""
    return {**rapl(), **nvml()}


def run_power(
    experiment: Experiment, ranks: int, seconds: float, before: Counters, after: Counters
) -> Power:
    """Return the mean power of a run between two readings of counters, `seconds` apart.

    Without counters, ranks draw busy power all the time, as they poll while they wait.
    """
    if read := spent(before, after):
        return Power(sum(read.values()) / seconds, ", ".join(sorted(read)), True)
    busy = float(experiment.machine.device.busy_power)
    return Power(busy * ranks, f"{MODELED}, {busy:g} W", False)


def run_energy(
    experiment: Experiment, result: Mapping[str, Any], before: Counters, after: Counters
) -> dict[str, Any]:
    """Return the energy of a run: `joules`, `source`, `measured`, and `terms`, J by term of a step.

    result: of the run, with `ranks`, `seconds` and `terms`. Counters do not know terms: each has its share of the time.
    """
    seconds = result["seconds"]
    watts, source, measured = run_power(experiment, result["ranks"], seconds, before, after)
    joules, step = watts * seconds, sum(result["terms"].values())
    terms = {name: joules * each / step for name, each in result["terms"].items() if each}
    return {"joules": joules, "source": source, "measured": measured, "terms": terms}


def job_energy_line(found: JobEnergy) -> str:
    """Return the energy of a job in a sentence."""
    steps = ", ".join(f"{name} {format_energy(joules)}" for name, joules in found.steps.items())
    of_steps = f"; steps: {steps}" if steps else ""
    return f"Its nodes drew {format_energy(found.joules)}, by the scheduler's accounting{of_steps}."


def energy_lines(energy: Mapping[str, Any]) -> list[str]:
    """Return the energy of a run, and its terms, as lines."""
    lines = [f"  energy {format_energy(energy['joules'])} ({energy['source']}), of which"]
    return lines + [
        f"    {name:<25} {format_energy(each):>10}" for name, each in energy["terms"].items()
    ]
