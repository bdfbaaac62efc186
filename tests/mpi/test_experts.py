"""Mixtures of experts trained over ranks equal one rank, sharded in every way; mistakes are noticed."""

from pathlib import Path

import pytest

WORKER = Path(__file__).with_name("experts_worker.py")


@pytest.mark.parametrize("ranks", [1, 2, 4, pytest.param(8, marks=pytest.mark.slow)])
def test_experts_on_any_ranks_equal_one_rank(run_ranks, ranks):
    assert "all right" in run_ranks(ranks, WORKER)
