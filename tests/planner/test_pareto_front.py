"""The front has every point that no other is better than, and no other."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from lib_dlhpc.planner.pareto_front import difference, front, knee

POINTS = st.lists(
    st.tuples(st.integers(0, 6), st.integers(0, 6), st.integers(0, 6)), min_size=1, max_size=30
)


@given(POINTS)
def test_the_front_is_what_nothing_dominates(points):
    values = np.array(points, float)
    rows = front(values)
    best = {
        p
        for p in points
        if not any(q != p and all(a <= b for a, b in zip(q, p, strict=True)) for q in points)
    }
    assert sorted(points[row] for row in rows) == sorted(best)
    assert [points[row][0] for row in rows] == sorted(points[row][0] for row in rows)


def test_the_knee_is_where_a_curve_bends():
    assert knee(np.array([[0.0, 10.0], [1.0, 1.0], [10.0, 0.0]])) == 1
    assert difference({"strategy.zero": 0, "a": 1}, {"strategy.zero": 1, "a": 1}) == "zero 0 → 1"
    limited = {"strategy.power_limit": 0}, {"strategy.power_limit": 250.0}
    assert difference(*limited) == "power limit none → 250 W"
