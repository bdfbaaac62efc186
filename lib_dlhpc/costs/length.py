"""How many steps a run has: epochs of all samples that are trained on, whose last batch is what is left over."""

from typing import Any

import numpy as np

from lib_dlhpc.spec.experiment import Experiment


def steps(experiment: Experiment) -> Any:
    """Return the optimiser steps of a run.

    Samples that are kept for tests are in none. An epoch goes through all others, and the last step of
    each may be short; of an epoch that is begun and not ended, as many steps as it takes.
    """
    whole = np.floor(experiment.run.epochs)
    rest = experiment.run.epochs - whole
    batches = experiment.dataset.trained / experiment.global_batch
    return whole * np.ceil(batches) + np.ceil(rest * batches)
