"""Laws of memory that is used again: never two owners at once, and no more blocks than the most at once."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from lib_dlhpc.train.layers import room
from lib_dlhpc.train.layers.room import SMALL, Room


@given(st.lists(st.tuples(st.integers(0, 4), st.integers(1, 6), st.booleans()), max_size=40))
def test_no_two_arrays_share_memory_while_both_are_in_use(asked):
    one, in_use = Room(), {}
    for name, size, flat in asked:
        shape = (size * SMALL // 4,) if flat else (size, SMALL // 4)
        array = one.array(shape, np.float32)
        assert array.shape == shape and array.dtype == np.float32
        assert not any(np.shares_memory(array, other) for other in in_use.values())
        in_use[name] = array.T[1:] if not flat else array.reshape(2, -1)[1]  # a view keeps it
        del array


def test_memory_that_nobody_looks_at_is_used_again():
    one = Room()
    first = one.array((SMALL,), np.float32)
    place, view = first.ctypes.data, first[3:5]
    del first
    assert one.array((SMALL,), np.float32).ctypes.data != place  # the view still looks at it
    del view
    found = {one.array((SMALL,), np.int8).ctypes.data for _ in range(3)}
    assert len(found) == 1  # a quarter of the size is too little for either block
    assert one.array((SMALL // 2, 2), np.float32).ctypes.data == place


def test_a_block_of_more_than_twice_the_size_is_left_for_larger_arrays():
    one = Room()
    place = one.array((4, SMALL), np.int8).ctypes.data
    assert one.array((2, SMALL), np.int8).ctypes.data == place
    assert one.array((1, SMALL), np.int8).ctypes.data != place


def test_the_law_finds_a_room_that_gives_away_what_is_in_use(monkeypatch):
    monkeypatch.setattr(room, "getrefcount", lambda block: 2)
    one = Room()
    first, second = (one.array((SMALL,), np.float32) for _ in range(2))
    assert np.shares_memory(first, second)
