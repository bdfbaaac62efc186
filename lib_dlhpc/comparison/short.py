"""Shorten a run to as many steps as a measurement needs, each of a full batch."""

from dataclasses import replace

from lib_dlhpc.errors import SpecError
from lib_dlhpc.spec.dataset import Dataset
from lib_dlhpc.spec.experiment import Experiment

FEWEST, MOST = 12, 200  # steps; a run records no more than 200 of them


def shortened(experiment: Experiment, steps: int) -> Experiment:
    """Return the run with `steps` steps, on a data set without a partial batch.

    A data set smaller than a batch stays as it is: each step is an epoch. Raises SpecError for steps below 1.
    """
    if steps < 1:
        raise SpecError(f"steps = {steps}: expected a whole number, at least 1.")
    batch, dataset = int(experiment.global_batch), experiment.dataset
    whole = int(dataset.trained) // batch
    if whole < 1:
        return replace(experiment, run=replace(experiment.run, epochs=float(steps)))
    each = min(whole, steps)
    every = int(experiment.strategy.local_steps)  # local SGD: synchronize at the end of an epoch
    each = each // every * every or each
    cut = _with_trained(dataset, each * batch)
    epochs, rest = divmod(steps, each)
    part = rest * batch / int(cut.trained)
    storage, share = experiment.storage, cut.bytes / dataset.bytes
    return replace(
        experiment,
        dataset=cut,
        storage=replace(storage, cache=storage.cache * share),  # of the same part of the data set
        run=replace(experiment.run, epochs=epochs + part),
    )


def steps_of_an_epoch(experiment: Experiment) -> int:
    """Return the steps of an epoch."""
    return -(-int(experiment.dataset.trained) // int(experiment.global_batch))


def steps_in(seconds: float, step: float) -> int:
    """Return how many steps of `step` s take about `seconds`, from FEWEST to MOST."""
    return int(min(max(seconds / max(step, 1e-9), FEWEST), MOST))


def _with_trained(dataset: Dataset, trained: int) -> Dataset:
    """Return the first samples of a data set, as many as give `trained` training samples."""
    guess = int(trained / (1 - dataset.test_share))
    for samples in range(max(guess - 2, 1), dataset.samples + 1):
        cut = replace(dataset, samples=samples)
        if cut.trained == trained:
            break
    share = samples / dataset.samples
    files = max(round(dataset.files * share), 1)
    return replace(cut, bytes=dataset.bytes * share, files=files)
