"""Energy of simulated steps: joules by cause, as `predict` counts them, and the power of all devices over time."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lib_dlhpc import parallel
from lib_dlhpc.costs.device_work import device_work
from lib_dlhpc.costs.energy import POLLED, device_watts, standing_watts, step_energy
from lib_dlhpc.program import BoundShares, mixes_of
from lib_dlhpc.results import Columns
from lib_dlhpc.spec.experiment import Experiment
from lib_dlhpc.timeline import Measured, Timeline
from lib_dlhpc.timeline.kinds import KINDS
from lib_dlhpc.timeline.measure import WORK

# The term of each kind of row on the compute stream; a gap between rows is a wait.
TERM_OF = {
    **{kind: kind for kind in WORK},
    "wait": POLLED[1],
    "bubble": "pipeline bubble",
    "input": "input stall",
    "checkpoint": "checkpoint",
}


def rank_watts(experiment: Experiment) -> dict[str, NDArray[np.float64]]:
    """Return the W of every rank's device in each term of a step, (ranks,) each."""
    ranks = int(experiment.devices)
    if experiment.strategy.update == "asynchronous":
        mixes = device_work(experiment, 1.0).mixes
    else:
        step = parallel.program(experiment)
        whole = (step.schedule.ranks, *step.shape)

        def of_ranks(fraction: Any) -> Any:
            return np.broadcast_to(fraction[:, None, :, None], whole).ravel()

        ahead, back = (BoundShares(*map(of_ranks, mix)) for mix in mixes_of(step))
        mixes = ahead, back
    watts = device_watts(experiment, mixes)
    return {term: np.broadcast_to(watt, (ranks,)) for term, watt in watts.items()}


def energy_of(experiment: Experiment, measured: Measured) -> dict[str, float]:
    """Return the joules of a mean step by cause, cooling included: those of `predict` where the seconds are its."""
    watts, seconds = rank_watts(experiment), measured.per_rank
    mean: Mapping[str, float] = {term: float(value.mean()) for term, value in seconds.items()}
    weighted = {
        term: float((watts[term] * value).sum() / value.sum())
        if value.sum()
        else float(watts[term].mean())
        for term, value in seconds.items()
    }
    served = 0.0
    if experiment.strategy.update == "asynchronous":
        served = float(mean["update"])
    joules = step_energy(experiment, mean, weighted, served)
    return {cause: float(value) for cause, value in joules.items()}


def power_over_time(experiment: Experiment, timeline: Timeline) -> Columns:
    """Return the W of all that a run occupies as steps: each holds from its `start`, s, to that of the next.

    Columns `start` and `watts`; cooling is included, and the last row ends the timeline with 0 W. Parameter servers
    are left out.
    """
    watts = rank_watts(experiment)
    rows = timeline.select(timeline.where("compute")).sorted()
    begin, end = float(rows.start.min()), float(rows.stop.max())
    polled = watts[POLLED[1]]
    of_kind = np.stack([watts.get(TERM_OF.get(kind, ""), polled) for kind in KINDS])
    above = of_kind[rows.kind, rows.rank] - polled[rows.rank]  # a gap is a wait
    at = np.concatenate([rows.start, rows.stop, [begin, end]])
    standing = float(sum(standing_watts(experiment).values()))
    base = float(polled.sum()) + standing
    change = np.concatenate([above, -above, [base, -base]])
    edges, where = np.unique(at, return_inverse=True)
    level = np.cumsum(np.bincount(where, weights=change, minlength=len(edges)))
    level[-1] = 0.0
    return {"start": edges.tolist(), "watts": (float(experiment.machine.pue) * level).tolist()}
