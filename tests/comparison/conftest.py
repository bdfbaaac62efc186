"""Fixtures for tests of compare: small experiments, and a measured machine."""

from dataclasses import replace
from datetime import date

import pytest
import short_runs

from lib_dlhpc.spec.host import host_class, kernels, versions
from lib_dlhpc.spec.machine import load_machine
from lib_dlhpc.spec.measured import Measured

INTERVALS = {
    "device.efficiency": (0.5, 1.0),
    "device.launch": (1e-6, 9e-6),
    "intra_node.latency": (1e-6, 4e-6),
    "jitter": (0.0, 0.06),
}


@pytest.fixture(autouse=True)
def _own_state(own_state):
    """No test here sees the calibration of the user."""


@pytest.fixture
def digits():
    return short_runs.digits()


@pytest.fixture
def calibrated():
    """The catalog's laptop, as if all in INTERVALS had been measured on it, here and today."""
    today = date.today().isoformat()
    where = Measured(today, host_class(), 2, 2, versions() | kernels(), INTERVALS)
    return replace(load_machine("laptop"), measured=where)


@pytest.fixture
def quick_probes(tmp_path, monkeypatch):
    """Probes beside a run take a few steps of each experiment, in place of many."""
    lines = (
        "import sys",
        "if any('worker' in each for each in sys.orig_argv):",
        "    from lib_dlhpc.training import probe_steps",
        "    probe_steps.STEPS = probe_steps.WARM_UP + 3",
    )
    (tmp_path / "sitecustomize.py").write_text("\n".join(lines))
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
