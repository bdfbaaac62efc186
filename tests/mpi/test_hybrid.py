"""Parallel training equals one rank, in every legal combination; mistakes are noticed."""

from pathlib import Path

import pytest

WORKER = Path(__file__).with_name("hybrid_worker.py")
MANY = [pytest.param(ranks, marks=pytest.mark.slow) for ranks in (4, 6, 8)]


@pytest.mark.parametrize("ranks", [1, 2, 3, *MANY])
def test_every_kind_of_parallelism_equals_one_rank(run_ranks, ranks):
    assert "all right" in run_ranks(ranks, WORKER)
