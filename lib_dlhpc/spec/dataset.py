"""Dataset: how many samples, in how many files, of how many bytes."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from lib_dlhpc.errors import SpecError
from lib_dlhpc.spec.schema import number, read_table, resolve, text, whole


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


def read_dataset(value: Any, path: str = "dataset") -> Dataset:
    """Build a Dataset from a catalog name or a table; raises SpecError."""
    table = resolve("datasets", value, path)
    shape = table.get("sample_shape", [])
    if not isinstance(shape, list) or not all(type(n) is int and n > 0 for n in shape):
        raise SpecError(
            f"{path}.sample_shape = {shape!r}: expected whole numbers such as [3, 224, 224]."
        )
    dataset: Dataset = read_table(Dataset, table, path, given={"sample_shape": tuple(shape)})
    return dataset
