"""Silent errors: wrong results that stop nothing, and how often to look for them.

Symbols as in intervals.py, and: silent errors come at random, once in mtbf_s s of training of all nodes
together; after every D s of training a check of V s finds any error since the last one, and training falls
back to the newest checkpoint that was checked. A whole interval is lost, where a failure loses half of one.
That a check is perfect is assumed, as in Aupy et al.; replaying one step would verify that step only.
Errors that strike while saving, checking or restarting do not spoil the state. Everything broadcasts.

Source: Aupy et al. 2013 (On the combination of silent error detection and checkpointing, arXiv:1310.8486);
Benoit, Raina, Robert 2015 (Efficient checkpoint/verification patterns): patterns of checkpoints and checks.
"""

from dataclasses import replace
from typing import Any

import numpy as np

from lib_dlhpc.costs.checkpoints import CheckpointCost, Checks
from lib_dlhpc.prediction.failures.intervals import expected_cycle, goodput, mean_restart

STEPS = 60  # of Newton's method, which comes from above on a convex function


def first_order_check(takes: Any, silent_mtbf: Any) -> Any:
    """Return the interval between checks in s, sqrt(V M_s), for V << M_s: the minimum of V/D + D/M_s.

    Young's interval without its factor 2: all of the interval is lost, not half (Aupy et al. 2013).
    """
    return np.sqrt(takes * silent_mtbf)


def checked_cycle(interval: Any, saving: CheckpointCost, mtbf: Any, checks: Checks) -> Any:
    """Return the expected s of wall time for each checks.every s of training that passes its check.

    e^(D/M_s) (D/tau A + A_V) + (e^(D/M_s) - 1) R': A is the expected_cycle of one checkpoint interval, A_V
    the expected s of a check, R' the mean restart; e^(D/M_s) is how often an interval is trained until it
    has no error. Exact for synchronous checkpoints; a check does not wait for a write behind training.
    inf where training makes no headway.
    """
    check, restart = _check_and_restart(saving, mtbf, checks)
    with np.errstate(over="ignore", invalid="ignore"):
        errors = checks.every / np.asarray(checks.mtbf, dtype=np.float64)
        segments = checks.every / interval * expected_cycle(interval, saving, mtbf)
        cycle = np.exp(errors) * (segments + check) + np.expm1(errors) * restart
    return np.where(np.isnan(cycle), np.inf, cycle)[()]


def checked_goodput(interval: Any, saving: CheckpointCost, mtbf: Any, checks: Checks) -> Any:
    """Return the share of wall time that becomes training which passed its check, 0 to 1.

    Without any check, checks.every = inf: that of no silent errors, or else 0.
    """
    never = np.isinf(checks.every)
    some = replace(checks, every=np.where(never, 1.0, checks.every))
    share = np.divide(some.every, checked_cycle(interval, saving, mtbf, some))
    alone = np.where(np.isinf(checks.mtbf), goodput(interval, saving, mtbf), 0.0)
    return np.where(never, alone, share)[()]


def best_check(interval: Any, saving: CheckpointCost, mtbf: Any, checks: Checks) -> Any:
    """Return the checks.every of the highest goodput, in s of training; inf without silent errors.

    nan where training makes no headway. The root of a D^2 / M_s + (A_V + R') D / M_s = A_V + R' (1 - e^(-D/M_s)),
    a = A / tau; by Newton's method.
    """
    never = np.isinf(checks.mtbf)
    rate = 1 / np.where(never, 1.0, checks.mtbf)
    check, restart = _check_and_restart(saving, mtbf, checks)
    slowdown = expected_cycle(interval, saving, mtbf) / interval
    with np.errstate(invalid="ignore"):
        every = np.sqrt(check / (slowdown * rate))
        for _ in range(STEPS):
            falls = restart * np.exp(-rate * every)
            value = rate * every * (slowdown * every + check + restart) - check - restart + falls
            slope = rate * (2 * slowdown * every + check + restart - falls)
            at_0 = np.zeros_like(value + slope)
            every = every - np.divide(value, slope, out=at_0, where=slope > 0)
    return np.where(never, np.inf, np.where(np.isfinite(slowdown), every, np.nan))[()]


def _check_and_restart(saving: CheckpointCost, mtbf: Any, checks: Checks) -> tuple[Any, Any]:
    """Return the expected s of a check, which a failure repeats, and of the restart from files."""
    nothing = replace(saving, blocked=0.0, background=0.0)
    found = expected_cycle(checks.takes, nothing, mtbf)
    return found, mean_restart(replace(saving, survived=0.0), mtbf)
