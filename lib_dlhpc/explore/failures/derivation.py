"""Derivation of module 09: the interval between checkpoints, from the derivative of what is lost."""

from math import sqrt

from lib_dlhpc.explore.slides.derivation import written
from lib_dlhpc.prediction.failures.intervals import exact, young

SAVE, MTBF = 60.0, 6 * 3600.0  # s
best = sqrt(2 * SAVE * MTBF)
lost = sqrt(2 * SAVE / MTBF)


def at(times: float) -> float:
    """Return the share that is lost at a multiple of the best interval."""
    return SAVE / (times * best) + times * best / (2 * MTBF)


twice = at(2)
daly = float(exact(SAVE, MTBF))

DERIVATIONS = written(globals(), (best, float(young(SAVE, MTBF))))
