"""Samples to train on, without a network connection, and the order in which they come.

Real images: "digits" (1,797 of 8 x 8) and "mnist-5k" (5,000 of 28 x 28), see datasets/README.md. Made up,
from a seed: "waves" (images of two waves, one class a direction), "words" (sequences of a Markov chain)
and "densities" (cubes of a random field; the target is how its power falls with the wave number).
"""

from collections.abc import Iterator
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from lib_dlhpc.spec.errors import SpecError, suggest
from lib_dlhpc.spec.experiment import Experiment
from lib_dlhpc.train.layers.kept import Array
from lib_dlhpc.train.rates import batch_at

REAL = ("digits", "mnist-5k")
MADE = ("waves", "words", "densities")
HERE = Path(__file__).parent / "datasets"


@dataclass(frozen=True)
class Data:
    """Training and test samples; targets are classes (whole numbers) or numbers to come near to."""

    x: Array  # (samples, *sample_shape)
    y: Array
    test_x: Array
    test_y: Array

    @property
    def classes(self) -> bool:
        """Whether the targets are classes, so that there is an accuracy."""
        return bool(np.issubdtype(self.y.dtype, np.integer))


def load(experiment: Experiment, dtype: Any = np.float32) -> Data:
    """Return the samples that an experiment trains on and tests with, shaped for its model.

    The split is drawn once from seed 0, so it is the same for every run. Raises SpecError for a data set that only
    has a price, and for one that the model cannot read.
    """
    name, shape = experiment.dataset.name, experiment.model.input_shape
    if name in REAL:
        with np.load(HERE / f"{name}.npz") as file:
            images, y = file["images"], file["labels"].astype(np.int64)
        x = (images / dtype(images.max())).astype(dtype)
    elif name in MADE:
        x, y = _MAKERS[name](experiment, dtype)
    else:
        legal = (*REAL, *MADE)
        raise SpecError(
            f"dataset.name = {name!r}: can be priced but not trained; to train: {', '.join(legal)}."
            f"{suggest(name, legal)}"
        )
    if prod(x.shape[1:]) != prod(shape):
        raise SpecError(
            f"dataset.name = {name!r}: samples of shape {x.shape[1:]}; the model"
            f" {experiment.model.name or experiment.model.family} reads {shape}."
        )
    _check_outputs(experiment, y)
    x = x.reshape(len(x), *shape)
    order = np.random.default_rng(0).permutation(len(x))
    test, train = np.split(order, [round(len(x) * experiment.training.test_share)])
    return Data(x[train], y[train], x[test], y[test])


def global_batches(
    experiment: Experiment, samples: int, epoch: int
) -> Iterator[tuple[float, Array]]:
    """Yield (epoch as a fraction, indices) of each global batch of an epoch, in an order of its own.

    The order depends on the seed and the epoch alone, never on the ranks. The last batch of an epoch
    is what is left over: nothing is dropped.
    """
    order = np.random.default_rng([experiment.run.seed, epoch]).permutation(samples)
    size = batch_at(experiment.training, epoch, int(experiment.global_batch), samples)
    for start in range(0, samples, size):
        yield epoch + start / samples, order[start : start + size]


def share(batch: int, rank: int, ranks: int) -> slice:
    """Return which samples of a global batch are a rank's: neighbours, as even as whole numbers allow."""
    return slice(rank * batch // ranks, (rank + 1) * batch // ranks)


def _waves(experiment: Experiment, dtype: Any) -> tuple[Array, Array]:
    rng, shape = np.random.default_rng(1), experiment.model.input_shape
    many, classes = experiment.dataset.samples, experiment.model.output_shape[-1]
    y = rng.integers(0, classes, many)
    angle = np.pi * (y + rng.normal(0, 0.15, many)) / classes
    axes = np.meshgrid(*(np.arange(extent) for extent in shape[-2:]), indexing="ij")
    along = np.multiply.outer(np.cos(angle), axes[0]) + np.multiply.outer(np.sin(angle), axes[1])
    phase = rng.uniform(0, 2 * np.pi, many)[:, None, None]
    waves = np.sin(2 * np.pi * along / 6 + phase)[:, None]
    noise = rng.normal(0, 0.5, (many, *shape))
    return (waves + noise).astype(dtype), y


def _words(experiment: Experiment, dtype: Any) -> tuple[Array, Array]:
    rng, (length,) = np.random.default_rng(1), experiment.model.input_shape
    words = experiment.model.output_shape[-1]
    chain = np.cumsum(rng.dirichlet(np.full(words, 0.1), words), axis=1)
    text = np.empty((experiment.dataset.samples, length + 1), np.int64)
    text[:, 0] = rng.integers(0, words, len(text))
    for place in range(length):
        drawn = rng.random((len(text), 1)) > chain[text[:, place]]
        text[:, place + 1] = np.minimum(drawn.sum(axis=1), words - 1)
    return text[:, :-1], text[:, 1:]


def _densities(experiment: Experiment, dtype: Any) -> tuple[Array, Array]:
    rng, shape = np.random.default_rng(1), experiment.model.input_shape
    many, outputs = experiment.dataset.samples, experiment.model.output_shape[-1]
    slopes = rng.uniform(1, 3, (many, outputs))
    frequencies = np.meshgrid(*(np.fft.fftfreq(extent) for extent in shape[1:]), indexing="ij")
    wave = np.sqrt(sum(f * f for f in frequencies))
    wave[(0,) * wave.ndim] = np.inf  # no mean
    x = np.empty((many, *shape), dtype)
    for sample, own in enumerate(slopes):
        noise = np.fft.fftn(rng.normal(size=shape[1:]))
        for channel in range(shape[0]):
            field = np.fft.ifftn(noise * wave ** -own[channel % outputs]).real
            x[sample, channel] = field / field.std()
    return x, ((slopes - 2).astype(dtype))


_MAKERS = {"waves": _waves, "words": _words, "densities": _densities}


def _check_outputs(experiment: Experiment, y: Array) -> None:
    outputs = experiment.model.output_shape[-1]
    if np.issubdtype(y.dtype, np.integer) and y.max() >= outputs:
        raise SpecError(
            f"dataset.name = {experiment.dataset.name!r}: {y.max() + 1} classes; the model tells"
            f" {outputs} apart."
        )
