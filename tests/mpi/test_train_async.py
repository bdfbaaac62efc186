"""Asynchronous and compressed runs on real ranks: equal to one rank where required, and consistent with their log."""

from pathlib import Path

import pytest

from lib_dlhpc.launch import JobError, start
from lib_dlhpc.launch.terminal import as_text
from lib_dlhpc.spec.experiment import loads

WORKER = Path(__file__).with_name("train_async_worker.py")
WILD = """
dataset = { name = "digits" }
model = { name = "mlp-digits" }
machine = { name = "laptop", nodes = 2 }
strategy = { devices_per_node = 1, update = "asynchronous" }
training = { rate = 1e30 }
"""


@pytest.mark.parametrize("ranks", [1, 2, 3, 4])
def test_asynchronous_and_compressed_runs_keep_their_laws(run_ranks, ranks, tmp_path):
    said = run_ranks(ranks, WORKER, str(tmp_path))
    assert "all right" in said
    print(said)  # staleness measured and simulated


def test_a_result_reports_bytes_and_staleness(mpiexec, tmp_path):
    experiment = loads(WILD).set({"training.rate": 0.01, "run.epochs": 2.0})
    job = start(experiment, 3, tmp_path / "stale")
    result = job.wait()
    updates = sum(result["staleness"]["histogram"])
    assert updates == 2 * 45  # batches of 32 of 1,438 samples
    assert "and receives as much" in as_text(experiment, job, result)
    assert f"staleness of {updates} updates: mean" in as_text(experiment, job, result)

    small = {"strategy.update": "synchronous", "training.sparsity": 0.99}
    experiment = experiment.set(small)
    job = start(experiment, 2, tmp_path / "small")
    result = job.wait()
    sizes = [(64 * 64, 64), (64 * 32, 32), (32 * 10, 10)]
    # Of both ranks 1% of each matrix as pairs of a value and an index, 4 B each; biases as they are.
    sent = sum(2 * round(0.01 * matrix) * 8 + 4 * bias for matrix, bias in sizes)
    assert result["sent"] == sent < 0.06 * result["gradients"]
    assert "% of the gradients'" in as_text(experiment, job, result)


def test_a_worker_that_diverges_ends_servers_too(mpiexec, tmp_path):
    job = start(loads(WILD), 3, tmp_path / "run")
    with pytest.raises(JobError, match=r"rank \d: Diverged: .* step \d+"):
        job.wait()
