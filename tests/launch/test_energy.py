"""Energy of a run: one reader a source, each on what its source writes; modeled where there is none."""

import sys
import types

import pytest

from lib_dlhpc import load
from lib_dlhpc.launch.energy import (
    Counter,
    energy_lines,
    nvml,
    rapl,
    run_energy,
    slurm_joules,
    slurm_steps,
    spent,
)

# Zones of a server with two packages, as powercap lists them: name, energy_uj, max_energy_range_uj.
ZONES = {
    "intel-rapl:0": ("package-0", 1_500_000, 262_143_328_850),
    "intel-rapl:0:0": ("core", 900_000, 262_143_328_850),
    "intel-rapl:0:1": ("dram", 250_000, 65_712_999_613),
    "intel-rapl:1": ("package-1", 262_143_000_000, 262_143_328_850),
    "intel-rapl:2": ("psys", 9_000_000, 262_143_328_850),
}


def powercap(folder, zones):
    for zone, (name, micro, most) in zones.items():
        (folder / zone).mkdir(parents=True, exist_ok=True)
        (folder / zone / "name").write_text(f"{name}\n")
        (folder / zone / "energy_uj").write_text(f"{micro}\n")
        (folder / zone / "max_energy_range_uj").write_text(f"{most}\n")
    return folder


def test_rapl_counts_packages_and_their_memory_once(tmp_path):
    found = rapl(powercap(tmp_path, ZONES))
    assert {name: each.joules for name, each in found.items()} == {
        "RAPL package-0": 1.5,
        "RAPL dram-0": 0.25,
        "RAPL package-1": 262_143.0,
    }
    (tmp_path / "intel-rapl:0" / "energy_uj").write_text("")  # as of a zone that is off
    assert "RAPL package-0" not in rapl(tmp_path)
    assert rapl(tmp_path / "none") == {}


def test_a_counter_that_wraps(tmp_path):
    before = rapl(powercap(tmp_path, ZONES))
    after = rapl(powercap(tmp_path, {"intel-rapl:1": ("package-1", 1_000_000, 262_143_328_850)}))
    assert spent(before, after)["RAPL package-1"] == pytest.approx(0.328850 + 1.0)
    assert spent(before, after)["RAPL package-0"] == 0


def test_nvml(monkeypatch):
    library = types.ModuleType("recorded_nvml")
    library.NVMLError = type("NVMLError", (Exception,), {})
    library.nvmlInit = lambda: None
    library.nvmlDeviceGetCount = lambda: 2
    library.nvmlDeviceGetHandleByIndex = lambda index: index
    library.nvmlDeviceGetTotalEnergyConsumption = [1_234_567, 2_000].__getitem__  # mJ
    monkeypatch.setitem(sys.modules, "recorded_nvml", library)
    assert {name: each.joules for name, each in nvml("recorded_nvml").items()} == {
        "NVML device 0": 1234.567,
        "NVML device 1": 2.0,
    }

    def without_driver():
        raise library.NVMLError

    library.nvmlInit = without_driver
    assert nvml("recorded_nvml") == nvml("no_such_library") == {}


@pytest.mark.parametrize(
    ("text", "joules"),
    [
        ("4242|183000\n4242.batch|91000\n4242.0|91500\n", 183000.0),
        ("4242|\n4242.batch|\n", None),
        ("4242|0\n", None),
        ("4242|18446744073709551614\n", None),
        ("", None),
    ],
)
def test_slurm_counts_a_job_and_not_its_steps(text, joules):
    assert slurm_joules(text) == joules


@pytest.mark.parametrize(
    ("text", "steps"),
    [
        (
            "4242|183000\n4242.batch|91000\n4242.extern|0\n4242.0|91500\n",
            {"batch": 91000.0, "0": 91500.0},
        ),
        ("4242|\n4242.batch|\n4242.0|18446744073709551614\n", {}),
        ("", {}),
    ],
)
def test_slurm_counts_the_steps_of_a_job(text, steps):
    assert slurm_steps(text) == steps


RESULT = {"ranks": 2, "seconds": 10.0, "terms": {"forward": 1.0, "backward": 3.0, "update": 0.0}}


def test_a_measured_run(repository):
    run = load(repository / "labs/experiments/digits.toml")
    before, after = {"RAPL package-0": Counter(5.0)}, {"RAPL package-0": Counter(105.0)}
    found = run_energy(run, RESULT, before, after)
    assert (found["joules"], found["measured"]) == (100.0, True)
    assert found["terms"] == {"forward": 25.0, "backward": 75.0}
    assert energy_lines(found)[0] == "  energy 100 J (RAPL package-0), of which"


def test_without_counters_it_is_modeled_and_says_so(repository):
    run = load(repository / "labs/experiments/digits.toml").set({"machine.device.busy_power": 7.0})
    found = run_energy(run, RESULT, {}, {})
    assert (found["joules"], found["measured"]) == (140.0, False)
    assert "modeled: CPU time times busy power of a device, 7 W" in energy_lines(found)[0]
