"""Laws of what a timeline says: causes add up, by hand and against a clock that ticks."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lib_dlhpc.timeline import breakdown, critical_path, exposed, from_rows, idle, span, waits

# Rank 1 computes twice as long as rank 0; the exchange begins when both have joined, and takes 3 s.
STEP = [
    (0, "compute", "forward", "forward", 0.0, 2.0),
    (0, "compute", "backward", "backward", 2.0, 6.0),
    (0, "communication", "communication", "bucket", 5.0, 13.0),
    (0, "compute", "wait", "wait", 6.0, 13.0),
    (0, "compute", "update", "update", 13.0, 14.0),
    (0, "compute", "input", "input", 14.0, 20.0),
    (1, "compute", "forward", "forward", 0.0, 4.0),
    (1, "compute", "backward", "backward", 4.0, 10.0),
    (1, "communication", "communication", "bucket", 10.0, 13.0),
    (1, "compute", "wait", "wait", 10.0, 13.0),
    (1, "compute", "update", "update", 13.0, 15.0),
    (1, "compute", "input", "input", 15.0, 20.0),
]


def after(rows, seconds):
    return [(*row[:4], row[4] + seconds, row[5] + seconds, *row[6:]) for row in rows]


@pytest.mark.parametrize("steps", [1, 2, 5])
def test_a_step_by_hand(steps):
    rows = [row for k in range(steps) for row in after(STEP, 20.0 * k)]
    table = from_rows(rows, 2, "simulated")
    found = breakdown(table)
    assert (found.steps, found.step_time, found.slowest) == (steps, 20.0, 1)
    expected = {
        "forward": [2, 4],
        "backward": [4, 6],
        "update": [1, 2],
        "waiting for the slowest": [5, 0],
        "exposed communication": [3, 3],
        "pipeline bubble": [0, 0],
        "input stall": [5, 5],
        "checkpoint": [0, 0],
    }
    for name, seconds in expected.items():
        np.testing.assert_allclose(found.per_rank[name], seconds)
        assert found.terms[name] == pytest.approx(np.mean(seconds))
        assert found.slowest_terms[name] == pytest.approx(seconds[1])
    np.testing.assert_allclose(exposed(table), np.array([7.0, 3.0]) * steps)
    np.testing.assert_allclose(idle(table), np.array([13.0, 8.0]) * steps)
    np.testing.assert_allclose(waits(table), np.array([13.0, 8.0]) * steps)


def test_the_critical_path_goes_back_to_the_last_to_join():
    table = from_rows(STEP + after(STEP, 20.0), 2, "simulated")
    path = critical_path(table)
    one = ["forward", "backward", "bucket", "update", "input"]
    assert [event.name for event in path] == one * 2
    first = [event.rank for event in path][:3]
    assert first[:2] == [1, 1], "rank 1 joined last"
    assert (path.stop - path.start).sum() == span(table) == 40.0
    assert (path.start[1:] == path.stop[:-1]).all()


def test_messages_are_detail_that_no_measure_counts_twice():
    """Rank 0 sends in two pieces while it has joined, rank 1 in one; both have to wait all the same."""
    sent = [
        (0, "communication", "communication", "round 0", 10.0, 11.0, 8, 1),
        (0, "communication", "communication", "round 1", 11.5, 13.0, 8, 1),
        (1, "communication", "communication", "round 0", 10.0, 12.0, 8, 0),
    ]
    plain, full = from_rows(STEP, 2, "simulated"), from_rows([*STEP, *sent], 2, "simulated")
    assert list(critical_path(full)) == list(critical_path(plain))
    for measure in (exposed, idle, waits):
        np.testing.assert_array_equal(measure(full), measure(plain))
    assert span(full) == span(plain)
    assert breakdown(full).terms == breakdown(plain).terms


def test_messages_alone_are_exposed_where_nothing_is_computed():
    rows = [
        (0, "compute", "forward", "forward", 0.0, 2.0),
        (0, "communication", "communication", "activation", 1.0, 4.0, 8, 1),
    ]
    np.testing.assert_array_equal(exposed(from_rows(rows, 2, "simulated")), [2.0, 0.0])


def test_the_critical_path_of_nothing_is_nothing():
    assert len(critical_path(from_rows([], 3, "simulated"))) == 0
    assert span(from_rows([], 3, "simulated")) == 0


@given(
    st.lists(
        st.tuples(
            st.integers(0, 2),
            st.sampled_from([("compute", "forward"), ("compute", "wait")])
            | st.just(("communication", "communication")),
            st.integers(0, 30),
            st.integers(0, 10),
        ),
        min_size=1,
        max_size=20,
    )
)
def test_times_are_the_ticks_of_a_clock(drawn):
    """Whole seconds, counted one by one: is anything computing, is anything on the network?"""
    rows = [(rank, *what, "x", float(at), float(at + long)) for rank, what, at, long in drawn]
    table = from_rows(rows, 3, "simulated")
    ticks = np.zeros((2, 3, 50), bool)
    for rank, (stream, kind), at, long in drawn:
        if kind != "wait":
            ticks[int(stream == "communication"), rank, at : at + long] = True
    working, talking = ticks
    np.testing.assert_allclose(exposed(table), (talking & ~working).sum(axis=1))
    begin, end = min(row[4] for row in rows), max(row[5] for row in rows)
    np.testing.assert_allclose(idle(table), end - begin - working.sum(axis=1))


def test_a_critical_path_goes_back_in_time_only():
    """Exchanges of the same name are not one exchange where their times differ: here they would lead in a circle."""
    talk = ("communication", "communication")
    rows = [(0, *talk, "x", 0.0, 1.0), (1, *talk, "y", 1.0, 2.0), (1, *talk, "x", 2.0, 3.0)]
    rows += [(0, *talk, "y", 3.0, 4.0), (0, "compute", "update", "update", 4.0, 5.0)]
    path = critical_path(from_rows(rows, 2, "simulated"))
    assert path.start.tolist() == sorted(set(path.start.tolist())) and path.stop[-1] == 5.0


def test_a_match_tells_exchanges_of_one_name_apart():
    talk = ("communication", "communication", "sum")
    rows = [(0, "compute", "forward", "a", 0.0, 1.0), (1, "compute", "forward", "a", 0.0, 2.0)]
    rows += [(2, "compute", "forward", "a", 0.0, 2.5)]
    rows += [(rank, *talk, 1.0 + rank, 3.0, 0, -1, 1, 7) for rank in (0, 1)]
    rows += [(2, *talk, 2.5, 2.75, 0, -1, 2, 8)]
    path = critical_path(from_rows(rows, 3, "simulated"))
    assert [(event.rank, event.start, event.stop) for event in path] == [
        (1, 0.0, 2.0),
        (0, 2.0, 3.0),
    ]
