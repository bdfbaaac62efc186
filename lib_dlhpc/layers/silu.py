"""SiLU, or swish: x times the logistic function of x."""

from lib_dlhpc.layers.base.elementwise import OfInput, logistic
from lib_dlhpc.layers.base.saved import Array


def silu(x: Array) -> Array:
    """Return x / (1 + exp(-x))."""
    y = logistic(x)
    y *= x
    return y


def silu_slope(x: Array) -> Array:
    """Return the derivative of silu at x."""
    share = logistic(x)
    return share * (1 + x * (1 - share))


class Silu(OfInput):
    """x times the logistic function of x (Hendrycks and Gimpel 2016, section 4)."""

    function, slope = staticmethod(silu), staticmethod(silu_slope)
