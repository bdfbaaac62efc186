"""How many epochs does a batch need to meet a target? A number with an interval, or a refusal with its reason."""

from typing import Any, NamedTuple

import numpy as np

from lib_dlhpc.convergence.critical_batch import Array
from lib_dlhpc.convergence.workloads import HALF, Target, Workload, target_of, towards


class Epochs(NamedTuple):
    """Median epochs of a run and its 90% interval, whole evaluations; nan: refused. reason: where from, or why not."""

    epochs: Any
    low: Any
    high: Any
    reason: str

    @property
    def known(self) -> Any:
        """Whether there is an answer."""
        return np.isfinite(self.epochs)


def epochs_to(work: Workload, target: float, batch: Any) -> Epochs:
    """Return the epochs in which `batch` samples a step meet `target`, a fraction such as 0.76; batch: may be an array.

    Between measured batches the fitted law (critical_batch.py) answers, or the published schedule; at a measured
    batch, its runs too. Refused: beyond the batches measured, and next to one of which fewer than half of the runs met
    the target.
    """
    if not work.target(target) < np.inf:
        reason = f"no run met {target:.4g}; the highest target measured is {work.targets[-1]:.4g} ({work.title})"
        return refused(batch, reason)
    used = work.target(target)
    found = towards(work.name, used) if work.name else target_of(work, used)
    epochs, low, high = answer(found, batch)
    bad = np.isnan(epochs)
    if np.any(bad):
        worst = float(np.extract(bad, batch)[0])
        return Epochs(epochs, low, high, _refusal(work, found, used, worst))
    higher = f"; {used:g} is the next target measured above {target:.4g}" * bool(
        used > target + 1e-9
    )
    return Epochs(epochs, low, high, f"{work.title}, {work.rate}{higher}")


def refused(batch: Any, reason: str) -> Epochs:
    """Return a refusal of the shape of `batch`."""
    nothing = np.full(np.shape(batch), np.nan)[()]
    return Epochs(nothing, nothing, nothing, reason)


def answer(found: Target, batch: Any) -> tuple[Any, Any, Any]:
    """Return epochs and interval by batch, arrays of its shape; nan: refused. A million batches take well below 1 s."""
    b = np.asarray(batch, dtype=float)
    last = len(found.batches) - 1
    above = np.searchsorted(found.batches, b)
    below = np.searchsorted(found.batches, b, side="right") - 1
    inside = (above <= last) & (below >= 0)
    above, below = np.minimum(above, last), np.maximum(below, 0)
    inside &= np.minimum(found.met[above], found.met[below]) >= HALF
    if found.law is None:
        schedule = np.maximum(found.budget[above], found.budget[below])
        numbers: Array = np.stack([schedule] * 3)
    else:
        numbers = np.stack(found.law.epochs(b))
        numbers = np.where(above == below, found.measured[:, above], numbers)
        every = np.maximum(found.resolution[above], found.resolution[below])
        numbers = np.ceil(numbers / every - 1e-9) * every
    epochs, low, high = np.where(inside, numbers, np.nan)
    return epochs[()], low[()], high[()]


def _refusal(work: Workload, found: Target, target: float, batch: float) -> str:
    """Return why a batch has no answer."""
    how, met = f"{work.metric} of {target:.4g} with {work.optimizer}", found.met >= HALF
    if not met.any():
        return f"no batch of {work.title} met {how}"
    least, most = found.batches[met].min(), found.batches[met].max()
    by = f" ({work.source})" * bool(work.source)
    if batch > most:
        missed = "".join(f"; {_runs(found, i)}" for i in np.flatnonzero(found.batches > most)[:1])
        return f"{batch:,.0f} is beyond {most:,.0f}, the largest batch that met {how}{missed}{by}"
    if batch < least:
        return f"{batch:,.0f} is below {least:,.0f}, the smallest batch that met {how}{by}"
    near = np.argmin(np.abs(np.log(found.batches / batch)) + 1e9 * met)
    return f"{batch:,.0f} is next to a batch that missed {how}: {_runs(found, near)}{by}"


def _runs(found: Target, i: Any) -> str:
    if found.law is None:
        return f"with {found.batches[i]:,.0f} it was missed"
    met = round(found.met[i] * found.counts[i])
    return f"with {found.batches[i]:,.0f} {met} of {found.counts[i]:.0f} runs met it"
