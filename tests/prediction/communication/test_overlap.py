"""Laws of overlap: the closed form is the queue, bounds hold."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from lib_dlhpc.prediction.communication.overlap import exposed_time

SECONDS = st.floats(0, 10)


def queue(ready, cost, backward):
    """Play the exchange event by event: one bucket on the network at a time, in order."""
    free = 0.0
    for at, takes in zip(ready, cost, strict=True):
        free = max(free, at) + takes
    return max(free - backward, 0.0)


@given(st.lists(st.tuples(SECONDS, SECONDS), min_size=1, max_size=20), SECONDS)
def test_exposed_time_is_the_queue_played_out(pairs, extra):
    ready = np.cumsum([gap for gap, _ in pairs])
    cost = np.array([takes for _, takes in pairs])
    backward = ready[-1] + extra
    exposed = exposed_time(ready, cost, backward)
    assert exposed == pytest.approx(queue(ready, cost, backward), rel=1e-12, abs=1e-12)
    assert 0 <= exposed <= cost.sum() + 1e-12
    assert exposed >= cost.sum() - backward - 1e-12
    if extra == 0:
        assert exposed >= cost[-1] - 1e-12


@given(
    st.lists(st.tuples(SECONDS, SECONDS), min_size=1, max_size=20), st.floats(0, 1), st.floats(0, 1)
)
def test_a_faster_network_never_exposes_more(pairs, factor, part):
    ready = np.cumsum([gap for gap, _ in pairs])
    cost = np.array([takes for _, takes in pairs])
    before = exposed_time(ready, cost, ready[-1])
    assert exposed_time(ready, cost * factor, ready[-1]) <= before + 1e-12
    one = cost.copy()
    one[int(part * (len(one) - 1))] *= factor
    assert exposed_time(ready, one, ready[-1]) <= before + 1e-12


@given(arrays(float, (3, 5), elements=SECONDS), arrays(float, (3, 5), elements=SECONDS))
def test_rows_are_runs_of_their_own(gaps, cost):
    ready = np.cumsum(gaps, axis=-1)
    whole = exposed_time(ready, cost, ready[:, -1])
    for row in range(3):
        assert whole[row] == exposed_time(ready[row], cost[row], ready[row, -1])
