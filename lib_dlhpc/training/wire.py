"""Formats of gradients on the wire: a cast into the format, the sum of two numbers in it, and the cast back.

Every hop of an exchange adds in fp32 (fp64 for fp64) and rounds the sum to the format, to the nearest, ties to even:
what numpy does with float16, and hardware with both. bf16 is the upper half of an fp32 (Kalamkar et al. 2019, "A
study of bfloat16 for deep learning training"); numpy has no such type, so its bits travel as 16-bit integers.
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


def _add_bf16(one: Array, other: Array, out: Array) -> None:
    out[...] = to_bf16(from_bf16(one) + from_bf16(other))


def _native(kind: Any) -> Format:
    return Format(kind, lambda values: values.astype(kind), lambda values: values, np.add)


FORMATS = {
    "fp64": _native(np.float64),
    "fp32": _native(np.float32),
    "fp16": _native(np.float16),
    "bf16": Format(np.uint16, to_bf16, from_bf16, _add_bf16),
}
