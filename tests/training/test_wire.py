"""Formats of the wire: rounding to the nearest, ties to even, in every cast and every sum."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lib_dlhpc.training.wire import FORMATS, from_bf16, to_bf16

FLOATS = st.floats(width=32, allow_nan=False, allow_infinity=False)
EVERY = from_bf16(np.arange(1 << 16, dtype=np.uint16))
FINITE = np.unique(EVERY[np.isfinite(EVERY)].astype(np.float64))


def nearest(value):
    """The bf16 nearest to a number, found by search; of two that are as near, the one whose last bit is 0."""
    at = int(np.searchsorted(FINITE, value))
    around = [float(each) for each in FINITE[max(0, at - 1) : at + 1]]
    apart = [abs(Fraction(each) - Fraction(value)) for each in around]
    close = [each for each, far in zip(around, apart, strict=True) if far == min(apart)]
    even = [each for each in close if not int(np.float32(each).view(np.uint32) >> 16) & 1]
    return (even or close)[0]


def test_every_bf16_is_itself_there_and_back():
    bits = np.arange(1 << 16, dtype=np.uint16)
    there = to_bf16(from_bf16(bits))
    numbers = ~np.isnan(EVERY)
    assert (there[numbers] == bits[numbers]).all()
    assert np.isnan(from_bf16(there[~numbers])).all()


@given(FLOATS)
def test_a_cast_to_bf16_is_to_the_nearest(value):
    (got,) = from_bf16(to_bf16(np.array([value], np.float32)))
    if abs(value) > FINITE[-1]:  # half way to the next one, it would be infinite
        assert abs(got) >= FINITE[-1]
    else:
        assert got == nearest(value)


@given(FLOATS, FLOATS)
def test_a_sum_of_two_is_rounded_once(one, other):
    a, b = to_bf16(np.array([one], np.float32)), to_bf16(np.array([other], np.float32))
    exact = from_bf16(a) + from_bf16(b)
    FORMATS["bf16"].add(a, b, out=a)
    assert a[0] == to_bf16(exact)[0]


@pytest.mark.parametrize("name", FORMATS)
def test_small_whole_numbers_add_exactly_in_every_format(name):
    form = FORMATS[name]
    values = np.arange(-64, 64, dtype=np.float64)
    a, b = form.encode(values), form.encode(values[::-1])
    assert a.dtype == form.dtype
    form.add(a, b, out=a)
    np.testing.assert_array_equal(form.decode(a), values + values[::-1])
