"""Training samples that need no download, and their order.

Real images: "digits" (1,797 of 8 x 8) and "mnist-5k" (5,000 of 28 x 28), see datasets/README.md. Synthetic,
from a seed: "waves" (images of two waves, one class a direction), "words" (sequences of a Markov chain)
and "densities" (cubes of a random field; the target is how its power falls with the wave number).
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from math import prod
from pathlib import Path
from threading import Lock
from typing import Any

import numpy as np

from lib_dlhpc import layout
from lib_dlhpc.errors import SpecError, listed
from lib_dlhpc.layers.base.saved import Array
from lib_dlhpc.layers.base.slices import part_of
from lib_dlhpc.spec.experiment import Experiment
from lib_dlhpc.training.learning_rate import batch_at

REAL = {"digits": (1797, 64, 10), "mnist-5k": (5000, 784, 10)}  # samples, numbers, classes
# The model that a data set needs: description, axes of a sample, axes of the output.
MADE = {
    "waves": ("images (channels, rows, columns) that gives a number for each class", (3,), 1),
    "words": ("sequences of words that gives a number for each word at each place", (1,), 2),
    "densities": ("fields (channels, axes of space) that gives numbers", (2, 3, 4), 1),
}
SHIFT = 0x5F1F7  # separates the random stream of shifts from all others
HERE = Path(__file__).parent / "datasets"
SOME = 64  # samples generated at once
# numpy parses the header of a file with `ast`, which CPython 3.11 cannot do in two threads at once: emulated ranks do.
_READING = Lock()


@dataclass(frozen=True)
class Data:
    """Training and test samples; targets are classes (integers) or regression values."""

    x: Array  # (samples, *sample_shape)
    y: Array
    test_x: Array
    test_y: Array

    @property
    def classes(self) -> bool:
        """Whether the targets are classes, so that accuracy is defined."""
        return bool(np.issubdtype(self.y.dtype, np.integer))

    @property
    def size(self) -> int:
        """B of all samples and targets."""
        return sum(int(array.nbytes) for array in (self.x, self.y, self.test_x, self.test_y))


def load(experiment: Experiment, dtype: Any = np.float32) -> Data:
    """Return the samples that an experiment trains and tests on, shaped for its model.

    The split is drawn once from seed 0, so it is the same for every run. Raises SpecError for a data set that can
    only be priced, and for one that does not fit the model: see check_data.
    """
    check_data(experiment)
    name, shape, many = experiment.dataset.name, experiment.model.input_shape, _many(experiment)
    if name in REAL:
        with _READING:
            images, y = stored(name)
        x = (images / dtype(images.max())).astype(dtype)
    else:
        x, y = _MAKERS[name](experiment, dtype)
    order = np.random.default_rng(0).permutation(len(x))[:many]
    x = x.reshape(len(x), *shape)
    test, train = np.split(order, [_tested(experiment)])
    return Data(x[train], y[train], x[test], y[test])


@cache
def stored(name: str) -> tuple[Array, Array]:
    """Return the images and the labels of a file of REAL, as they are stored; callers must not write to them."""
    with np.load(HERE / f"{name}.npz") as file:
        return file["images"], file["labels"].astype(np.int64)


def precision_of(experiment: Experiment) -> Any:
    """Return the dtype in memory; 16-bit precision applies to gradients on the wire only."""
    return np.float64 if experiment.strategy.precision == "fp64" else np.float32


def check_data(experiment: Experiment) -> None:
    """Raise SpecError, without generating samples, for a data set that does not fit the model."""
    dataset, model = experiment.dataset, experiment.model
    name, reads, gives = dataset.name, model.input_shape, model.output_shape
    legal = (*REAL, *MADE)
    if name not in legal:
        head = f"dataset.name = {name!r}: can be predicted but not trained;"
        raise SpecError(listed(head, name, legal, "to train:"))
    if name in REAL:
        samples, size, classes = REAL[name]
        fits = prod(reads) == size and len(gives) == 1 and gives[0] >= classes
        wanted = f"{size} numbers per sample, {classes} classes or more"
        if dataset.samples > samples:
            raise SpecError(f"dataset.samples = {dataset.samples}: {name} has {samples}.")
    else:
        wanted, axes, outputs = MADE[name]
        fits = len(reads) in axes and len(gives) == outputs
        if name == "words":
            fits = fits and gives[0] == reads[0]
    if not fits:
        raise SpecError(
            f"dataset.name = {name!r}: is for models of {wanted}; {model.name or model.family} reads"
            f" {reads} and gives {gives}."
        )
    if experiment.training.shift and len(reads) < 3:
        raise SpecError(
            f"training.shift = {experiment.training.shift}: only images can be shifted, and"
            f" {model.name or model.family} reads {reads}; the legal value is 0."
        )
    if not 0 < _tested(experiment) < dataset.samples:
        raise SpecError(
            f"dataset.samples = {dataset.samples}: too few to train with and, a share of"
            f" dataset.test_share = {dataset.test_share:g}, to test with."
        )


def samples_of(
    experiment: Experiment,
    data: Data,
    step: int,
    indices: Array,
    mine: slice,
    rows: slice | None = None,
    read: Array | None = None,
) -> Array:
    """Return a rank's samples of a global batch, with random image shifts if training.shift is set.

    rows: the rows of each image that the rank reads. All ranks draw for the whole batch, so the partition over
    ranks changes nothing. read: the samples as they come from storage; None: they are those in memory.
    """
    most = int(experiment.training.shift)
    if not most:
        return own_rows(data.x, rows)[indices[mine]] if read is None else own_rows(read, rows)
    rng = np.random.default_rng([experiment.run.seed, SHIFT, step])
    moves = rng.integers(-most, most + 1, (len(indices), 2))[mine]
    samples = data.x[indices[mine]] if read is None else read
    return own_rows(shifted(samples, moves), rows)


def own_rows(x: Array, rows: slice | None) -> Array:
    """Return these rows of images or fields, samples first; None for all."""
    return x if rows is None else x[:, :, rows]


def with_own_tokens(experiment: Experiment, place: int, data: Data) -> Data:
    """Return the samples with only the tokens of each sequence that the rank at a place of its context group has."""
    if experiment.strategy.context == 1:
        return data
    return Data(
        *(tokens_of(experiment, place, x) for x in (data.x, data.y, data.test_x, data.test_y))
    )


def tokens_of(experiment: Experiment, place: int, x: Array) -> Array:
    """Return the tokens of the sequences x that the rank at a place of its context group has."""
    s = experiment.strategy
    if s.context == 1:
        return x
    return part_of(x, (1, layout.own_tokens(x.shape[1], int(s.context), place, s.context_exchange)))


def shifted(x: Array, moves: Array) -> Array:
    """Return images shifted by (rows, columns) each, the gap filled with zeros (Krizhevsky et al. 2012, 4.1)."""
    result = np.zeros_like(x)
    height, width = x.shape[-2:]
    for image, source, (down, right) in zip(result, x, moves.tolist(), strict=True):
        into = _part(down, height), _part(right, width)
        image[..., *into] = source[..., _part(-down, height), _part(-right, width)]
    return result


def global_batches(
    experiment: Experiment, samples: int, epoch: int
) -> Iterator[tuple[float, Array]]:
    """Yield (epoch as a fraction, indices) of each global batch of an epoch, newly shuffled in each epoch.

    The order depends only on the seed and the epoch, never on the ranks. The last batch of an epoch
    holds the remainder: nothing is dropped.
    """
    order = np.random.default_rng([experiment.run.seed, epoch]).permutation(samples)
    size = batch_at(experiment.training, epoch, int(experiment.global_batch), samples)
    for start in range(0, samples, size):
        yield epoch + start / samples, order[start : start + size]


def share(batch: int, rank: int, ranks: int) -> slice:
    """Return a rank's samples of a global batch: contiguous, sizes differ by one at most."""
    return slice(rank * batch // ranks, (rank + 1) * batch // ranks)


def _waves(experiment: Experiment, dtype: Any) -> tuple[Array, Array]:
    rng, shape = np.random.default_rng(1), experiment.model.input_shape
    many, classes = _many(experiment), experiment.model.output_shape[-1]
    y = rng.integers(0, classes, many)
    angle = np.pi * (y + rng.normal(0, 0.15, many)) / classes
    axes = np.meshgrid(*(np.arange(extent) for extent in shape[-2:]), indexing="ij")
    phase = rng.uniform(0, 2 * np.pi, many)[:, None, None]
    x = np.empty((many, *shape), dtype)
    for start in range(0, many, SOME):  # avoids a full-size float64 array
        part = slice(start, start + SOME)
        along = np.multiply.outer(np.cos(angle[part]), axes[0])
        along += np.multiply.outer(np.sin(angle[part]), axes[1])
        waves = np.sin(2 * np.pi * along / 6 + phase[part])[:, None]
        x[part] = waves + rng.normal(0, 0.5, (len(waves), *shape))
    return x, y


def _words(experiment: Experiment, dtype: Any) -> tuple[Array, Array]:
    rng, (length,) = np.random.default_rng(1), experiment.model.input_shape
    words = experiment.model.output_shape[-1]
    chain = np.cumsum(rng.dirichlet(np.full(words, 0.1), words), axis=1)
    text = np.empty((_many(experiment), length + 1), np.int64)
    text[:, 0] = rng.integers(0, words, len(text))
    for place in range(length):
        drawn = rng.random((len(text), 1)) > chain[text[:, place]]
        text[:, place + 1] = np.minimum(drawn.sum(axis=1), words - 1)
    return text[:, :-1], text[:, 1:]


def _densities(experiment: Experiment, dtype: Any) -> tuple[Array, Array]:
    rng, shape = np.random.default_rng(1), experiment.model.input_shape
    many, outputs = _many(experiment), experiment.model.output_shape[-1]
    slopes = rng.uniform(1, 3, (many, outputs))
    frequencies = np.meshgrid(*(np.fft.fftfreq(extent) for extent in shape[1:]), indexing="ij")
    wave = np.sqrt(sum(f * f for f in frequencies))
    wave[(0,) * wave.ndim] = np.inf  # no mean
    x = np.empty((many, *shape), dtype)
    for sample, slope in enumerate(slopes):
        noise = np.fft.fftn(rng.normal(size=shape[1:]))
        for channel in range(shape[0]):
            field = np.fft.ifftn(noise * wave ** -slope[channel % outputs]).real
            x[sample, channel] = field / field.std()
    return x, ((slopes - 2).astype(dtype))


_MAKERS = {"waves": _waves, "words": _words, "densities": _densities}


def _many(experiment: Experiment) -> int:
    return int(experiment.dataset.samples)


def _tested(experiment: Experiment) -> int:
    return _many(experiment) - int(experiment.dataset.trained)


def _part(move: int, extent: int) -> slice:
    return slice(min(max(move, 0), extent), max(extent + min(move, 0), 0))
