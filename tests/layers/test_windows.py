"""Laws of windows: a tap is its definition, and blocks partition the outputs."""

from itertools import product

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from lib_dlhpc.layers.base.windows import blocks, taps, whole


@st.composite
def windows(draw):
    dimensions = draw(st.integers(1, 3))
    kernel = [draw(st.integers(1, 4)) for _ in range(dimensions)]
    padding = [draw(st.integers(0, width // 2)) for width in kernel]
    least = [max(1, width - 2 * pad) for width, pad in zip(kernel, padding, strict=True)]
    space = tuple(draw(st.integers(low, low + 4)) for low in least)
    stride = [draw(st.integers(1, 3)) for _ in range(dimensions)]
    return space, {"kernel": kernel, "stride": stride, "padding": padding}


def outputs(space, window):
    sizes = zip(space, window["kernel"], window["stride"], window["padding"], strict=True)
    return tuple((extent + 2 * pad - width) // step + 1 for extent, width, step, pad in sizes)


@given(windows(), st.integers(1, 30))
def test_a_tap_is_its_definition_in_every_block(drawn, most):
    space, window = drawn
    output = outputs(space, window)
    numbers = np.arange(1, np.prod(space) + 1).reshape(1, *space)
    for block in blocks(output, most):
        for tap in taps(space, block, window):
            place = np.unravel_index(tap.number, window["kernel"])
            column = np.full((1, *(part.stop - part.start for part in block)), -1)
            column[tap.here] = numbers[tap.there]
            assert np.all(column[tap.here] > 0)
            inside = column > 0
            for border in tap.border:
                assert not inside[border].any()
                column[border] = 0
            for o in product(*(range(part.start, part.stop) for part in block)):
                read = tuple(np.array(o) * window["stride"] + place - window["padding"])
                within = all(0 <= r < extent for r, extent in zip(read, space, strict=True))
                here = tuple(p - part.start for p, part in zip(o, block, strict=True))
                assert column[(0, *here)] == (numbers[(0, *read)] if within else 0)


@given(st.lists(st.integers(1, 7), min_size=1, max_size=3), st.integers(0, 60))
def test_blocks_cut_the_outputs_in_order_and_each_in_one_piece(output, most):
    places = np.arange(np.prod(output)).reshape(output)
    found = [places[block].ravel() for block in blocks(tuple(output), most)]
    np.testing.assert_array_equal(np.concatenate(found), places.ravel())
    assert all(len(part) < 2 * max(1, most) for part in found)  # pieces of whole rows, of one size
    np.testing.assert_array_equal(places[whole(tuple(output))], places)
