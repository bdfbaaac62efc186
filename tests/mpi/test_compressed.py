"""Compressed exchange on real ranks: equal to the same rule in one process, with the bytes that are predicted."""

from pathlib import Path

import pytest

WORKER = Path(__file__).with_name("compressed_worker.py")


@pytest.mark.parametrize("ranks", [2, 3, pytest.param(4, marks=pytest.mark.slow)])
def test_compressed_exchange_is_the_rule_in_one_process(run_ranks, ranks):
    assert "all right" in run_ranks(ranks, WORKER)
