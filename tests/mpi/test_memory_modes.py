"""The ledger's peak of each rank is what the trainer's ranks measure, within 10%, in every mode.

Arrays live outside the heap, and return to the system when they are freed. What a heap keeps beside them depends on
the order in which messages arrive: up to 13% in the same mode.
"""

import os
from pathlib import Path

import pytest

from lib_dlhpc.labs.fit_the_model.capped_run import ALONE
from lib_dlhpc.launch.mpi import SLEEPING

WORKER = Path(__file__).with_name("memory_worker.py")


@pytest.mark.slow
@pytest.mark.skipif(not os.path.exists("/proc/self/clear_refs"), reason="needs Linux's /proc")
@pytest.mark.parametrize(
    ("ranks", "modes"),
    [
        (
            1,
            [
                "alone",
                "llama",
                "llama, fused",
                "experts alone",
                "llama, full",
                "microbatches",
                "selective",
                "full",
                "full, images",
            ],
        ),
        (1, ["offload activations"]),
        (1, ["offload all"]),
        (2, []),
        (4, []),
        (8, []),
    ],
)
def test_the_ledger_of_each_rank_is_what_it_measures(start_ranks, monkeypatch, ranks, modes):
    for name, value in (ALONE | SLEEPING).items():
        monkeypatch.setenv(name, value)
    assert "all right" in start_ranks(ranks, WORKER, *modes)
