"""The ledger's peak of each rank is what the trainer's ranks measure, within 10 %, in every mode."""

import os
from pathlib import Path

import pytest

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
def test_the_ledger_of_each_rank_is_what_it_measures(start_ranks, ranks, modes):
    assert "all right" in start_ranks(ranks, WORKER, *modes)
