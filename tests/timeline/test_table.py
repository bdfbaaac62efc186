"""Laws of the event table: rows in, the same rows out, whichever way; mistakes are named."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lib_dlhpc import SpecError
from lib_dlhpc.timeline import KINDS, STREAMS, Event, columns, from_rows, join

TIMES = st.floats(0, 1e6)


@st.composite
def events(draw, ranks=5, most=30):
    start, length = draw(TIMES), draw(TIMES)
    return Event(
        draw(st.integers(0, ranks - 1)),
        draw(st.sampled_from(STREAMS)),
        draw(st.sampled_from(KINDS)),
        draw(st.sampled_from(["a", "b", "conv 1"])),
        start,
        start + length,
        draw(st.integers(0, 2**60)),
        draw(st.integers(-1, ranks - 1)),
        draw(st.integers(0, 2**31 - 1)),
        draw(st.integers(-1, 2**62)),
    )


@given(st.lists(events(), max_size=30))
def test_rows_come_back_as_they_were(rows):
    assert list(from_rows(rows, 5, "simulated")) == rows


@given(st.lists(events(), max_size=30))
def test_sorting_keeps_all_rows_by_rank_then_start(rows):
    table = from_rows(rows, 5, "simulated").sorted()
    assert list(table) == sorted(rows, key=lambda row: (row.rank, row.start))


@given(st.lists(st.lists(events(), max_size=10), min_size=1, max_size=4))
def test_joined_parts_are_all_their_rows(parts):
    joined = join([from_rows(part, 5, "simulated") for part in parts])
    assert list(joined) == [row for part in parts for row in part]


def test_columns_broadcast():
    table = columns(
        rank=np.arange(3),
        stream="compute",
        kind="backward",
        name=np.array([[0], [1]]),
        start=np.array([[0.0], [1.0]]),
        stop=np.array([[1.0], [2.0]]) + np.arange(3),
        names=["last", "first"],
        ranks=3,
        source="simulated",
    )
    expected = [
        Event(rank, "compute", "backward", name, start, start + 1 + rank)
        for start, name in ((0.0, "last"), (1.0, "first"))
        for rank in range(3)
    ]
    assert list(table) == expected
    assert len(table.select(table.where("compute", "backward", "update"))) == 6
    assert not table.where("compute", "update").any() and not table.where("input").any()


@pytest.mark.parametrize(
    ("row", "words"),
    [
        ((0, "compute", "forward", "f", 2.0, 1.0), r"f, rank 0 of 2, 2 s to 1 s\) ends before"),
        ((0, "compute", "forward", "f", 2.0, float("nan")), "ends before"),
        ((2, "compute", "forward", "f", 0.0, 1.0), "rank 2 of 2.*no such rank"),
        ((0, "computer", "forward", "f", 0.0, 1.0), "Did you mean 'compute'"),
        ((0, "compute", "foward", "f", 0.0, 1.0), "Did you mean 'forward'"),
    ],
)
def test_a_row_that_cannot_be_is_named(row, words):
    with pytest.raises(SpecError, match=words):
        from_rows([row], 2, "simulated")
