"""Torch's processor as a device: every call works and takes time; devices that are not there are named."""

import pytest
import torch

from lib_dlhpc.calibration.device import worker
from lib_dlhpc.calibration.device.machine import device_machine
from lib_dlhpc.calibration.device.torch_device import TorchDevice, devices_here
from lib_dlhpc.cli import main
from lib_dlhpc.spec.measured_machine import load_measured


@pytest.fixture
def small(monkeypatch):
    """Few and small measurements."""
    for name, value in {"EDGES": (32, 64, 128), "SUMS": (1 << 16, 1 << 18), "STEPS": 5}.items():
        monkeypatch.setattr(worker, name, value)
    monkeypatch.setattr(worker, "LEAST", 1e-5)


def test_a_processor_is_measured(small):
    raw = worker.measure(TorchDevice("cpu"), 0.0)
    whats = {"call", "sum", *(f"gemm {name}" for name in ("fp64", "fp32", "bf16"))}
    assert {point["what"] for point in raw["points"]} == whats
    assert all(second > 0 for point in raw["points"] for second in point["seconds"])
    machine = device_machine(raw | {"threads": 1}).machine
    assert machine.measured.versions["torch"] == torch.__version__
    assert machine.device.peak.keys() >= {"fp64", "fp32", "bf16"}


@pytest.mark.parametrize("kind", ["cuda", "rocm", "mps"])
def test_a_device_that_is_not_there_is_named_with_those_that_are(kind, capsys):
    if kind in devices_here():
        pytest.skip(f"this machine has {kind}")
    assert main(["calibrate", "--device", kind, "--seconds", "2"]) == 2
    error = capsys.readouterr().err
    assert f"--device {kind}: torch {torch.__version__} finds none; here: " in error
    assert "cpu (1)" in error


def test_ranks_exchange_over_gloo(tmp_path, capsys):
    out = tmp_path / "cpu.toml"
    assert (
        main(["calibrate", "--device", "cpu", "-n", "2", "--seconds", "2", "--out", str(out)]) == 0
    )
    measured = load_measured(out)
    assert measured.measured.ranks == 2
    assert {
        "intra_node.latency",
        "intra_node.bandwidth",
        "jitter",
    } <= measured.measured.intervals.keys()
    assert "gloo, 2 ranks" in capsys.readouterr().out
