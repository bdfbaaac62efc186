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
# Each with processes of its own: freed memory may be reused.
OFFLOADS = [(1, ["offload activations"]), (1, ["offload all"])]
# One short run for every term of the ledger and every way to divide a network; make soak runs all modes.
SHORT = [
    (1, ["llama, fused", "microbatches", "selective", "full"]),
    (
        2,
        [
            "tensor, paired",
            "tensor, row",
            "filters",
            "llama, sequence parallel",
            "context, ring",
            "rows of images",
            "zero 2",
            "zero 3",
            "1f1b",
            "zb-h1, experts",
            "interleaved",
        ],
    ),
    (4, ["hybrid zero 3", "experts, zero 3 by layer"]),
]
ALL = [
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
    (2, []),
    (4, []),
    (8, []),
]


@pytest.mark.slow
@pytest.mark.skipif(not os.path.exists("/proc/self/clear_refs"), reason="needs Linux's /proc")
@pytest.mark.parametrize(
    ("ranks", "modes"),
    [*OFFLOADS, *SHORT, *(pytest.param(*one, marks=pytest.mark.soak) for one in ALL)],
)
def test_the_ledger_of_each_rank_is_what_it_measures(start_ranks, monkeypatch, ranks, modes):
    for name, value in (ALONE | SLEEPING).items():
        monkeypatch.setenv(name, value)
    assert "all right" in start_ranks(ranks, WORKER, *modes)
