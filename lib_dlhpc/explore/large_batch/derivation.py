"""Derivations of module 06: why the rate grows with the batch, and where the trust ratio comes from."""

from lib_dlhpc.explore.large_batch.rules import lars_step
from lib_dlhpc.explore.slides.derivation import written

SMALL, RATE, MOMENTUM, CURVATURE = 32, 0.02, 0.9, 4.0
TRUST, LARGE_RATE, WEIGHTS, GRADIENT = 0.001, 10, 12.0, 0.8
largest = 2 * (1 + MOMENTUM) / (RATE * CURVATURE)


def fastest(momentum: float, curvature: float) -> float:
    """Return the largest rate at which momentum on a parabola does not grow, by simulating it."""
    low, high = 0.0, 10.0 / curvature
    for _ in range(40):
        rate = (low + high) / 2
        x, v = 1.0, 0.0
        for _ in range(2000):
            v = momentum * v + curvature * x
            x -= rate * v
            if abs(x) > 1e6:
                break
        low, high = (rate, high) if abs(x) < 1e3 else (low, rate)
    return low


batch = SMALL * largest
moved = LARGE_RATE * TRUST * WEIGHTS
share = LARGE_RATE * TRUST

DERIVATIONS = written(
    globals(),
    (largest * RATE, fastest(MOMENTUM, CURVATURE)),
    (LARGE_RATE * TRUST * WEIGHTS, lars_step(WEIGHTS, GRADIENT, LARGE_RATE, TRUST)),
)
