"""A run cut short: as many steps as it takes to tell what one costs, each of a whole batch."""

from dataclasses import replace

from lib_dlhpc.spec.dataset import Dataset
from lib_dlhpc.spec.errors import SpecError
from lib_dlhpc.spec.experiment import Experiment

FEWEST, MOST = 12, 200  # steps; a run records no more than 200 of them


def shortened(experiment: Experiment, steps: int) -> Experiment:
    """Return the run with `steps` steps, on so many samples that no epoch ends with part of a batch.

    A data set of fewer samples than a batch stays as it is: a step is an epoch then. Raises SpecError for
    steps below 1.
    """
    if steps < 1:
        raise SpecError(f"steps = {steps}: expected a whole number, at least 1.")
    batch, dataset = int(experiment.global_batch), experiment.dataset
    whole = int(dataset.trained) // batch
    if whole < 1:
        return replace(experiment, run=replace(experiment.run, epochs=float(steps)))
    each = min(whole, steps)
    every = int(
        experiment.strategy.local_steps
    )  # ranks that meet every so many steps do so at an epoch's end
    each = each // every * every or each
    cut = _with_trained(dataset, each * batch)
    epochs, rest = divmod(steps, each)
    part = rest * batch / int(cut.trained)
    return replace(experiment, dataset=cut, run=replace(experiment.run, epochs=epochs + part))


def steps_of_an_epoch(experiment: Experiment) -> int:
    """Return how many steps an epoch has."""
    return -(-int(experiment.dataset.trained) // int(experiment.global_batch))


def steps_in(seconds: float, step: float) -> int:
    """Return how many steps of `step` s to run for about so many seconds, from FEWEST to MOST."""
    return int(min(max(seconds / max(step, 1e-9), FEWEST), MOST))


def _with_trained(dataset: Dataset, trained: int) -> Dataset:
    """Return the first samples of a data set, just so many that `trained` of them are trained on."""
    guess = int(trained / (1 - dataset.test_share))
    for samples in range(max(guess - 2, 1), dataset.samples + 1):
        cut = replace(dataset, samples=samples)
        if cut.trained == trained:
            break
    share = samples / dataset.samples
    files = max(round(dataset.files * share), 1)
    return replace(cut, bytes=dataset.bytes * share, files=files)
