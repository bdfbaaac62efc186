"""On one lane events lie one after the other or one within the other; a second lane is taken only if need be."""

from itertools import combinations, pairwise

from hypothesis import given
from hypothesis import strategies as st

from lib_dlhpc.timeline import from_rows
from lib_dlhpc.timeline.lanes import in_order, lanes

TICK = st.integers(0, 12)


@st.composite
def tables(draw):
    spans = draw(st.lists(st.tuples(st.integers(0, 1), TICK, TICK), max_size=12))
    rows = [(rank, "compute", "region", "a", float(min(s)), float(max(s))) for rank, *s in spans]
    return from_rows(rows, 2, "measured")


def placed(table):
    table = table.select(in_order(table, table.start, table.stop))
    at = lanes(table, table.start, table.stop).tolist()
    return list(
        zip(table.rank.tolist(), at, table.start.tolist(), table.stop.tolist(), strict=True)
    )


def fits(one, other):
    (start, stop), (begin, end) = one[2:], other[2:]
    apart = stop <= begin or end <= start
    return apart or (start <= begin and end <= stop) or (begin <= start and stop <= end)


@given(tables())
def test_what_shares_a_lane_nests(table):
    for one, other in combinations(placed(table), 2):
        assert one[:2] != other[:2] or fits(one, other)


@given(tables())
def test_a_lane_above_the_first_is_taken_only_by_what_does_not_fit_below(table):
    rows = placed(table)
    for row in rows:
        if row[1]:
            below = [other for other in rows if other[:2] == (row[0], row[1] - 1)]
            assert any(not fits(row, other) for other in below)


@given(st.lists(st.integers(1, 5), max_size=10))
def test_what_is_one_after_the_other_is_on_the_first(lengths):
    edges = [sum(lengths[:n]) for n in range(len(lengths) + 1)]
    rows = [(0, "input", "input", "a", float(a), float(b)) for a, b in pairwise(edges)]
    assert all(lane == 0 for _, lane, *_ in placed(from_rows(rows, 1, "measured")))
