"""Dataset: how many samples, in how many files, of how many bytes."""

from dataclasses import dataclass
from typing import Any

from lib_dlhpc.spec.errors import SpecError
from lib_dlhpc.spec.schema import number, read_table, resolve, text, whole


@dataclass(frozen=True)
class Dataset:
    """A training set as it lies on storage."""

    samples: int = whole()
    bytes: float = number("B", positive=True)
    files: int = whole(default=1)
    directories: int = whole(default=1)
    sample_shape: tuple[int, ...] = ()
    name: str = text()

    @property
    def sample_bytes(self) -> float:
        """Mean stored bytes of one sample."""
        return self.bytes / self.samples


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
