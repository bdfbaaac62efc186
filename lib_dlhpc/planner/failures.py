"""Chosen layouts with failures: runs simulated from start to end, beside the closed form.

A run takes the step that all its ranks take, with stragglers: as events, whose messages share links, where these are
few enough, else in rounds. It saves and restarts as in simulation/failures.py; the closed form
(prediction/failures/resilience.py) takes the predicted step. Needs the extra [sim].
"""

from typing import NamedTuple

import numpy as np

from lib_dlhpc.errors import SpecError
from lib_dlhpc.planner.result import Choice, Plan
from lib_dlhpc.prediction.failures.resilience import in_words, resilience
from lib_dlhpc.spec.experiment import Experiment
from lib_dlhpc.timeline import breakdown

RUNS = 100  # simulated, of each layout
STEPS = 2  # simulated for the mean step
EVENTS = 100_000  # messages that are followed one by one; some seconds


class WithFailures(NamedTuple):
    """A layout with checkpoints and failures; s. A run that makes no headway never ends: inf."""

    layout: str
    expected_time: float  # from start to end, by the closed form
    simulated_time: float  # the mean of RUNS runs
    standard_error: float  # of that mean
    step_time: float  # simulated, without checkpoints
    fidelity: str  # of that step: events or rounds

    @property
    def words(self) -> str:
        """The times in words."""
        times = (
            f"{in_words(self.expected_time)} expected, {in_words(self.simulated_time)} simulated in"
            f" {self.fidelity}"
        )
        if np.isfinite(self.simulated_time):
            times += f" (± {self.standard_error / self.simulated_time:.1%}, {RUNS} runs)"
        return f"{times}: {self.layout}"


def with_failures(plan: Plan) -> tuple[WithFailures, ...]:
    """Return the best layout with failures, and of several objectives the knee; none where no node fails or nothing is
    saved.

    The seed is run.seed. Raises ModuleNotFoundError without the extra [sim], and SpecError for more ranks than a
    simulation takes.
    """
    base = plan.base
    if not (np.isfinite(base.machine.node_mtbf) and base.run.checkpoint_interval):
        return ()
    chosen = [plan.best, plan.knee] if len(plan.objectives) > 1 else [plan.best]
    return tuple(map(_simulated, chosen[: 1 + (chosen[-1] is not chosen[0])]))


def _simulated(choice: Choice) -> WithFailures:
    from lib_dlhpc.simulation.failures import simulate_failures

    experiment = choice.experiment
    step, fidelity = _step(experiment)
    expected = float(resilience(choice.prediction).expected_run)
    try:
        wall = simulate_failures(experiment, RUNS, step=step).wall
    except SpecError:  # no headway
        wall = np.full(RUNS, np.inf)
    ends = bool(np.isfinite(wall).all())
    error = float(wall.std(ddof=1)) / RUNS**0.5 if ends else 0.0
    return WithFailures(choice.words, expected, float(wall.mean()), error, step, fidelity)


def _step(experiment: Experiment) -> tuple[float, str]:
    """Return the mean s of a simulated step, and how it was simulated."""
    from lib_dlhpc.simulation import simulate, simulate_terms
    from lib_dlhpc.simulation.message_count import messages

    seed = experiment.run.seed
    if messages(experiment, STEPS, EVENTS) > EVENTS:
        return float(simulate_terms(experiment, seed, STEPS).step_time), "rounds"
    return float(breakdown(simulate(experiment, "events", seed, STEPS)).step_time), "events"
