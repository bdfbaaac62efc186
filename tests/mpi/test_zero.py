"""ZeRO replicas have the sums of their shards, however a bucket is split into pieces."""

from pathlib import Path

import pytest

WORKER = Path(__file__).with_name("zero_worker.py")


@pytest.mark.parametrize("ranks", [1, 2, 3])
def test_each_rank_has_the_sums_of_its_shard(run_ranks, ranks):
    assert "all right" in run_ranks(ranks, WORKER)
