"""Every algorithm on real ranks gives numpy's result: exact for integers, to rounding for floats."""

from pathlib import Path

import pytest

WORKER = Path(__file__).with_name("execute_worker.py")


@pytest.mark.parametrize("ranks", [1, 2, 3, 4, 6, 8])
def test_every_algorithm_gives_numpys_result(run_ranks, ranks):
    assert "all right" in run_ranks(ranks, WORKER)


@pytest.mark.parametrize("ranks", [2, 3])
def test_an_allreduce_that_was_added_is_executed_and_trains(run_ranks, ranks):
    assert "all right" in run_ranks(ranks, WORKER.with_name("added_worker.py"))
