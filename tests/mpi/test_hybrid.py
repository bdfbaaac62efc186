"""Parallel training equals one rank, in every legal combination; mistakes are noticed.

On six and eight ranks each layout combines what fewer ranks have, too: make soak runs them.
"""

from pathlib import Path

import pytest

WORKER = Path(__file__).with_name("hybrid_worker.py")


@pytest.mark.parametrize("ranks", [1, 2, 3, pytest.param(4, marks=pytest.mark.slow)])
def test_every_kind_of_parallelism_equals_one_rank(run_ranks, ranks):
    assert "all right" in run_ranks(ranks, WORKER)


def test_ranks_with_unequal_parts_equal_one_rank(run_ranks):
    assert "all right" in run_ranks(8, WORKER, "uneven_shares")


@pytest.mark.soak
@pytest.mark.parametrize("ranks", [6, 8])
def test_more_ranks_equal_one_rank(run_ranks, ranks):
    assert "all right" in run_ranks(ranks, WORKER)
