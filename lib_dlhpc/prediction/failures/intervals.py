"""How often to save: what failures cost between checkpoints, exactly, and the interval that costs the least.

Symbols as in Daly 2006 ("A higher order estimate of the optimum checkpoint interval for restart dumps"):
interval tau, s of training between two checkpoints; cost delta, s that training stalls for one; mtbf M, s
between failures of all nodes together, which come at random, one as likely at any moment (Poisson);
restart R, s from a failure until training resumes. A failure may also strike while saving or restarting.
Everything broadcasts.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from lib_dlhpc.costs.checkpoints import CheckpointCost

STEPS = 60  # of Newton's method; it doubles its digits in each, unless it starts at an edge
SMALLEST, LARGEST = 1e-12, 1 - 1e-15  # of tau / M


def system_mtbf(node_mtbf: Any, nodes: Any) -> Any:
    """Return the s between failures of `nodes` nodes together, each of which fails independently."""
    return node_mtbf / nodes


def young(cost: Any, mtbf: Any) -> Any:
    """Return Young's interval in s, sqrt(2 C M): first order, for C << M (Young 1974)."""
    return np.sqrt(2 * cost * mtbf)


def daly_first_order(cost: Any, mtbf: Any, restart: Any = 0.0) -> Any:
    """Return the interval of Daly's first-order model, sqrt(2 delta (M + R)) - delta, never below 0 (Daly 2006)."""
    return np.maximum(np.sqrt(2 * cost * (mtbf + restart)) - cost, 0.0)


def daly(cost: Any, mtbf: Any) -> Any:
    """Return Daly's higher-order interval in s (Daly 2006, eq. 37); M where delta >= 2 M.

    sqrt(2 delta M) (1 + 1/3 (delta / 2M)^(1/2) + 1/9 (delta / 2M)) - delta.
    """
    with np.errstate(invalid="ignore"):
        ratio = np.divide(cost, 2 * np.asarray(mtbf))
        series = np.sqrt(2 * cost * mtbf) * (1 + np.sqrt(ratio) / 3 + ratio / 9) - cost
    return np.where(np.less(ratio, 1), series, mtbf)[()]


def exact(cost: Any, mtbf: Any) -> Any:
    """Return the interval that costs the least with synchronous checkpoints, to rounding; inf without failures.

    The minimum of Daly's complete model solves (1 - tau/M) e^((tau + delta)/M) = 1, which is Lambert's
    function; here by Newton's method. Restart time does not matter to it.
    """
    never = np.isinf(mtbf)
    mtbf = np.where(never, 1.0, mtbf)
    ratio = np.asarray(cost / mtbf, dtype=np.float64)
    u = np.clip(daly(ratio, 1.0), SMALLEST, LARGEST)
    for _ in range(STEPS):
        u = np.clip(u - (_excess(u) - ratio) * (1 - u) / u, SMALLEST, (LARGEST + u) / 2)
    best = np.where(ratio > 0, u * mtbf, 0.0)
    return np.where(never, np.inf, best)[()]


def _excess(u: NDArray[np.float64]) -> Any:
    """Return -log(1 - u) - u, by its series where the difference would lose digits."""
    series = u**2 * (1 / 2 + u * (1 / 3 + u * (1 / 4 + u * (1 / 5 + u / 6))))
    return np.where(u < 1e-3, series, -np.log1p(-u) - u)


def expected_cycle(interval: Any, saving: CheckpointCost, mtbf: Any) -> Any:
    """Return the expected s of wall time for each `interval` s of training and its checkpoint.

    Synchronous: M e^(R/M) (e^((tau + delta)/M) - 1), Daly's complete model (2006). A write of w s behind
    training multiplies it by s + (1 - s) e^(w/M): a failure during it falls back on the checkpoint
    before, unless it is one of the share s that the nodes' own copies survive; then the write starts anew.
    An interval shorter than w waits for the write: see the terms below. inf where training makes no headway.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        rate = 1 / np.asarray(mtbf, dtype=np.float64)
        background, survived = saving.background, saving.survived
        period = interval + saving.standstill(interval)
        alone = interval + saving.blocked  # after a restart there is no write to wait for
        restart = mean_restart(saving, mtbf)
        # s until a failure or the end of the period, with what follows a failure
        again = np.exp(rate * alone) * (_until(rate, alone) + _fails(rate, alone) * restart)
        first = _until(rate, period) + _fails(rate, period) * restart
        fallen = (1 - survived) * _fails(rate, background)  # one checkpoint further back
        later = _fails(rate, period) - _fails(rate, background)
        cycle = np.exp(rate * background) * (first + (fallen + later) * again)
    return np.where(np.isnan(cycle), np.inf, cycle)[()]


def mean_restart(saving: CheckpointCost, mtbf: Any) -> Any:
    """Return the expected s of a restart, which starts over if a failure strikes during it: M (e^(R/M) - 1)."""
    rate = 1 / np.asarray(mtbf, dtype=np.float64)

    def of(seconds: Any) -> Any:
        return np.exp(rate * seconds) * _until(rate, seconds)

    with np.errstate(over="ignore", invalid="ignore"):  # no restart ever succeeds
        return saving.survived * of(saving.local_restart) + (1 - saving.survived) * of(
            saving.restart
        )


def goodput(interval: Any, saving: CheckpointCost, mtbf: Any) -> Any:
    """Return the share of wall time that becomes training: interval / expected_cycle, 0 to 1."""
    return np.divide(interval, expected_cycle(interval, saving, mtbf))[()]


def best_interval(saving: CheckpointCost, mtbf: Any) -> Any:
    """Return the interval in s of the highest goodput, however state is saved; inf without failures.

    It is that of synchronous checkpoints which take as long as training stalls, since a write in the
    background multiplies expected_cycle by what does not depend on the interval; but no shorter than the
    write, for which the next checkpoint would wait. (Where that is longer than M, about M.)
    """
    return np.maximum(exact(saving.blocked, mtbf), np.minimum(saving.background, mtbf))[()]


def _fails(rate: Any, seconds: Any) -> Any:
    """Return the probability of a failure within `seconds`."""
    return -np.expm1(-rate * seconds)


def _until(rate: Any, seconds: Any) -> Any:
    """Return the expected s until a failure or until `seconds` are over, whichever is first."""
    safe = np.where(rate > 0, rate, 1.0)
    return np.where(rate > 0, _fails(rate, seconds) / safe, seconds)
