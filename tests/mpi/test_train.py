"""Training on any number of ranks equals training on one: weights and losses, for every option.

Six and eight ranks have the options of four; their messages are those of test_execute.py. make soak runs them.
"""

from pathlib import Path

import pytest

WORKER = Path(__file__).with_name("train_worker.py")

MORE = [pytest.param(ranks, marks=pytest.mark.soak) for ranks in (6, 8)]


@pytest.mark.parametrize("ranks", [1, 2, 3, 4, *MORE])
def test_any_number_of_ranks_equals_one(run_ranks, ranks):
    assert "all right" in run_ranks(ranks, WORKER)
