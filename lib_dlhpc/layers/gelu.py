"""GELU: x times the normal distribution function at x."""

from math import pi, sqrt

import numpy as np

from lib_dlhpc.layers.base.elementwise import OfInput
from lib_dlhpc.layers.base.saved import Array

ROOT = sqrt(2 / pi)  # a Python float, so that float32 arrays stay float32


def gelu(x: Array) -> Array:
    """Return x / 2 (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3)))."""
    return x * (0.5 * (1 + _tanh(x)))


def gelu_slope(x: Array) -> Array:
    """Return the derivative of gelu at x."""
    t = _tanh(x)
    inner = ROOT * (1 + 3 * 0.044715 * x * x)
    return 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * inner


def _tanh(x: Array) -> Array:
    return np.tanh(ROOT * (x + 0.044715 * x * x * x))


class Gelu(OfInput):
    """x times the normal distribution function, in its tanh form (Hendrycks and Gimpel 2016, section 2)."""

    function, slope = staticmethod(gelu), staticmethod(gelu_slope)
