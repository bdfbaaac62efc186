"""Dataset: how many samples, in how many files, of how many bytes."""

import dataclasses
import math
from collections.abc import Mapping
from functools import cache
from typing import Any

import numpy as np

from lib_dlhpc.errors import SpecError
from lib_dlhpc.records import dataclass
from lib_dlhpc.spec import catalog
from lib_dlhpc.spec.schema import number, read_table, required, resolve, text, whole


@dataclass(frozen=True)
class Dataset:
    """A data set on storage.

    test_share: fraction of the samples held out for testing; 0 where the test set is separate, as is usual.
    """

    samples: int = whole()
    bytes: float = number("B", positive=True)
    files: int = whole(default=1)
    directories: int = whole(default=1)
    sample_shape: tuple[int, ...] = ()
    test_share: float = number(default=0.0, most=0.9)
    name: str = text()

    @property
    def sample_bytes(self) -> float:
        """Mean stored bytes of one sample."""
        return self.bytes / self.samples

    @property
    def trained(self) -> Any:
        """Training samples: all but those held out for testing."""
        return self.samples - np.round(self.samples * self.test_share)


SIZES = {"samples", "sample_shape"}  # fields: where a table states one of them, nothing is cut


def read_dataset(value: Any, path: str = "dataset", shape: tuple[int, ...] = ()) -> Dataset:
    """Build a Dataset from a catalog name or a table; raises SpecError. shape: of a model's samples; see `cut`."""
    table = resolve("datasets", value, path, required(Dataset))
    own = table.get("sample_shape", [])
    if not isinstance(own, list) or not all(type(n) is int and n > 0 for n in own):
        raise SpecError(
            f"{path}.sample_shape = {own!r}: expected whole numbers such as [3, 224, 224]."
        )
    dataset: Dataset = read_table(Dataset, table, path, given={"sample_shape": tuple(own)})
    return dataset if isinstance(value, Mapping) and SIZES & value.keys() else cut(dataset, shape)


def cut(dataset: Dataset, shape: tuple[int, ...]) -> Dataset:
    """Return a text in files cut into samples of a model's sequence, the last one dropped; other data as they are."""
    stored = np.all(np.greater(dataset.files, 1))  # one array in memory is drawn at any length
    if not stored or not len(dataset.sample_shape) == len(shape) == 1:
        return dataset
    samples = dataset.samples * dataset.sample_shape[0] // shape[0]
    samples = max(samples, 1) if isinstance(samples, int) else np.maximum(samples, 1)
    return dataclasses.replace(dataset, samples=samples, sample_shape=shape)


def usual_dataset(shape: tuple[int, ...], tokens: bool) -> str:
    """Return the catalog's data set for a model: of its samples' size, or else of their number of dimensions.

    shape: of a sample. tokens: whether that is a sequence of them; a flat sample of numbers may be a whole image.
    """
    dimensions = len(shape)
    for name, stored in _sample_shapes().items():
        alike = len(stored) == dimensions or (dimensions == 1 and not tokens)
        if alike and math.prod(stored) == math.prod(shape):
            return name
    usual = {1: "webtext", 3: "imagenet", 4: "cosmoflow"}
    if len(shape) not in usual:
        raise SpecError(
            f"dataset is missing, and the catalog has none of shape {list(shape)}; legal:"
            f" {', '.join(catalog.names('datasets'))}."
        )
    return usual[len(shape)]


@cache
def _sample_shapes() -> dict[str, tuple[int, ...]]:
    """Return the shape of a sample of each data set that has one, by name."""
    shapes = {name: read_dataset(name).sample_shape for name in catalog.names("datasets")}
    return {name: shape for name, shape in shapes.items() if shape}
