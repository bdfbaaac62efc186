"""Laws of clocks: an offset is found to half of the quickest round trip, drift along a line; one clock stays one."""

import numpy as np
import pytest

from lib_dlhpc.timeline import clocks
from lib_dlhpc.timeline.clocks import offset, on_rank_0

SECOND = 10**9


class Pair:
    """Two ranks' round trips: rank 0's clock is `ahead` of this one's; a message takes some time each way."""

    rank, size = 1, 2

    def __init__(self, monkeypatch, ahead, delays):
        self.time, self.ahead, self.delays = 100 * SECOND, ahead, iter(delays.tolist())
        monkeypatch.setattr(clocks, "perf_counter_ns", lambda: self.time)

    def Sendrecv(self, sent, target, recvbuf, source):
        there, back = next(self.delays)
        self.time += there
        recvbuf[0] = self.time + self.ahead
        self.time += back


@pytest.mark.parametrize("ahead", [12 * SECOND, -3600 * SECOND, 10**7])
def test_the_offset_of_two_clocks_comes_from_the_quickest_round_trip(ahead, monkeypatch):
    delays = (1e6 * np.random.default_rng(0).exponential(1.0, (20, 2)) + 1000).astype(int)
    quickest = delays.sum(axis=1).min()
    assert abs(offset(Pair(monkeypatch, ahead, delays)) - ahead) <= quickest / 2 + 1
    even = np.full((20, 2), 5000)
    assert offset(Pair(monkeypatch, ahead, even)) == ahead


@pytest.mark.parametrize("ahead", [0, 4999, -4999])
def test_clocks_that_round_trips_cannot_tell_apart_are_one(ahead, monkeypatch):
    assert offset(Pair(monkeypatch, ahead, np.full((20, 2), 5000))) == 0


def test_a_clock_drifts_along_a_line_from_one_comparison_to_the_next():
    begin, end = 50 * SECOND, 150 * SECOND
    times = np.array([begin, 100 * SECOND, end])
    assert (on_rank_0(times, []) == times).all()
    assert (on_rank_0(times, [(begin, 7)]) == times + 7).all()
    found = on_rank_0(times, [(begin, SECOND), (end, 3 * SECOND)])
    assert ((found - times) == [SECOND, 2 * SECOND, 3 * SECOND]).all()
    late = 10**16 + np.arange(5)  # a float has no such integers
    assert (on_rank_0(late, [(10**16, 1), (10**16 + 10**9, 2)]) == late + 1).all()
