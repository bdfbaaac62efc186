"""The terms of a coupled workflow add up on every rank, and each row counts where it belongs."""

import pytest

from lib_dlhpc.timeline import from_rows
from lib_dlhpc.timeline.coupled import TERMS, coupled_terms, mean_terms

ROWS = [
    (0, "compute", "region", "simulate", 0.0, 3.0),
    (0, "compute", "wait", "exchange rows", 3.0, 3.5),
    (0, "compute", "wait", "wait for room", 3.5, 4.0),
    (0, "communication", "send", "MPI_Isend", 3.9, 4.0),
    (0, "compute", "wait", "all done", 4.0, 10.0),
    (1, "compute", "region", "something else", 0.0, 1.0),
    (1, "compute", "wait", "wait for samples", 1.0, 5.0),
    (1, "compute", "input", "fetch the batch", 5.0, 5.25),
    (1, "compute", "forward", "forward", 5.25, 6.0),
    (1, "compute", "backward", "backward", 6.0, 7.0),
    (1, "compute", "wait", "wait for the exchange", 7.0, 8.0),
    (1, "compute", "update", "update", 8.0, 9.0),
]


def test_each_row_counts_where_it_belongs():
    terms = coupled_terms(from_rows(ROWS, 2, "measured"))
    found = {name: terms[name].tolist() for name in TERMS}
    assert found == {
        "simulate": [3.0, 0.0],
        "train": [0.0, 3.0],
        "exchange": [0.5, 1.0],
        "wait for samples": [0.0, 4.0],
        "wait for room": [0.5, 0.0],
        "idle": [6.0, 2.0],
    }


@pytest.mark.parametrize("seconds", [0.0, 12.0])
def test_terms_add_up_to_the_run(seconds):
    timeline = from_rows(ROWS, 2, "measured")
    assert sum(mean_terms(timeline, seconds).values()) == pytest.approx(max(seconds, 10.0))


def test_an_empty_table_has_no_time():
    assert set(mean_terms(from_rows([], 2, "measured")).values()) == {0.0}
