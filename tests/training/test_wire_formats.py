"""Formats of the wire: rounding to the nearest, ties to even, in every cast and every sum."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lib_dlhpc.training.wire_formats import FORMATS, from_bf16, from_fp8, to_bf16, to_fp8

FLOATS = st.floats(width=32, allow_nan=False, allow_infinity=False)
EVERY = from_bf16(np.arange(1 << 16, dtype=np.uint16))
FINITE = np.unique(EVERY[np.isfinite(EVERY)].astype(np.float64))
EIGHT = from_fp8(np.arange(256, dtype=np.uint8))
SMALL = np.unique(EIGHT[np.isfinite(EIGHT)].astype(np.float64))


def nearest(value, finite):
    """The number nearest to a value, found by search; of two that are as near, the one whose last bit is 0."""
    at = int(np.searchsorted(finite, value))
    around = [float(each) for each in finite[max(0, at - 1) : at + 1]]
    apart = [abs(Fraction(each) - Fraction(value)) for each in around]
    close = [each for each, far in zip(around, apart, strict=True) if far == min(apart)]
    return min(close, key=lambda each: even(each, finite))


def even(value, finite):
    """0 if the last bit of a number's mantissa is, by its place among all: next to an even one is an odd one."""
    return abs(int(np.searchsorted(finite, value)) - int(np.searchsorted(finite, 0.0))) % 2


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
        assert got == nearest(value, FINITE)


def test_fp8_is_e4m3():
    """The largest, the smallest normal and subnormal, and 1, as in table 1 of Micikevicius et al. 2022."""
    codes = {0x7E: 448.0, 0x08: 2.0**-6, 0x01: 2.0**-9, 0x38: 1.0, 0x80: 0.0}
    assert [float(EIGHT[code]) for code in codes] == list(codes.values())
    assert np.isnan(EIGHT[[0x7F, 0xFF]]).all() and np.isnan(EIGHT).sum() == 2
    numbers = np.isfinite(EIGHT)
    assert (to_fp8(EIGHT)[numbers] == np.arange(256)[numbers]).all()
    assert from_fp8(to_fp8(np.array([1e6, -1e6, np.inf, np.nan])))[:3].tolist() == [448, -448, 448]
    assert np.isnan(from_fp8(to_fp8(np.array([np.nan])))[0])


@given(st.floats(-500, 500, width=32) | st.floats(-0.0625, 0.0625, width=32))
def test_a_cast_to_fp8_is_to_the_nearest(value):
    (got,) = from_fp8(to_fp8(np.array([value], np.float32)))
    assert got == nearest(max(-448.0, min(value, 448.0)), SMALL)


@given(st.floats(1e-20, 1e20), st.integers(1, 1000))
def test_a_scale_is_a_power_of_two_with_which_the_sum_of_the_largest_just_fits(largest, ranks):
    factor = FORMATS["fp8"].scale(largest, ranks)
    assert np.log2(factor) % 1 == 0
    assert ranks * largest * factor * (1 + 1e-12) > 224 and ranks * largest * factor <= 448 * (
        1 + 1e-12
    )


def test_buckets_of_zeros_are_not_scaled():
    assert FORMATS["fp8"].scale(0.0, 4) == FORMATS["fp8"].scale(np.inf, 4) == 1


@given(FLOATS, FLOATS)
def test_a_sum_of_two_is_rounded_once(one, other):
    a, b = to_bf16(np.array([one], np.float32)), to_bf16(np.array([other], np.float32))
    exact = from_bf16(a) + from_bf16(b)
    FORMATS["bf16"].add(a, b, out=a)
    assert a[0] == to_bf16(exact)[0]


@pytest.mark.parametrize("name", FORMATS)
def test_small_whole_numbers_add_exactly_in_every_format(name):
    form = FORMATS[name]
    values = np.arange(-8, 9, dtype=np.float64)
    a, b = form.encode(values), form.encode(values[::-1])
    assert a.dtype == form.dtype
    form.add(a, b, out=a)
    np.testing.assert_array_equal(form.decode(a), values + values[::-1])
