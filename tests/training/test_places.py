"""Laws of places: who lives at the same time lies apart, and the stretch is no longer than it must be."""

from hypothesis import given
from hypothesis import strategies as st

from lib_dlhpc.training.layers.places import LINE, Life, places

TIMES = st.tuples(st.integers(0, 9), st.integers(1, 9)).map(lambda pair: (pair[0], sum(pair)))
LIVES = st.lists(st.builds(lambda size, times: Life(size, *times), st.integers(1, 999), TIMES))


def together(one, other):
    return one.born < other.died and other.born < one.died


@given(LIVES)
def test_who_lives_at_the_same_time_lies_apart(lives):
    starts, length = places(lives)
    for number, (start, life) in enumerate(zip(starts, lives, strict=True)):
        assert start % LINE == 0 and start >= 0 and start + life.size <= length
        for begin, other in zip(starts[:number], lives[:number], strict=True):
            apart = begin + other.size <= start or start + life.size <= begin
            assert apart or not together(life, other)


def rounded(life):
    return -(-life.size // LINE) * LINE


@given(LIVES)
def test_the_stretch_is_at_least_what_lives_at_once_and_at_most_everything(lives):
    most = max((sum(rounded(life) for life in lives if life.born <= time < life.died)
                for time in range(20)), default=0)  # fmt: skip
    assert most <= places(lives)[1] <= sum(map(rounded, lives))


@given(st.lists(st.integers(1, 999), min_size=1))
def test_what_is_forgotten_in_the_opposite_order_needs_no_more_than_lives_at_once(sizes):
    """So it is with the activations of a chain of layers."""
    lives = [Life(size, at, 2 * len(sizes) - at) for at, size in enumerate(sizes)]
    assert places(lives)[1] == sum(map(rounded, lives))


def test_an_array_fills_the_smallest_gap_that_takes_it():
    long, gap = [Life(9 * LINE, 0, 9), Life(8 * LINE, 0, 9)], Life(7 * LINE, 0, 1)
    (*_, inside), length = places([*long, gap, Life(6 * LINE, 0, 9), Life(LINE, 3, 4)])
    assert (inside, length) == (17 * LINE, 30 * LINE)
