"""Offset assignment: arrays live at the same time do not overlap, and the arena is small."""

from hypothesis import given
from hypothesis import strategies as st

from lib_dlhpc.layers.base.arena_plan import LINE, Lifetime, assign_offsets

TIMES = st.tuples(st.integers(0, 9), st.integers(1, 9)).map(lambda pair: (pair[0], sum(pair)))
LIVES = st.lists(st.builds(lambda size, times: Lifetime(size, *times), st.integers(1, 999), TIMES))


def together(one, other):
    return one.born < other.died and other.born < one.died


@given(LIVES)
def test_arrays_live_at_the_same_time_do_not_overlap(lifetimes):
    starts, length = assign_offsets(lifetimes)
    for number, (start, lifetime) in enumerate(zip(starts, lifetimes, strict=True)):
        assert start % LINE == 0 and start >= 0 and start + lifetime.size <= length
        for begin, other in zip(starts[:number], lifetimes[:number], strict=True):
            apart = begin + other.size <= start or start + lifetime.size <= begin
            assert apart or not together(lifetime, other)


def rounded(lifetime):
    return -(-lifetime.size // LINE) * LINE


@given(LIVES)
def test_the_arena_is_at_least_the_peak_and_at_most_the_sum(lifetimes):
    most = max(
        (
            sum(
                rounded(lifetime) for lifetime in lifetimes if lifetime.born <= time < lifetime.died
            )
            for time in range(20)
        ),
        default=0,
    )
    assert most <= assign_offsets(lifetimes)[1] <= sum(map(rounded, lifetimes))


@given(st.lists(st.integers(1, 999), min_size=1))
def test_last_in_first_out_lifetimes_need_no_more_than_the_peak(sizes):
    """As for the activations of a chain of layers."""
    lifetimes = [Lifetime(size, at, 2 * len(sizes) - at) for at, size in enumerate(sizes)]
    assert assign_offsets(lifetimes)[1] == sum(map(rounded, lifetimes))


def test_an_array_fills_the_smallest_gap_that_fits():
    long, gap = [Lifetime(9 * LINE, 0, 9), Lifetime(8 * LINE, 0, 9)], Lifetime(7 * LINE, 0, 1)
    (*_, inside), length = assign_offsets(
        [*long, gap, Lifetime(6 * LINE, 0, 9), Lifetime(LINE, 3, 4)]
    )
    assert (inside, length) == (17 * LINE, 30 * LINE)
