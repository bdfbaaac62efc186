"""Laws of striped files: no bound is beaten, what more targets and larger requests do, where aggregators win."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lib_dlhpc.errors import SpecError
from lib_dlhpc.prediction.storage.striping import Targets, file_per_process, shared_file

TARGETS = st.builds(
    Targets,
    count=st.integers(1, 64),
    bandwidth=st.floats(1e8, 2e10),
    latency=st.floats(0, 1e-2),
    client=st.floats(1e8, 1e10),
)
WRITERS, TRANSFER, SIZE = st.integers(1, 1000), st.floats(1e3, 1e9), 2e12


@given(TARGETS, WRITERS, TRANSFER, st.data())
def test_no_way_beats_all_targets_or_all_writers(on, writers, transfer, data):
    stripe_count = data.draw(st.integers(1, on.count))
    bound = max(SIZE / (on.count * on.bandwidth), SIZE / (writers * on.client))
    for way in (shared_file, file_per_process):
        assert way(SIZE, on, stripe_count, writers, transfer) >= bound * (1 - 1e-9)


@given(TARGETS, WRITERS, TRANSFER, st.data())
def test_more_targets_writers_and_larger_requests_never_slow_a_shared_file(
    on, writers, transfer, data
):
    stripe_count = data.draw(st.integers(1, on.count))
    now = shared_file(SIZE, on, stripe_count, writers, transfer) * (1 + 1e-9)
    assert shared_file(SIZE, on, on.count, writers, transfer) <= now
    assert shared_file(SIZE, on, stripe_count, writers + 1, transfer) <= now
    assert shared_file(SIZE, on, stripe_count, writers, 2 * transfer) <= now


@given(TARGETS, st.integers(1, 20), TRANSFER)
def test_files_that_fill_all_targets_alike_are_as_fast_as_one_over_all(on, times, transfer):
    writers = times * on.count
    one = shared_file(SIZE, on, on.count, writers, transfer)
    assert math.isclose(file_per_process(SIZE, on, 1, writers, transfer), one, rel_tol=1e-9)


def test_a_file_more_than_targets_takes_almost_twice_as_long():
    on = Targets(64, 5e9, 0.0, 1e12)
    even, odd = (file_per_process(SIZE, on, 1, writers, 1e9) for writers in (64, 65))
    assert odd / even == pytest.approx(2 * 64 / 65)


def test_without_latency_requests_may_be_small():
    on = Targets(8, 1e9, 0.0, 1e9)
    assert on.rank_rate(1.0) == pytest.approx(on.client)
    assert Targets(8, 1e9, 1e-3, 1e9).rank_rate(1e6) == pytest.approx(0.5e9)


@pytest.mark.parametrize(
    ("stripe_count", "writers", "transfer", "words"),
    [
        (0, 1, 1.0, "expected 1 to 4"),
        (5, 1, 1.0, "expected 1 to 4"),
        (1, 0, 1.0, "at least 1"),
        (1, 1, 0.0, "above 0"),
    ],
)
def test_what_cannot_be_is_refused(stripe_count, writers, transfer, words):
    with pytest.raises(SpecError, match=words):
        shared_file(1.0, Targets(4, 1.0, 1.0, 1.0), stripe_count, writers, transfer)
