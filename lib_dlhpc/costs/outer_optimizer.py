"""The outer optimizer of local updates priced: what it reads and writes after each average, and what it holds.

With mean weights w, reference r and velocity v: d = r - w; v = m v + d; w = r - rate (d + m v); r = w. Source:
Douillard et al. 2023, "DiLoCo: Distributed low-communication training of language models", algorithm 1.
"""

from typing import Any

import numpy as np

from lib_dlhpc.costs.roofline import streaming_time
from lib_dlhpc.spec.experiment import Experiment


def has_outer(experiment: Experiment) -> Any:
    """Return whether there is one: an outer rate of 1 without momentum is plain averaging."""
    training = experiment.training
    return np.not_equal(training.outer_rate, 1) | np.greater(training.outer_momentum, 0)


def outer_time(experiment: Experiment) -> Any:
    """Return the seconds of an outer update: memory-bound, on fp32 (master) weights."""
    # w and r are read and written; so is v, if there is momentum.
    numbers = has_outer(experiment) * (4 + 2 * np.greater(experiment.training.outer_momentum, 0))
    moved = 4 * numbers * experiment.model.parameters
    return streaming_time(experiment.machine.device, experiment.strategy.optimizer, moved)


def outer_arrays(experiment: Experiment) -> Any:
    """Return how many fp32 numbers a weight takes beside the inner optimizer's: the reference, and the velocity."""
    return has_outer(experiment) * (1 + np.greater(experiment.training.outer_momentum, 0))
