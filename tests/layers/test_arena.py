"""The arena: memory never has two owners at once, and no more than the peak of the first pass."""

import tracemalloc
from weakref import ref

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lib_dlhpc.layers.base import arena
from lib_dlhpc.layers.base.arena import SMALL, Arena

# A pass: a name takes a new array and so releases its old one.
PASS = st.lists(st.tuples(st.integers(0, 4), st.integers(1, 6), st.booleans()), max_size=20)


def simulate(one, asked, in_use):
    for name, size, flat in asked:
        shape = (size * SMALL // 4,) if flat else (size, SMALL // 4)
        array = one.array(shape, np.float32)
        assert array.shape == shape and array.dtype == np.float32
        assert not any(np.shares_memory(array, other) for other in in_use.values())
        in_use[name] = array.T[1:] if not flat else array.reshape(2, -1)[1]  # a view keeps it alive
        del array


@given(st.lists(st.tuples(st.integers(0, 2), PASS, st.booleans()), max_size=8))
def test_no_two_arrays_share_memory_while_both_are_in_use(passes):
    """Whatever a pass allocates, like the previous one with its key or not, and whatever stays alive."""
    one, in_use = Arena(), {}
    for key, asked, forgets in passes:
        one.begin(key)
        simulate(one, asked, in_use)
        if forgets:
            in_use.clear()


def passes(one, *sizes, key="key"):
    """Allocate arrays, release each before the next but one; return their addresses."""
    one.begin(key)
    found, before = [], None
    for size in sizes:
        array = one.array((size,), np.int8)
        found.append(array.ctypes.data)
        before = array  # noqa: F841
    return found


def test_each_pass_reuses_the_same_memory():
    one = Arena()
    passes(one, SMALL, SMALL, SMALL)
    found = passes(one, SMALL, SMALL, SMALL)
    assert found[0] == found[2] != found[1]
    assert passes(one, SMALL, SMALL, SMALL) == found


def test_an_array_in_use_is_unchanged_and_so_is_the_plan():
    one = Arena()
    passes(one, SMALL)
    one.begin("key")
    view = one.array((SMALL,), np.int8)[3:5]
    view[...] = 7
    one.begin("key")
    other = one.array((SMALL,), np.int8)
    other.fill(0)
    assert view.tolist() == [7, 7]
    place = view.ctypes.data - 3
    del view, other
    assert passes(one, SMALL) == [place]


def test_a_weak_reference_detects_reused_memory():
    one = Arena()
    passes(one, SMALL, SMALL, SMALL)
    one.begin("key")
    array = one.array((SMALL,), np.int8)
    place, lent = array.ctypes.data, ref(array.base)
    assert lent() is array.base
    del array
    one.array((SMALL,), np.int8)
    again = one.array((SMALL,), np.int8)
    assert again.ctypes.data == place and lent() is not again.base


def test_a_pass_that_differs_from_the_plan_is_profiled_again():
    one = Arena()
    passes(one, SMALL)
    passes(one, 2 * SMALL)  # not as planned
    passes(one, 2 * SMALL)  # profiled
    assert passes(one, 2 * SMALL) == passes(one, 2 * SMALL)


@pytest.mark.parametrize(("sizes", "most"), [((9, 9, 9, 9), 18), ((1, 9, 1, 9), 10)])
def test_many_passes_need_the_peak_of_one(sizes, most):
    one, many = Arena(), [size * 32 * SMALL for size in sizes]
    tracemalloc.start()
    for _ in range(3):
        passes(one, *many)
        passes(one, *(size // 2 for size in many), key="smaller")
    assert tracemalloc.get_traced_memory()[1] == pytest.approx(most * 32 * SMALL, rel=0.01)
    tracemalloc.stop()


def test_the_law_detects_an_arena_that_reuses_live_memory(monkeypatch):
    one = Arena()
    passes(one, SMALL, SMALL)
    one.begin("key")
    first = one.array((SMALL,), np.int8)
    monkeypatch.setattr(arena, "getrefcount", lambda block: 2)
    one.begin("key")
    assert np.shares_memory(first, one.array((SMALL,), np.int8))
