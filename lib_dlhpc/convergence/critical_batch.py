"""Epochs to a target against the batch: the critical-batch law, fitted to runs of which some never arrived.

    E(B) = E_min (1 + B / B_crit + B_small / B)

B_crit: the batch from which more samples a step save few steps; S(B) = E(B) N / B is S_min (1 + B_crit / B) of
McCandlish et al. 2018, "An empirical model of large-batch training", equation 2.11. B_small: the batch below which a
learning rate that is not tuned for each batch is too large or too small; 0 where it is tuned.

A run of batch b arrives after log T = log E(b) + misfit of b + noise of the run, the misfit normal, the noise logistic.
A run is evaluated now and then, so of T an interval is known; that of a run that never arrived ends at infinity.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Density = Callable[[Array], Array]
# Weak priors of the logarithms, so that a constant that the runs do not show stays finite: mean, deviation.
LEAST, FAR, NEAR, MISFIT, NOISE = (-0.5, 1.5), (1.0, 2.0), (-1.0, 2.0), (-2.5, 1.0), (-3.0, 1.0)
NODES = np.linspace(-3.5, 3.5, 61)  # of the misfit, in deviations
WEIGHTS = np.exp(-(NODES**2) / 2) / np.exp(-(NODES**2) / 2).sum()
NORMAL = 1.645  # deviations on either side of the middle 90% of a normal distribution
STEP = 1e-3  # of a derivative, in a logarithm
ROUNDS = 60


@dataclass(frozen=True)
class Runs:
    """Runs of a workload that met a target, or did not: after `low` < T <= `high` epochs; shape (runs,)."""

    batch: Array
    low: Array
    high: Array


@dataclass(frozen=True)
class Law:
    """A fitted law: logarithms of E_min, B_crit, B_small, the deviation of the misfit and the scale of the noise."""

    logs: Array  # shape (5,)
    covariance: Array  # shape (5, 5)
    band: float  # deviations on either side of the middle 90%

    def epochs(self, batch: Array | float) -> tuple[Array, Array, Array]:
        """Return median epochs of a run and its 90% interval: constants, misfit and noise are uncertain."""
        middle, variance = self._center(batch)
        return self._band(middle, variance)

    def informed(self, batch: float, runs: Runs) -> tuple[Array, Array, Array]:
        """Return the same where runs of that batch are known: their misfit is, as far as they show it."""
        here, noise = runs.batch == batch, np.exp(self.logs[4])
        middle, variance = self._center(batch)
        centers = middle + np.sqrt(variance) * NODES
        with np.errstate(divide="ignore"):
            low, high = np.log(runs.low[here]), np.log(runs.high[here])
        chances = _log_chance(low, high, centers[:, None], noise).sum(axis=1)
        weights = WEIGHTS * np.exp(chances - chances.max())
        weights /= weights.sum()
        mean = weights @ centers
        return self._band(mean, weights @ (centers - mean) ** 2)

    def _center(self, batch: Array | float) -> tuple[Array, Array]:
        """Return mean and variance of the logarithm of the median epochs of a batch."""
        b = np.log(np.asarray(batch, dtype=float))
        _, critical, small, misfit, _ = self.logs
        parts = np.exp(np.stack([np.zeros_like(b), b - critical, small - b]))
        slopes = parts / parts.sum(axis=0) * np.reshape([1, -1, 1], (3,) + (1,) * b.ndim)
        slopes[0] = 1.0
        spread = np.einsum("i...,ij,j...->...", slopes, self.covariance[:3, :3], slopes)
        return _log_epochs(self.logs, b), spread + np.exp(2 * misfit)

    def _band(self, middle: Array, variance: Array) -> tuple[Array, Array, Array]:
        wide = self.band * np.sqrt(variance + np.exp(2 * self.logs[4]) * np.pi**2 / 3)
        return np.exp(middle), np.exp(middle - wide), np.exp(middle + wide)

    @property
    def critical_batch(self) -> tuple[float, float, float]:
        """B_crit and its 90% interval, in samples."""
        wide = self.band * float(np.sqrt(self.covariance[1, 1]))
        middle = float(self.logs[1])
        return float(np.exp(middle)), float(np.exp(middle - wide)), float(np.exp(middle + wide))


def _log_epochs(logs: Array, log_batch: Array) -> Array:
    """Return log E(B): constants in the last axis of `logs`, shape (..., batches)."""
    least, critical, small = (logs[..., i, *(None,) * log_batch.ndim] for i in range(3))
    return least + np.log1p(np.exp(log_batch - critical) + np.exp(small - log_batch))


def fit(runs: Runs) -> Law:
    """Fit the law by maximum likelihood under weak priors; the covariance is that of the curvature at the maximum.

    Newton's method with a step that is halved until it helps. At least one run must have arrived.
    """
    density = _density(runs)
    logs, damping = _start(runs), 1e-3
    value = density(logs[None])[0]
    for _ in range(ROUNDS):
        slope, curvature = _derivatives(density, logs)
        scale, axes = np.linalg.eigh(-curvature)
        move = axes @ ((axes.T @ slope) / (np.abs(scale) + damping))
        steps = logs + move * np.minimum(1, 2 / np.abs(move).max()) * 0.5 ** np.arange(8)[:, None]
        values = density(steps)
        best = int(np.argmax(values))
        if values[best] <= value + 1e-7:
            break
        logs, value = steps[best], values[best]
    scale, axes = np.linalg.eigh(-_derivatives(density, logs)[1])
    covariance = (axes / np.maximum(scale, 1e-2)) @ axes.T
    return Law(logs, covariance, _student(len(np.unique(runs.batch)) - 3))


def _student(freedom: int) -> float:
    """Return the 95% quantile of Student's t: the misfit is that of a few batches, three constants fitted to them.

    Source: Abramowitz and Stegun 1964, equation 26.7.5, two terms.
    """
    z, n = NORMAL, max(freedom, 1)
    return z + (z**3 + z) / (4 * n) + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * n**2)


def _start(runs: Runs) -> Array:
    lowest, highest = _edges(runs)
    return np.array([_middle(runs), highest + FAR[0], lowest + NEAR[0], MISFIT[0], NOISE[0]])


def _middle(runs: Runs) -> float:
    """Return the logarithm of the median epochs of the runs that arrived."""
    return float(np.median(np.log(runs.high[np.isfinite(runs.high)])))


def _edges(runs: Runs) -> tuple[float, float]:
    return float(np.log(runs.batch.min())), float(np.log(runs.batch.max()))


def _density(runs: Runs) -> Density:
    """Return the logarithm of the posterior density, a function of constants of shape (points, 5)."""
    batches, place = np.unique(runs.batch, return_inverse=True)
    each, counts = np.unique(np.stack([place, runs.low, runs.high]), axis=1, return_counts=True)
    place, low, high = each[0].astype(int), each[1], each[2]
    with np.errstate(divide="ignore"):
        low, high = np.log(low), np.log(high)
    first = np.searchsorted(place, np.arange(len(batches)))
    lowest, highest = _edges(runs)
    least = (_middle(runs) + LEAST[0], LEAST[1])
    priors = (least, (highest + FAR[0], FAR[1]), (lowest + NEAR[0], NEAR[1]), MISFIT, NOISE)
    means, deviations = np.transpose(priors)

    def density(logs: Array) -> Array:
        centers = _log_epochs(logs, np.log(batches))[:, None, :]
        centers = (centers + np.exp(logs[:, 3, None, None]) * NODES[:, None])[..., place]
        one = _log_chance(low, high, centers, np.exp(logs[:, 4, None, None]))
        every = np.add.reduceat(one * counts, first, axis=-1)
        top = every.max(axis=1, keepdims=True)
        mixed = np.log(np.einsum("q,pqb->pb", WEIGHTS, np.exp(every - top))) + top[:, 0]
        prior = -(((logs - means) / deviations) ** 2) / 2
        return mixed.sum(axis=1) + prior.sum(axis=1)

    return density


def _log_chance(low: Array, high: Array, center: Array, noise: Array) -> Array:
    """Return the logarithm of the chance of an arrival between two logarithms of epochs."""
    above, below = (high - center) / noise, (low - center) / noise
    # Of the logistic distribution: F(a) - F(b) = F(a) F(-b) (1 - exp(b - a)), without cancellation.
    chance = -np.logaddexp(0, -above) - np.logaddexp(0, below)
    return chance + np.log(-np.expm1(np.maximum(below - above, -700)))


def _derivatives(density: Density, logs: Array) -> tuple[Array, Array]:
    """Return gradient and Hessian by central differences, all points in one call."""
    size = len(logs)
    shifts = STEP * np.eye(size)
    pairs = [(i, j) for i in range(size) for j in range(i)]
    corners = [shifts[i] + shifts[j] for i, j in pairs] + [shifts[i] - shifts[j] for i, j in pairs]
    moves = np.array([*shifts, *corners])
    values = density(logs + np.concatenate([np.zeros((1, size)), moves, -moves]))
    center, (up, down) = values[0], np.split(values[1:], 2)
    slope = (up - down)[:size] / (2 * STEP)
    second = (up + down - 2 * center) / STEP**2
    curvature = np.diag(second[:size])
    both, apart = np.split(second[size:], 2)
    for (i, j), value in zip(pairs, (both - apart) / 4, strict=True):
        curvature[i, j] = curvature[j, i] = value
    return slope, curvature
