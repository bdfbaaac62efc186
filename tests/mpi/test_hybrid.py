"""Parallel training equals one rank, in every legal combination; mistakes are noticed.

Eight ranks have layouts of three kinds at once. On six each combines what fewer ranks have: make soak runs them.
"""

from pathlib import Path

import pytest

WORKER = Path(__file__).with_name("hybrid_worker.py")
MANY = [pytest.param(ranks, marks=pytest.mark.slow) for ranks in (4, 8)]


@pytest.mark.parametrize("ranks", [1, 2, 3, *MANY, pytest.param(6, marks=pytest.mark.soak)])
def test_every_kind_of_parallelism_equals_one_rank(run_ranks, ranks):
    assert "all right" in run_ranks(ranks, WORKER)


def test_ranks_with_unequal_parts_equal_one_rank(run_ranks):
    assert "all right" in run_ranks(8, WORKER, "uneven_shares")
