"""A pipeline is cut within the memory of a device, if any cut fits."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from lib_dlhpc.layout.stages import Room


@given(
    st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), min_size=2, max_size=12),
    st.lists(st.integers(1, 4), min_size=1, max_size=6),
    st.integers(0, 80),
)
def test_stages_that_reach_as_far_as_they_can_are_those_that_fit(layers, in_flight, memory):
    room = object.__new__(Room)
    room.states, room.keeps = np.cumsum([(0, 0), *layers], axis=0, dtype=float).T
    room.in_flight, room.room = np.array(in_flight, float), float(memory)
    at = 0
    for stage in room.fits:
        at = int(np.flatnonzero(stage[at])[-1])
    assert room.reaches_the_end == (at == len(layers))
