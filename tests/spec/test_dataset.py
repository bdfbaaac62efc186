"""Laws of a Dataset: bytes a sample follow, and a wrong shape is named."""

import pytest

from lib_dlhpc.errors import SpecError
from lib_dlhpc.spec import catalog
from lib_dlhpc.spec.dataset import read_dataset


@pytest.mark.parametrize("name", catalog.names("datasets"))
def test_sample_bytes_add_up(name):
    dataset = read_dataset(name)
    assert dataset.sample_bytes * dataset.samples == pytest.approx(dataset.bytes)
    assert dataset.directories <= max(dataset.files, 1)


def test_a_dataset_written_out():
    dataset = read_dataset({"samples": "1 k", "bytes": "1 MB", "sample_shape": [3, 8, 8]})
    assert (dataset.samples, dataset.sample_bytes, dataset.sample_shape) == (1000, 1000, (3, 8, 8))
    assert dataset.files == dataset.directories == 1 and dataset.name == ""


@pytest.mark.parametrize("shape", [3, "3", [3, 0], [3, -1], [3.0], [True], [[3]], None, ["3"]])
def test_a_shape_is_positive_integers(shape):
    with pytest.raises(SpecError, match=r"dataset\.sample_shape"):
        read_dataset({"name": "imagenet", "sample_shape": shape})


@pytest.mark.parametrize("missing", ["samples", "bytes"])
def test_what_is_missing_is_named(missing):
    table = {"samples": 1, "bytes": 1}
    del table[missing]
    with pytest.raises(SpecError, match=rf"dataset\.{missing}: missing.*samples, bytes"):
        read_dataset(table)
