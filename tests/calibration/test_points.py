"""A point's numbers come from the calmer half of its repeats."""

import os

import pytest

from lib_dlhpc.calibration import other_processes
from lib_dlhpc.calibration.points import Point, as_dicts

SECONDS, SAMPLES = (1.0, 8.0, 2.0, 9.0, 3.0), (1, 1, 2, 1, 1)  # 1, 8, 1, 9, 3 s each


def test_disturbed_repeats_do_not_count():
    point = Point("file", "cold", 2, 4096, SECONDS, SAMPLES, others=(0.1, 2.0, 0.2, 1.9, 0.3))
    assert sorted(point.calm) == [1, 1, 3]
    assert point.quantile(0.5) == 1
    assert point.quantile(1.0) == 3
    assert point.others_load == pytest.approx(0.2)


def test_without_that_knowledge_all_count():
    for unknown in ((), (0.0,) * 5):
        point = Point("file", "cold", 2, 4096, SECONDS, SAMPLES, others=unknown)
        assert sorted(point.calm) == [1, 1, 3, 8, 9]
        assert point.quantile(0.5) == 3
        assert point.others_load == 0


def test_what_a_sample_is_made_of():
    made = {
        what: (point.operations, point.reads, point.bytes)
        for what in ("stat", "open", "file", "random", "sequential", "write")
        for point in [Point(what, "cold", 1, 4096, (1.0,), (1,))]
    }
    assert made == {
        "stat": (1, 0, 0),
        "open": (3, 0, 0),
        "file": (3, 1, 4096),
        "random": (0, 1, 4096),
        "sequential": (0, 1, 4096),
        "write": (0, 0, 4096),
    }


def test_tables_hold_the_spread():
    (table,) = as_dicts([Point("file", "cold", 2, 4096, SECONDS, SAMPLES)])
    assert table["seconds_each"] == pytest.approx({"p10": 1, "p50": 3, "p90": 8.6})
    assert table["operations"] == 3


@pytest.mark.skipif(not other_processes.COUNTERS.exists(), reason="unknown on this system")
def test_the_cores_work_counts_up_with_ours(monkeypatch, tmp_path):
    before, mine = other_processes.busy(), sum(os.times()[:2])
    while sum(os.times()[:2]) < mine + 0.2:
        pass
    assert other_processes.busy() - before >= 0.15  # the system counts in steps of 10 ms
    monkeypatch.setattr(other_processes, "COUNTERS", tmp_path / "none")
    assert other_processes.busy() == 0
