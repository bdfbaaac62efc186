"""A service in TOML: what is legal, and what a wrong file is told."""

from pathlib import Path

import numpy as np
import pytest
from services import TINY, large, tiny

from lib_dlhpc.errors import SpecError
from lib_dlhpc.serving import read_service
from lib_dlhpc.serving.service import arrivals, lengths


@pytest.mark.parametrize(
    ("tables", "words"),
    [
        ({"model": TINY}, r"\[machine\] is missing"),
        ({"model": TINY, "machine": "laptop", "servise": {}}, "servise: unknown key"),
        ({"model": "resnet50", "machine": "summit"}, "'resnet50': does not generate text"),
        ({"model": "bert-large", "machine": "summit"}, "bert-large"),
        (
            {"model": TINY, "machine": "laptop", "service": {"batching": "dynamic"}},
            "service.batching = 'dynamic': legal: continuous, static",
        ),
        (
            {"model": TINY, "machine": "laptop", "service": {"devices": 4, "replicas": 2}},
            "service.devices = 4, service.replicas = 2: laptop has 4 devices",
        ),
        (
            {"model": TINY, "machine": "laptop", "requests": {"prompt": 0}},
            "requests.prompt = 0: legal: a whole number of at least 1",
        ),
    ],
)
def test_an_error_names_the_value_and_the_legal_ones(tables, words):
    with pytest.raises(SpecError, match=words):
        read_service(tables)


def test_a_file_is_named_once_in_its_error(tmp_path):
    file = tmp_path / "broken.toml"
    for text in ("[model", '[model]\nname = "llama-tiny"'):
        file.write_text(text)
        with pytest.raises(SpecError) as error:
            read_service(file)
        assert str(error.value).count("broken.toml") == 1


def test_the_experiment_of_the_lab_is_a_service(repository):
    assert read_service(repository / "labs/experiments/serving.toml").service.batch == 8


def test_lengths_and_arrivals_have_the_means_and_spreads_that_were_asked_for():
    service = large(count=40_000, rate=4.0, prompt=500, answer=100, answer_spread=0.8)
    prompts, answers = lengths(service)
    assert (prompts == 500).all()
    assert np.mean(answers) == pytest.approx(100, rel=0.03)
    assert np.std(answers) / np.mean(answers) == pytest.approx(0.8, rel=0.06)
    gaps = np.diff(arrivals(service))
    assert np.mean(gaps) == pytest.approx(0.25, rel=0.03)
    assert np.std(gaps) == pytest.approx(0.25, rel=0.03)


def test_a_seed_gives_the_same_load_and_another_seed_another():
    one, same, other = (tiny(rate=1.0, answer_spread=0.5, seed=seed) for seed in (1, 1, 2))
    assert (arrivals(one) == arrivals(same)).all()
    assert (lengths(one)[1] == lengths(same)[1]).all()
    assert (arrivals(one) != arrivals(other)).all()


def test_a_model_on_a_machine_is_a_service_in_one_word(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    tables = {"model": {"name": "llama3-8b"}, "machine": {"name": "h100-pod"}}
    assert read_service("llama3-8b@h100-pod") == read_service(tables)
    Path("ours.toml").write_text('[machine]\nname = "h100-pod"\n')
    assert read_service("llama3-8b@ours.toml") == read_service(tables)
    Path("own.toml").write_text('[model]\nname = "llama3-8b"\n[service]\nbatch = 2\n')
    own = read_service("own.toml@h100-pod")
    assert own == read_service(tables | {"service": {"batch": 2}})
    with pytest.raises(SpecError, match=r"model\.name = 'llama8b': not in the catalog"):
        read_service("llama8b@h100-pod")


def test_a_model_alone_lacks_its_machine():
    with pytest.raises(SpecError, match=r"llama3-8b is a model: name its machine too, such as"):
        read_service("llama3-8b")


def test_paths_of_services_may_have_an_at_in_them(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("user@host").mkdir()
    Path("user@host/own.toml").write_text('[model]\nname = "llama3-8b"\n')
    assert read_service("user@host/own.toml@h100-pod") == read_service("llama3-8b@h100-pod")
    with pytest.raises(SpecError, match=r"user@host/missing\.toml: cannot be read"):
        read_service("user@host/missing.toml")
    with pytest.raises(SpecError, match="cannot be read"):
        read_service("x" * 300 + "@h100-pod")


def test_a_misspelled_field_of_any_table_has_a_hint():
    with pytest.raises(SpecError, match=r"set\.btch: unknown key\. Did you mean 'batch'\?"):
        read_service("llama3-8b@h100-pod").set(btch=3)
