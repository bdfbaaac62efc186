"""Training on any number of ranks equals training on one: weights and losses, for every option."""

from pathlib import Path

import pytest

WORKER = Path(__file__).with_name("train_worker.py")


MANY = [pytest.param(ranks, marks=pytest.mark.slow) for ranks in (4, 6, 8)]


@pytest.mark.parametrize("ranks", [1, 2, 3, *MANY])
def test_any_number_of_ranks_equals_one(run_ranks, ranks):
    assert "all right" in run_ranks(ranks, WORKER)
