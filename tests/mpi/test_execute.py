"""Every algorithm on real ranks gives numpy's result: exact for integers, to rounding for floats."""

from pathlib import Path

import pytest

WORKER = Path(__file__).with_name("execute_worker.py")


@pytest.mark.parametrize("ranks", [1, 2, 3, 4, 6, 8])
def test_every_algorithm_gives_numpys_result(run_ranks, ranks):
    assert "all right" in run_ranks(ranks, WORKER)
