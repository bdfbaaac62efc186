"""`dlhpc calibrate --device`: planted devices are found again; what cannot be measured is said, not invented."""

import json
import sys
import tomllib
from types import SimpleNamespace

import planted_device as planted
import pytest
from planted_device import PlantedDevice

from lib_dlhpc.calibration.device.machine import device_machine
from lib_dlhpc.calibration.device.report import as_dict, as_toml
from lib_dlhpc.calibration.device.worker import measure
from lib_dlhpc.cli import main
from lib_dlhpc.extras import missing
from lib_dlhpc.spec.machine import load_machine
from lib_dlhpc.spec.measured_machine import load_measured, measured_on, value_of

PLANTED = {
    "device.memory_bandwidth": planted.BANDWIDTH,
    "device.launch": planted.LAUNCH,
    "device.dispatch": planted.DISPATCH,
    "device.idle_power": planted.IDLE,
    "device.busy_power": planted.BUSY,
    "device.memory": planted.MEMORY,
    "intra_node.latency": planted.LATENCY,
    "intra_node.bandwidth": planted.LINK,
}


def raw_of(**how):
    return measure(PlantedDevice(**how), 0.0) | {"threads": 1}


@pytest.fixture(scope="module")
def quiet():
    return raw_of()


def test_a_planted_device_is_found(quiet):
    found = device_machine(quiet)
    for key, value in PLANTED.items():
        assert value_of(found.machine, key) == pytest.approx(value, rel=0.02), key
        low, high = found.intervals[key]
        assert low <= value * 1.001 and high >= value * 0.999, key
    device = found.machine.device
    rate = device.peak["bf16"] * device.efficiency
    assert rate == pytest.approx(planted.PEAK["bf16"] * planted.EFFICIENCY, rel=0.01)
    assert device.half_work == pytest.approx(planted.HALF, rel=0.05)
    assert device.peak["fp32"] < planted.PEAK["fp32"]


def test_scatter_is_jitter_and_widens_the_intervals(quiet):
    calm, noisy = device_machine(quiet), device_machine(raw_of(noise=0.05))
    assert calm.machine.jitter == 0
    low, high = noisy.intervals["jitter"]
    assert low <= 0.05 <= high
    for key in ("device.memory_bandwidth", "intra_node.bandwidth", "device.half_work"):
        widths = [(high - low) for low, high in (each.intervals[key] for each in (calm, noisy))]
        assert widths[0] < widths[1], key


def test_the_file_is_a_calibration_with_an_origin_of_each_number(quiet, tmp_path):
    found = device_machine(quiet)
    (tmp_path / "device.toml").write_text(as_toml(found, quiet), "utf-8")
    read = load_measured(tmp_path / "device.toml")
    assert read.measured.intervals.keys() == found.intervals.keys() <= found.origins.keys()
    base = load_machine("h100-pod")
    there = measured_on(base, read)
    for key, value in PLANTED.items():
        assert value_of(there, key) == pytest.approx(value, rel=0.02), key
    assert (there.nodes, there.inter_node, there.storage) == (
        base.nodes,
        base.inter_node,
        base.storage,
    )
    body = as_toml(found, quiet).partition("\n[machine]")[2].partition("[machine.measured]")[0]
    lines = [line for line in body.splitlines() if " = " in line]
    assert lines and all("  # " in line for line in lines)
    json.dumps(as_dict(found, quiet))


def test_what_cannot_be_measured_is_said():
    found = device_machine(raw_of(kind="mps", ranks=1, power=False))
    keys = " ".join(found.intervals)
    for absent in ("intra_node", "power", "dispatch"):
        assert absent not in keys
    said = " ".join(found.notes)
    assert "One rank: no messages" in said and "Power was not measured" in said
    assert "the network between nodes" in said
    assert tomllib.loads(as_toml(found, raw_of(kind="mps", ranks=1, power=False)))["machine"]


def test_a_missing_torch_is_a_sentence():
    assert (
        missing("torch") == "torch is not installed; `pip install 'lib-dlhpc[torch]'` installs it."
    )


@pytest.fixture
def command(monkeypatch, quiet):
    """`dlhpc calibrate` with planted devices, and what was asked of them."""
    asked = []

    def measure_device(*arguments):
        asked.append(arguments)
        return quiet

    seam = SimpleNamespace(measure_device=measure_device)
    monkeypatch.setitem(sys.modules, "lib_dlhpc.calibration.device.measure", seam)
    return asked


def test_the_command_prints_the_machine_or_writes_it(command, tmp_path, capsys):
    own = ["calibrate", "--device", "cuda", "--seconds", "5"]
    assert main(own) == 0
    assert tomllib.loads(capsys.readouterr().out)["machine"]["measured"]["ranks"] == 4
    out = tmp_path / "device.toml"
    assert main([*own, "-n", "4", "--out", str(out), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["origins"].keys() >= PLANTED.keys()
    assert load_measured(out).measured.ranks == 4
    assert command == [("cuda", 0, 5.0), ("cuda", 4, 5.0)]


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--io", "."], "--io: not with --device"),
        (["-n", "0"], "--ranks 0: expected a whole number, at least 1"),
        (["--seconds", "0"], "--seconds 0: legal"),
        (["--out", "no/folder/a.toml"], "--out no/folder/a.toml: no such folder"),
    ],
)
def test_mistakes_are_reported_before_any_measurement(command, words, says, capsys):
    assert main(["calibrate", "--device", "cuda", *words]) == 2
    assert says in capsys.readouterr().err and not command
