"""Laws of the public names: verbs are functions, packages are nouns, names of the catalog make an experiment."""

import subprocess
import sys

import pytest

import lib_dlhpc
from lib_dlhpc import Experiment, SpecError, loads
from lib_dlhpc.results import Result
from lib_dlhpc.spec import catalog
from lib_dlhpc.spec.experiment import dumps

VERBS = [
    "load",
    "predict",
    "sweep",
    "simulate",
    "run",
    "compare",
    "calibrate",
    "validate",
    "submit",
]


@pytest.mark.parametrize("verb", VERBS)
def test_a_verb_is_a_documented_function_whatever_was_imported_before(verb):
    function = getattr(lib_dlhpc, verb)
    assert function.__name__ == verb and function.__doc__
    code = (
        "import lib_dlhpc.prediction, lib_dlhpc.comparison, lib_dlhpc.training.network\n"
        f"from lib_dlhpc import {verb}\nassert callable({verb})"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize(
    "verb", ["predict", "sweep", "simulate", "compare", "calibrate", "validate"]
)
def test_the_result_of_a_verb_shows_itself(verb):
    kind = getattr(lib_dlhpc, verb).__annotations__["return"]
    assert issubclass(kind, Result)
    assert kind.__repr__ is Result.__repr__
    for method in ("to_columns", "plot", "summary"):
        assert (
            getattr(kind, method) is not getattr(Result, method) and getattr(kind, method).__doc__
        )


@pytest.mark.parametrize("verb", ["predict", "simulate", "plan", "sweep", "compare", "run"])
def test_a_verb_says_how_to_read_an_experiment_that_was_only_named(verb):
    axes = [{"strategy.nodes": [1]}] if verb == "sweep" else []
    with pytest.raises(SpecError, match=r'expected an Experiment, such as load\("laptop"\)'):
        getattr(lib_dlhpc, verb)("laptop", *axes)


def test_all_public_names_are_there():
    assert sorted(lib_dlhpc.__all__) == dir(lib_dlhpc)
    for name in lib_dlhpc.__all__:
        assert getattr(lib_dlhpc, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'predikt'"):
        _ = lib_dlhpc.predikt


@pytest.mark.parametrize("model", sorted(set(catalog.names("models")) - {"frnn", "lstm-lm"}))
def test_names_of_the_catalog_make_an_experiment(model):
    experiment = Experiment(model=model, machine="selene", strategy={"nodes": 2, "batch": "4"})
    assert experiment == loads(dumps(experiment))
    assert experiment.strategy.batch == 4 and len(experiment.dataset.sample_shape) in (1, 3, 4)


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"model": "resnet50"}, "machine is missing; legal: "),
        ({"model": "resnet5", "machine": "summit"}, "Did you mean 'resnet50'"),
        ({"model": "frnn", "machine": "summit"}, "dataset is missing.*legal: "),
        (
            {"model": "vgg16", "machine": "summit", "strategy": {"node": 2}},
            "strategy.node: unknown",
        ),
        ({"model": "vgg16", "machine": "summit", "strategy": {"nodes": 10**6}}, "summit has 4600"),
        ({"model": "vgg16", "machine": "summit", "run": 3}, "run = 3: expected a table"),
    ],
)
def test_what_cannot_be_names_the_value_and_the_legal_ones(wrong, said):
    with pytest.raises(SpecError, match=said):
        Experiment(**wrong)
