"""Laws of a run in microbatches on one rank, and refused experiments; tests/mpi/test_hybrid.py has many ranks."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from patience import PATIENCE

from lib_dlhpc.errors import SpecError
from lib_dlhpc.spec.experiment import Experiment
from lib_dlhpc.training.single_rank import SingleRank
from lib_dlhpc.training.trainer import train

IMAGES = Experiment(
    model={
        "family": "sequential",
        "input": [1, 6, 5],
        "layers": [
            {"kind": "conv", "channels": 3, "kernel": 3, "padding": 1},
            {"kind": "relu"},
            {"kind": "flatten"},
            {"kind": "dropout", "rate": 0.3},
            {"kind": "dense", "features": 5},
        ],
    },
    dataset={"name": "waves", "samples": 59, "bytes": 59},
    machine="laptop",
    strategy={"devices_per_node": 1, "batch": 20, "precision": "fp64"},
    run={"epochs": 2},
    training={"rate": 0.05},
)
NORMALIZED = {
    "model.layers": [
        {"kind": "conv", "channels": 3, "kernel": 3},
        {"kind": "batch_norm"},
        {"kind": "flatten"},
        {"kind": "dense", "features": 5},
    ]
}


def run(changes, folder=None):
    return train(IMAGES.set(changes), SingleRank(), folder)


@pytest.mark.parametrize(
    "changes",
    [
        {"strategy.microbatches": 2},
        {"strategy.microbatches": 20, "strategy.schedule": "gpipe"},
        {"strategy.microbatches": 3, "strategy.schedule": "interleaved", "strategy.chunks": 2},
        {"strategy.schedule": "interleaved", "strategy.chunks": 2},
        {"strategy.schedule": "interleaved", "strategy.chunks": 2, "strategy.zero": 2},
        {"strategy.microbatches": 3, "strategy.recompute": "full"},
        {"strategy.zero": 3},
        {"strategy.offload": "activations"},
        {"strategy.offload": "all"},
        {"strategy.offload": "all", "strategy.microbatches": 3, "strategy.recompute": "full"},
    ],
)
def test_microbatches_are_the_batch(changes, tmp_path):
    """Also those of a last batch of 7, some of them empty; and stages of one rank."""
    (tmp_path / "one").mkdir(), (tmp_path / "other").mkdir()
    one, other = run({}, tmp_path / "one"), run(changes, tmp_path / "other")
    assert (other.loss, other.test_loss) == pytest.approx((one.loss, one.test_loss), rel=1e-12)
    assert other.accuracy == one.accuracy and other.samples == one.samples
    with (
        np.load(tmp_path / "one/snapshot.npz") as right,
        np.load(tmp_path / "other/snapshot.npz") as found,
    ):
        assert sorted(right.files) == sorted(found.files)
        for name in right.files:
            np.testing.assert_allclose(found[name], right[name], rtol=1e-10, atol=1e-13)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"training.normalization": "global"}, "microbatches = 2.*'local', or microbatches to 1"),
        ({"strategy.precision": "fp16"}, "'fp64' or 'fp32'"),
        ({"training.sparsity": 0.5, "strategy.optimizer": "sgd"}, "legal value is 0"),
        ({"strategy.devices_per_node": 4, "strategy.pipeline": 4}, "1 ranks: .* start 4"),
        ({"strategy.devices_per_node": 4, "strategy.spatial": 4}, "1 ranks: .* start 4"),
    ],
)
def test_options_that_conflict_with_microbatches_are_refused(changes, words):
    with pytest.raises(SpecError, match=words):
        run({"strategy.microbatches": 2, **NORMALIZED, **changes})


def test_a_snapshot_that_is_damaged_is_refused(tmp_path):
    run({"strategy.microbatches": 2}, tmp_path)
    whole = (tmp_path / "snapshot.npz").read_bytes()
    turned = bytearray(whole)
    turned[len(whole) // 2] ^= 255
    for damaged in (whole[:-100], whole[: len(whole) // 2], b"", bytes(turned)):
        (tmp_path / "snapshot.npz").write_bytes(damaged)
        with pytest.raises(SpecError, match="not a readable snapshot"):
            run({"strategy.microbatches": 2}, tmp_path)


def test_a_full_disk_leaves_the_previous_snapshot(tmp_path, monkeypatch):
    run({"strategy.microbatches": 2}, tmp_path)
    before = (tmp_path / "snapshot.npz").read_bytes()

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(OSError, match=r"No space left on device.*snapshot\.npz"):
        run({"strategy.microbatches": 2, "run.epochs": 3}, tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["snapshot.npz"]
    assert (tmp_path / "snapshot.npz").read_bytes() == before


def test_a_snapshot_of_another_model_is_refused(tmp_path):
    run({"strategy.microbatches": 2}, tmp_path)
    with pytest.raises(SpecError, match=r"weights: .* of float64; the model has"):
        run({"strategy.microbatches": 2, **NORMALIZED}, tmp_path)
    with pytest.raises(SpecError, match=r"weights: .* of float64; the model has .* of float32"):
        run({"strategy.microbatches": 2, "strategy.precision": "fp32"}, tmp_path)


OUT_OF_CORE = """
import gc
import sys
from pathlib import Path
from lib_dlhpc.spec.experiment import read_experiment
from lib_dlhpc.training.single_rank import SingleRank
from lib_dlhpc.training.trainer import train

def peak():
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) * 1024

def run(widths, epochs):
    tables = {
        "model": {"family": "mlp", "widths": [64, *widths, 10]},
        "dataset": {"name": "digits", "samples": 200}, "machine": {"name": "laptop"},
        "strategy": {"devices_per_node": 1, "offload": "all"}, "run": {"epochs": epochs},
    }
    folder = Path(sys.argv[1]) / f"{len(widths)}"
    folder.mkdir(exist_ok=True)
    size = train(read_experiment(tables), SingleRank(), folder).gradients
    gc.collect()
    return size

run([8], 0.1)
before = peak()
sizes = [run([600] * 32, epochs) for epochs in (1.0, 2.0)]
print(sizes[0], peak() - before)
"""


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="the kernel reports no peak")
def test_out_of_core_nothing_as_large_as_the_network_is_in_memory(tmp_path):
    """Neither at the start, nor in a step, a test or a snapshot, nor on resume."""
    found = subprocess.run(
        [sys.executable, "-c", OUT_OF_CORE, str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        env=os.environ | {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"},
    )
    assert found.returncode == 0, found.stderr
    weights, grown = map(int, found.stdout.split())
    assert weights > 40e6 and grown < weights / 2, (weights, grown)
