"""Formats of gradients on the wire: a cast into the format, the sum of two numbers in it, and the cast back.

Every hop of an exchange adds in fp32 (fp64 for fp64) and rounds the sum to the format, to the nearest, ties to even:
what numpy does with float16, and hardware with both. bf16 is the upper half of an fp32 (Kalamkar et al. 2019, "A
study of bfloat16 for deep learning training"); numpy has no such type, so its bits travel as 16-bit integers.
fp8 is e4m3 (Micikevicius et al. 2022, "FP8 formats for deep learning"): 4 bits of exponent, 3 of mantissa, no infinity;
what is above 448 becomes 448. Ranks scale a bucket by a power of two, so that the sum of its largest fits.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from lib_dlhpc.layers.base.saved import Array


class Format(NamedTuple):
    """How numbers of a format are stored, and what is done with them; `add` has the signature of np.add."""

    dtype: Any
    encode: Callable[[Array], Array]
    decode: Callable[[Array], Array]
    add: Callable[..., Any]
    most: float = 0.0  # the largest number, if buckets are scaled to it

    def scale(self, largest: float, ranks: int) -> float:
        """Return the power of two by which numbers of up to this magnitude are multiplied before the sum of `ranks`."""
        if not 0 < largest < np.inf:
            return 1.0
        return float(2.0 ** np.clip(np.floor(np.log2(self.most / (ranks * largest))), -100, 100))


def to_bf16(values: Array) -> Array:
    """Return the bits of values rounded to bf16, as uint16; values: through fp32."""
    bits = np.ascontiguousarray(values, np.float32).view(np.uint32)
    odd = (bits >> np.uint32(16)) & np.uint32(1)
    rounded = (bits + (np.uint32(0x7FFF) + odd)) >> np.uint32(16)
    quiet = (bits >> np.uint32(16)) | np.uint32(0x40)
    return np.where(np.isnan(values), quiet, rounded).astype(np.uint16)


def from_bf16(bits: Array) -> Array:
    """Return the float32 values of bf16 bits."""
    return (bits.astype(np.uint32) << np.uint32(16)).view(np.float32)


def _add_bf16(first: Array, other: Array, out: Array) -> None:
    out[...] = to_bf16(from_bf16(first) + from_bf16(other))


def to_fp8(values: Array) -> Array:
    """Return the bits of values rounded to e4m3, as uint8; values: through fp32."""
    values = np.asarray(values, np.float32)
    size = np.minimum(np.abs(values), np.float32(448))
    bits = size.view(np.uint32)
    odd = (bits >> np.uint32(20)) & np.uint32(1)
    normal = ((bits + (np.uint32(0x7FFFF) + odd)) >> np.uint32(20)) - np.uint32((127 - 7) << 3)
    small = np.rint(size * np.float32(512))  # below 2**-6 steps are 2**-9
    code = np.where(size < 2.0**-6, small, normal.astype(np.float32))
    code = np.where(np.isnan(values), 0x7F, code).astype(np.uint8)
    return code | (np.signbit(values).astype(np.uint8) << np.uint8(7))


def _fp8_values() -> Array:
    code = np.arange(128)
    exponent, mantissa = code >> 3, code & 7
    normal = (1 + mantissa / 8) * 2.0 ** (exponent - 7)
    values = np.where(exponent == 0, mantissa / 512, normal)
    values[127] = np.nan
    return np.concatenate([values, -values]).astype(np.float32)


_FP8 = _fp8_values()


def from_fp8(bits: Array) -> Array:
    """Return the float32 values of e4m3 bits."""
    values: Array = _FP8[bits]
    return values


def _add_fp8(first: Array, other: Array, out: Array) -> None:
    out[...] = to_fp8(from_fp8(first) + from_fp8(other))


def _native(kind: Any) -> Format:
    return Format(kind, lambda values: values.astype(kind), lambda values: values, np.add)


FORMATS = {
    "fp64": _native(np.float64),
    "fp32": _native(np.float32),
    "fp16": _native(np.float16),
    "bf16": Format(np.uint16, to_bf16, from_bf16, _add_bf16),
    "fp8": Format(np.uint8, to_fp8, from_fp8, _add_fp8, 448.0),
}
