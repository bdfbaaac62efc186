"""The noisy quadratic: the loss under synchronous, local and stale updates, update by update.

The loss is sum h_i x_i^2 / 2 over DIMENSIONS directions of curvature h_i = 1, 1/2, 1/3 ...; a worker's
gradient carries noise of variance NOISE^2 h_i (the noisy quadratic model of Zhang et al. 2019, "Which
algorithmic choices matter at which batch sizes?", section 3). No momentum, one learning rate.
"""

from functools import lru_cache

import numpy as np

from lib_dlhpc.arrays import Floats

SEED = 2  # of the noise
DIMENSIONS, COPIES = 12, 32  # directions of the bowl; how often it is run, to average the noise
CURVATURE = 1.0 / np.arange(1, DIMENSIONS + 1)
NOISE = 0.6  # standard deviation of a worker's gradient where the curvature is 1


@lru_cache(maxsize=512)
def synchronized(workers: int, rate: float, local_steps: int, count: int) -> Floats:
    """Return the loss after each average: all start from it, take their steps, and are averaged again."""
    rng, x = np.random.default_rng(SEED), np.ones((COPIES, 1, DIMENSIONS))
    loss = [_loss(x)]
    with np.errstate(over="ignore", invalid="ignore"):
        for _ in range(count):
            own = np.repeat(x, workers, axis=1)
            for _ in range(local_steps):
                own = own - rate * _gradient(own, rng)
            x = own.mean(axis=1, keepdims=True)
            loss.append(_loss(x))
    return np.array(loss)


@lru_cache(maxsize=512)
def stale(workers: int, rate: float, staleness: tuple[int, ...]) -> Floats:
    """Return the loss after each update by a gradient of weights that are `staleness` updates old.

    A worker's gradient counts for its share: with nothing stale, a round of updates is one
    synchronous step.
    """
    rng = np.random.default_rng(SEED)
    weights = [np.ones((COPIES, 1, DIMENSIONS))]
    with np.errstate(over="ignore", invalid="ignore"):
        for old in staleness:
            weights.append(weights[-1] - rate / workers * _gradient(weights[-1 - old], rng))
    return np.array([_loss(x) for x in weights])


def most_stale_rate(workers: int) -> float:
    """Return the largest learning rate of all workers together at which stale gradients converge.

    A gradient that is tau updates old keeps x - eta h x_old from growing while
    eta h < 2 sin(pi / (2 (2 tau + 1))) (Levin and May 1976); tau = workers - 1 here, h at most 1.
    """
    stale = workers - 1
    return float(workers * 2 * np.sin(np.pi / (2 * (2 * stale + 1))))


def _gradient(x: Floats, rng: np.random.Generator) -> Floats:
    return CURVATURE * x + NOISE * np.sqrt(CURVATURE) * rng.standard_normal(x.shape)


def _loss(x: Floats) -> float:
    """Relative to the start, where every x is 1."""
    return float((CURVATURE * x**2).sum(axis=-1).mean() / CURVATURE.sum())
