"""Power of a facility while one job trains in phase: swings, and what smoothing them costs.

In synchronous training all devices compute at the same time, then all wait for the same exchange or checkpoint, so the
power of the whole facility follows one device's step (Grattafiori et al. 2024, section 3.3; Choukse et al. 2025,
arXiv 2508.14318). A wave is one period of it: steps of constant W. What smooths it:

    jobs      independent ones, each later than the one before by an equal part of the period: no energy
    floor     devices do useless work rather than draw less than some W: the energy below the floor
    storage   batteries or capacitors deliver what is above the mean, and charge below: their losses
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from lib_dlhpc.arrays import Floats
from lib_dlhpc.costs.energy import idle_watts
from lib_dlhpc.errors import SpecError

if TYPE_CHECKING:
    from lib_dlhpc.prediction.breakdown import Breakdown

# A step of replicas in phase: the order of its terms.
ORDER = (
    "input stall",
    "forward",
    "backward",
    "waiting for the slowest",
    "exposed communication",
    "update",
    "checkpoint",
)


@dataclass(frozen=True)
class Wave:
    """One period of power over time: each of `watts` lasts as long as its `seconds`."""

    seconds: Floats
    watts: Floats

    @property
    def period(self) -> float:
        """Seconds until it repeats."""
        return float(self.seconds.sum())

    @property
    def joules(self) -> float:
        """Joules of a period."""
        return float((self.seconds * self.watts).sum())

    @property
    def mean(self) -> float:
        """W on average."""
        return self.joules / self.period

    @property
    def swing(self) -> float:
        """W from the lowest to the highest."""
        return float(self.watts.max() - self.watts.min())


def step_wave(step: "Breakdown") -> Wave:
    """Return the power of a predicted step, cooling included. Raises SpecError where devices are not in phase."""
    strategy = step.experiment.strategy
    if strategy.update == "asynchronous" or step.terms["pipeline bubble"]:
        raise SpecError("A wave of power is of replicas in phase: without pipeline, synchronous.")
    pue, whole = float(step.experiment.machine.pue), float(step.step_time)
    energy = {cause: float(joules) for cause, joules in step.energy.items()}
    del energy["cooling and conversion"]  # the PUE, below
    standing = sum(each for cause, each in energy.items() if not cause.startswith("devices: "))
    parts = [
        (seconds, energy[f"devices: {term}"] / seconds)
        for term in ORDER
        if (seconds := float(step.terms[term])) > 0
    ]
    seconds, watts = np.array(parts).T
    return Wave(seconds, pue * (watts + standing / whole))


def stalled(wave: Wave, step: "Breakdown", every: float, stall: float) -> Wave:
    """Return `every` s of training at the wave's mean, then `stall` s in which all devices are idle."""
    return Wave(np.array([every, stall]), np.array([wave.mean, float(idle_watts(step.experiment))]))


def staggered(wave: Wave, jobs: int) -> Wave:
    """Return the sum of that many jobs, each with its part of the power, a part of a period apart."""
    ends = np.cumsum(wave.seconds)
    shifts = wave.period * np.arange(jobs) / jobs
    edges = np.unique(np.round((ends[:, None] + shifts).ravel() % wave.period / wave.period, 12))
    edges = np.unique(np.concatenate([[0.0], edges, [1.0]])) * wave.period
    middle = (edges[:-1] + edges[1:]) / 2
    at = (middle[:, None] - shifts) % wave.period
    level = wave.watts[np.minimum(np.searchsorted(ends, at, side="right"), len(ends) - 1)]
    return Wave(np.diff(edges), level.mean(axis=1))


def floored(wave: Wave, floor: float) -> Wave:
    """Return the wave with no power below `floor` W."""
    return Wave(wave.seconds, np.maximum(wave.watts, floor))


def stored(wave: Wave, part: float, efficiency: float) -> tuple[Wave, float]:
    """Return the wave whose deviations from the mean shrink by `part`, and the J that the storage must hold.

    efficiency: of a round trip; losses are drawn evenly.
    """
    above = part * (wave.watts - wave.mean)
    level = np.concatenate([[0.0], np.cumsum(above * wave.seconds)])
    delivered = float((np.maximum(above, 0.0) * wave.seconds).sum())
    losses = delivered * (1 / efficiency - 1) / wave.period
    return Wave(wave.seconds, wave.watts - above + losses), float(level.max() - level.min())
