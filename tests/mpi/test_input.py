"""Ranks that read their samples from storage train as those that have them in memory."""

from pathlib import Path

import pytest

WORKER = Path(__file__).with_name("input_worker.py")


@pytest.mark.parametrize("ranks", [2, pytest.param(4, marks=pytest.mark.slow)])
def test_ranks_that_read_are_those_that_have_the_samples(run_ranks, ranks):
    assert "all right" in run_ranks(ranks, WORKER)
