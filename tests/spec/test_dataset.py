"""Laws of a Dataset: bytes a sample follow, and a wrong shape is named."""

import numpy as np
import pytest

from lib_dlhpc.errors import SpecError
from lib_dlhpc.spec import catalog
from lib_dlhpc.spec.dataset import read_dataset
from lib_dlhpc.spec.experiment import Experiment, dumps, load, loads


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


def test_a_stored_text_is_cut_to_the_models_sequence():
    """An epoch reads each token once, whatever the sequence; data that a table describes are as the table says."""
    text = read_dataset("webtext")
    for model, sequence in (("gpt2-1.5b", 1024), ("llama3-8b", 8192)):
        cut = Experiment(model=model, machine="summit").dataset
        assert cut.sample_shape == (sequence,) and cut.bytes == text.bytes
        assert 0 <= text.samples * 1024 - cut.samples * sequence < sequence
    own = {"name": "webtext", "samples": 1000, "sample_shape": [1024]}
    assert Experiment(model="llama3-8b", machine="summit", dataset=own).dataset.samples == 1000
    made = Experiment(model="llama-tiny", machine="laptop", dataset="words").dataset
    assert made == read_dataset("words")


def test_a_text_stays_cut_where_the_model_or_the_text_changes():
    llama = Experiment(model="llama3-8b", machine="summit", dataset={"name": "webtext"})
    longer = llama.set({"model.sequence": 2 * 8192})
    assert longer.dataset.samples == llama.dataset.samples // 2
    assert loads(dumps(longer)) == longer
    assert longer.set({"model.sequence": 8192}) == llama
    assert llama.set({"dataset.files": 200}).dataset.samples == llama.dataset.samples
    many = llama.set({"dataset.samples": np.array([10, 20])}).set({"model.sequence": 4096})
    assert list(many.dataset.samples) == [20, 40]
    books = llama.set({"dataset.name": "wikipedia-books"})
    assert books == Experiment(model="llama3-8b", machine="summit", dataset="wikipedia-books")
    own = llama.set({"dataset.name": "wikipedia-books", "dataset.samples": 7})
    assert own.dataset.samples == 7


def test_a_run_over_stated_samples_keeps_its_tokens_under_another_model():
    """Published runs state samples of their model's sequence, on texts whose own samples are shorter."""
    run = load("deepseek-v3-2048-h800")
    for changes in ({"model.name": "deepseek-v3.2"}, {"model.sequence": 32768}):
        other = run.set(changes)
        tokens = [each.dataset.samples * each.model.input_shape[0] for each in (run, other)]
        assert run.model.input_shape != other.model.input_shape
        assert tokens[1] == pytest.approx(tokens[0], rel=1e-6)
    assert run.set({"model.name": "deepseek-v3.2", "dataset.samples": 7}).dataset.samples == 7


@pytest.mark.parametrize("name", [each for each in catalog.names("models") if each != "frnn"])
def test_a_model_without_a_dataset_gets_one_of_its_kind(name):
    """4,096 tokens are not the 16 x 16 x 16 voxels of a cube, nor are 4 x 32 x 32 latent values."""
    run = Experiment(model=name, machine="h100-pod")
    shape, stored = run.model.input_shape, run.dataset.sample_shape
    if run.model.reads_tokens:
        assert run.dataset.name in ("webtext", "wikipedia-books", "words")
    else:
        assert len(stored) == len(shape) or np.prod(stored) == np.prod(shape)
