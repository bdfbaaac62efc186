"""Versions of runs on real ranks: any layout resumes from any version, the same ranks bitwise."""

from pathlib import Path

import pytest

WORKER = Path(__file__).with_name("versions_worker.py")


@pytest.mark.parametrize("ranks", [1, 2, 3, pytest.param(4, marks=pytest.mark.slow)])
def test_versions_are_restored_by_any_ranks(run_ranks, ranks):
    assert "all right" in run_ranks(ranks, WORKER)
