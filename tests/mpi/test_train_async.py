"""Asynchronous and compressed runs on real ranks: equal to one rank where they must be, and as their log says."""

from pathlib import Path

import pytest

from lib_dlhpc.launch import JobError, start
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


def test_a_worker_that_diverges_ends_servers_too(mpiexec, tmp_path):
    job = start(loads(WILD), 3, tmp_path / "run")
    with pytest.raises(JobError, match=r"rank \d: Diverged: .* step \d+"):
        job.wait()
