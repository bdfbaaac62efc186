"""Laws of matching: what was sent nth is received by who was posted nth, in whatever order the rows lie."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from lib_dlhpc.timeline.collecting import END
from lib_dlhpc.timeline.matching import match_collectives, match_messages

LANE = st.tuples(st.integers(0, 2), st.integers(0, 3), st.integers(0, 3), st.sampled_from([0, 7]))


def ends(rows):
    return np.array([tuple(row) for row in rows], END)


@given(st.lists(LANE, max_size=30), st.randoms(use_true_random=False), st.integers(0, 5))
def test_messages_on_one_lane_never_overtake_each_other(lanes, random, missing):
    """The kth message on each lane (communicator, source, target, tag) is the kth received there."""
    send = [(*lane, 10 * time) for time, lane in enumerate(lanes)]
    receive = [(*lane, 10 * time + 5) for time, lane in enumerate(lanes)]
    send_order = random.sample(range(len(lanes)), len(lanes))
    receive_order = random.sample(range(len(lanes)), len(lanes))
    one, other = match_messages(
        ends(send[i] for i in send_order), ends(receive[i] for i in receive_order)
    )
    pairs = {(send_order[i], receive_order[j]) for i, j in zip(one, other, strict=True)}
    assert pairs == {(i, i) for i in range(len(lanes))}
    cut = max(len(lanes) - missing, 0)  # the last receives are lost: their sends match nothing
    one, other = match_messages(ends(send), ends(receive[:cut]))
    assert sorted(zip(one.tolist(), other.tolist(), strict=True)) == [(i, i) for i in range(cut)]


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 2**34)), max_size=20))
def test_calls_of_one_collective_are_those_of_one_communicator_and_count(calls):
    comm, order = np.array(calls, np.int64).reshape(-1, 2).T
    number = match_collectives(comm, order).tolist()
    assert len(set(number)) == len(set(calls))
    assert len(set(zip(number, calls, strict=True))) == len(set(calls))
