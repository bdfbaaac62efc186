"""What failures make of a run: how much of its time becomes training, and the interval to choose.

An experiment gives the cost of a checkpoint (costs/checkpoints.py) and machine.node_mtbf the failures; the
formulas are in intervals.py. Failures come at random and strike any node; one stops all of them. What is
not modelled: failures that come in groups or leave a node slow, spares that run out, and state that is
wrong without anyone noticing.
"""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from lib_dlhpc.costs.checkpoints import Saving, saving
from lib_dlhpc.prediction.breakdown import Breakdown, predict
from lib_dlhpc.prediction.intervals import (
    best_interval,
    daly,
    daly_first_order,
    exact,
    expected_cycle,
    goodput,
    mean_restart,
    system_mtbf,
    young,
)
from lib_dlhpc.spec.experiment import Experiment
from lib_dlhpc.spec.units import format_quantity

__all__ = [
    "Resilience",
    "best_interval",
    "daly",
    "daly_first_order",
    "exact",
    "expected_cycle",
    "goodput",
    "resilience",
    "system_mtbf",
    "young",
]

NEVER = 10_000 * 31557600.0  # s: nobody waits longer


@dataclass(frozen=True)
class Resilience:
    """A run with checkpoints and failures; seconds, every value may be an array."""

    prediction: Breakdown
    saving: Saving  # what one checkpoint costs
    mtbf: Any  # s between failures of all nodes together

    @property
    def work(self) -> Any:
        """Seconds of training in the run: its steps without their share of checkpoints."""
        p = self.prediction
        return p.steps * (p.step_time - p.checkpoint)

    @property
    def interval(self) -> Any:
        """Seconds of training between two checkpoints, as chosen; those of the whole run where there are none.

        Of any length: the formulas know no steps. predict() writes one checkpoint a step at most.
        """
        chosen = self.prediction.experiment.run.checkpoint_interval
        return np.where(np.equal(chosen, 0), self.work, np.minimum(chosen, self.work))[()]

    @property
    def expected_time(self) -> Any:
        """Expected seconds from start to end: time_to_train, lost work and restarts; inf without headway."""
        cycles = self.work / self.interval
        return self.prediction.start_time + cycles * expected_cycle(
            self.interval, self._spread, self.mtbf
        )

    @property
    def goodput(self) -> Any:
        """Share of the expected time that becomes training, 0 to 1."""
        return self.work / self.expected_time

    @property
    def failures(self) -> Any:
        """Expected number of failures until the run is done."""
        return self.expected_time / self.mtbf

    @property
    def shares(self) -> dict[str, Any]:
        """Shares of the expected time by cause; they add up to 1."""
        # In shares rather than in seconds, which have no end where no headway is made.
        cycle = expected_cycle(self.interval, self._spread, self.mtbf)
        upright = 1 / (1 + mean_restart(self._spread, self.mtbf) / self.mtbf)
        training = self.interval / cycle
        still = np.minimum(self._spread.standstill(self.interval) / cycle, upright - training)
        parts = {
            "training": training,
            "checkpoints": still,
            "work done again": upright - training - still,  # and checkpoints that are
            "restarts": 1 - upright,
        }
        start = self.prediction.start_time / self.expected_time
        return {
            "first start": start,
            **{name: share * (1 - start) for name, share in parts.items()},
        }

    @property
    def young(self) -> Any:
        """Young's interval for the seconds that training stands still."""
        return young(self.saving.blocked, self.mtbf)

    @property
    def daly(self) -> Any:
        """Daly's higher-order interval for the seconds that training stands still."""
        return daly(self.saving.blocked, self.mtbf)

    @property
    def best(self) -> Any:
        """The interval of the highest goodput, exactly."""
        return best_interval(self.saving, self.mtbf)

    @property
    def best_goodput(self) -> Any:
        """Share of the time that becomes training with the best interval, in a long run."""
        return self.goodput_at(self.best)

    def goodput_at(self, interval: Any) -> Any:
        """Return the share of the time that becomes training with another interval, in a long run."""
        never = np.isinf(interval)
        share = goodput(np.where(never, 1.0, interval), self.saving, self.mtbf)
        return np.where(never, 1.0, share)[()]

    @property
    def _spread(self) -> Saving:
        """The cost of a checkpoint for each `interval`: a run that is shorter than it has a part of one."""
        chosen = self.prediction.experiment.run.checkpoint_interval
        none = np.equal(chosen, 0)
        part = np.where(none, 0.0, self.interval / np.where(none, 1.0, chosen))
        again = self.prediction.experiment.machine.restart_time + self.prediction.start_time
        return replace(
            self.saving,
            blocked=part * self.saving.blocked,
            background=part * self.saving.background,
            restart=np.where(none, again, self.saving.restart),  # with nothing to read ...
            survived=np.where(none, 0.0, self.saving.survived),  # ... anywhere
        )


def in_words(expected_time: float) -> str:
    """Return an expected time with its unit; "never done" from ten thousand years on."""
    return "never done" if expected_time >= NEVER else format_quantity(expected_time, "s")


def resilience(run: Experiment | Breakdown) -> Resilience:
    """Return what failures make of an experiment, or of one that is predicted already.

    Source: Young 1974, Daly 2006; see intervals.py. Raises SpecError as predict does.
    """
    prediction = predict(run) if isinstance(run, Experiment) else run
    experiment = prediction.experiment
    nodes = experiment.strategy.nodes + experiment.servers
    return Resilience(
        prediction, saving(experiment), system_mtbf(experiment.machine.node_mtbf, nodes)
    )
