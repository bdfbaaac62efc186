"""Fields turned into samples: a field and its later state, batch after batch.

Sample number i is the field before and after the steps [i sampling, (i + 1) sampling); every `restart` steps
the simulation restarts from a new initial field, so no sample spans two of them.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from lib_dlhpc.spec.workflow import Simulation
from lib_dlhpc.training.coupled.heat import Heat, first_field

UNSEEN = 1_000_000  # offset of the seed of the test samples


class Log(Protocol):
    """The part of a Recorder that is used here."""

    def now(self) -> float:
        """Return the seconds of this rank's clock."""

    def add(self, kind: str, name: str, start: float, stop: float) -> None:
        """Record an activity of this rank."""


class NoLog:
    """A Log that records nothing."""

    def now(self) -> float:
        """Return no time."""
        return 0.0

    def add(self, kind: str, name: str, start: float, stop: float) -> None:
        """Do nothing."""


class Samples:
    """The samples of one rank's rows, in their order."""

    def __init__(self, heat: Heat, log: Log) -> None:
        self.heat, self.log, self.number = heat, log, 0
        self._since = 0.0  # when the simulation last resumed

    def batch(self, many: int, between: Callable[[], None] = lambda: None) -> NDArray[np.float64]:
        """Return the next samples: (before and after, many, rows, grid). between: called after each."""
        heat = self.heat
        made = np.empty((2, many, *heat.field.shape))
        self._since = self.log.now()
        for index in range(many):
            self._one(made[0, index], made[1, index])
            between()
        self.log.add("region", "simulate", self._since, self.log.now())
        return made

    def _one(self, before: NDArray[np.float64], after: NDArray[np.float64]) -> None:
        heat, simulation = self.heat, self.heat.simulation
        step = self.number * simulation.sampling
        if step % simulation.restart == 0:
            heat.begin(first_field(simulation, step // simulation.restart))
        before[...] = heat.field
        for _ in range(simulation.sampling):
            heat.step(self._halo, self.log.now)
        after[...] = heat.field
        self.number += 1

    def _halo(self, start: float, stop: float) -> None:
        """Split the simulation's time at a halo exchange."""
        self.log.add("region", "simulate", self._since, start)
        self.log.add("wait", "exchange rows", start, stop)
        self._since = stop


def unseen(simulation: Simulation, many: int) -> NDArray[np.float64]:
    """Return samples of initial fields that training never sees: (2, many, grid, grid)."""
    other = replace(simulation, seed=simulation.seed + UNSEEN, restart=4 * simulation.sampling)
    return Samples(Heat(other), NoLog()).batch(many)
