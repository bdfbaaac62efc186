"""Derivation of module 09: the interval between checkpoints, from the derivative of what is lost."""

from math import sqrt

from lib_dlhpc.explore.slides.derivation import Example, written
from lib_dlhpc.prediction.intervals import exact, young
from lib_dlhpc.spec.units import format_quantity as show

SAVE, MTBF = 60.0, 6 * 3600.0  # s
best = sqrt(2 * SAVE * MTBF)
lost = sqrt(2 * SAVE / MTBF)


def at(times: float) -> float:
    """Return the share that is lost at a multiple of the best interval."""
    return SAVE / (times * best) + times * best / (2 * MTBF)


DERIVATIONS = written(
    __file__,
    Example(
        f"δ = {show(SAVE, 's')}, M = {show(MTBF, 's')}: save every {show(best, 's')} and lose {lost:.1%}; at twice"
        f" that, {at(2):.1%}. Daly's complete model says {show(float(exact(SAVE, MTBF)), 's')}.",
        best,
        float(young(SAVE, MTBF)),
    ),
)
