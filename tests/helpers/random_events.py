"""Random events, for property tests of the table and its files."""

from hypothesis import strategies as st

from lib_dlhpc.timeline import KINDS, STREAMS, Event

TIMES = st.floats(0, 1e6)


@st.composite
def events(draw, ranks=5, times=TIMES, sizes=2**60):
    start, length = draw(times), draw(times)
    return Event(
        draw(st.integers(0, ranks - 1)),
        draw(st.sampled_from(STREAMS)),
        draw(st.sampled_from(KINDS)),
        draw(st.sampled_from(["a", "b", "conv 1"])),
        start,
        start + length,
        draw(st.integers(0, sizes)),
        draw(st.integers(-1, ranks - 1)),
        draw(st.integers(0, 2**31 - 1)),
        draw(st.integers(-1, 2**62)),
    )
