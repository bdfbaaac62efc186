"""Laws of the public names: verbs are functions, packages are nouns, old paths warn and give the same objects."""

import subprocess
import sys
import warnings
from importlib import import_module

import pytest

import lib_dlhpc
from lib_dlhpc import Experiment, SpecError, loads, predict
from lib_dlhpc.renamed import MOVED, RENAMED
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
        "import warnings; warnings.simplefilter('ignore')\n"
        "import lib_dlhpc.prediction, lib_dlhpc.predict, lib_dlhpc.comparison, lib_dlhpc.train.network\n"
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


def test_all_public_names_are_there():
    assert sorted(lib_dlhpc.__all__) == dir(lib_dlhpc)
    for name in lib_dlhpc.__all__:
        assert getattr(lib_dlhpc, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'predikt'"):
        _ = lib_dlhpc.predikt


@pytest.mark.parametrize(
    ("old", "now"), [*RENAMED.items(), ("predict.fit", "prediction.fit"), *MOVED.items()]
)
def test_an_old_path_warns_and_gives_the_same_objects(old, now):
    for name in [name for name in sys.modules if f"{name}.".startswith(f"lib_dlhpc.{old}.")]:
        del sys.modules[name]
    with pytest.warns(DeprecationWarning, match=rf"lib_dlhpc\.{old} is now lib_dlhpc\.{now}"):
        before = import_module(f"lib_dlhpc.{old}")
    after = import_module(f"lib_dlhpc.{now}")
    for name in getattr(after, "__all__", ["__doc__"]):
        assert getattr(before, name) is getattr(after, name)


def test_an_old_package_is_called_like_its_verb():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        old = import_module("lib_dlhpc.predict")
    experiment = Experiment(model="resnet50", machine="summit")
    assert old(experiment).step_time == predict(experiment).step_time


def test_nothing_in_the_project_takes_an_old_path():
    code = "import lib_dlhpc.cli, lib_dlhpc.verbs, lib_dlhpc.comparison, lib_dlhpc.training.trainer"
    subprocess.run(
        [sys.executable, "-W", "error::DeprecationWarning:lib_dlhpc", "-c", code], check=True
    )


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
