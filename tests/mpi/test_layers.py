"""Layers that communicate, and parts of layers, equal the full layer on any number of ranks."""

from pathlib import Path

import pytest

WORKER = Path(__file__).with_name("layers_worker.py")


@pytest.mark.parametrize("ranks", [1, 2, 3, pytest.param(4, marks=pytest.mark.slow)])
def test_parts_equal_the_whole(run_ranks, ranks):
    assert "all right" in run_ranks(ranks, WORKER)
