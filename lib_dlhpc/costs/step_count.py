"""Number of steps of a run; the last batch of an epoch may be smaller."""

from typing import Any

import numpy as np

from lib_dlhpc.spec.experiment import Experiment


def steps(experiment: Experiment) -> Any:
    """Return the optimizer steps of a run.

    Samples held out for testing are excluded. An epoch processes all training samples, and its last step
    may be short; a partial epoch is rounded up to whole steps.
    """
    whole = np.floor(experiment.run.epochs)
    rest = experiment.run.epochs - whole
    batches = experiment.dataset.trained / experiment.global_batch
    return whole * np.ceil(batches) + np.ceil(rest * batches)
