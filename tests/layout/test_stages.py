"""A pipeline is cut within the memory of a device, if any cut fits."""

import tracemalloc

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lib_dlhpc.layout.stages import DeviceBudget, cut_that_fits, cut_without_limit


@given(
    st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), min_size=2, max_size=12),
    st.lists(st.integers(1, 4), min_size=1, max_size=6),
    st.integers(0, 80),
)
def test_stages_that_reach_as_far_as_they_can_are_those_that_fit(layers, in_flight, memory):
    room = object.__new__(DeviceBudget)
    room.states, room.keeps = np.cumsum([(0, 0), *layers], axis=0, dtype=float).T
    room.in_flight, room.room = np.array(in_flight, float), float(memory)
    at = 0
    for stage in room.fits:
        at = int(np.flatnonzero(stage[at])[-1])
    assert room.reaches_the_end == (at == len(layers))


@pytest.mark.parametrize("equals", [True, False])
def test_without_a_limit_the_cut_is_that_of_a_memory_in_which_all_fits(equals):
    random = np.random.default_rng(8)
    for _ in range(400):
        edges = int(random.integers(2, 16))
        layers = random.integers(0, 4, edges - 1) if equals else random.random(edges - 1)
        work, stages = np.cumsum([0.0, *layers]), int(random.integers(1, edges))
        everywhere = [np.ones((edges, edges), dtype=bool)] * stages
        assert cut_without_limit(work, stages) == cut_that_fits(work, stages, everywhere), (
            work,
            stages,
        )


def test_what_fits_takes_memory_for_unlike_stages_only():
    """A chunk of a rank has as many microbatches in flight as its others."""
    room = object.__new__(DeviceBudget)
    room.states, room.keeps = np.arange(300.0), np.zeros(300)
    room.in_flight, room.room = np.tile(np.arange(8.0), 16), 9.0
    tracemalloc.start()
    fits = room.fits
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert len(fits) == 128 and peak < 5e6
