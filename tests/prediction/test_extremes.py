"""Any number in any field: refused with its name, or a prediction that can be read."""

import dataclasses
import math
import re
import warnings

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from lib_dlhpc import SpecError
from lib_dlhpc.prediction import predict
from lib_dlhpc.prediction.reports.report import as_dict, as_text
from lib_dlhpc.prediction.validation.replays import replay
from lib_dlhpc.spec.experiment import load

GOYAL = replay("goyal-2017").experiment
PLAIN = GOYAL.set(
    {"run.checkpoint_interval": 600.0, "machine.node_mtbf": 1e7, "storage.access": "stream"}
)
SPLIT = GOYAL.set(
    {
        "calibration.rate": 0.0,
        "strategy.pipeline": 4,
        "strategy.batch": 64,
        "strategy.microbatches": 8,
    }
)
EXTREMES = [1e-320, 1e-300, 1e-30, 1e-9, 0, -1, 1e30, 1e300, math.nan, math.inf]
DIGITS = 24  # in a row, more than a quantity has


def fields(noun, path=""):
    """Yield the dotted names of all numbers of an experiment."""
    for item in dataclasses.fields(noun):
        value, name = getattr(noun, item.name), f"{path}{item.name}"
        if dataclasses.is_dataclass(value):
            yield from fields(value, f"{name}.")
        elif item.metadata.get("kind") in ("number", "whole"):
            yield name


FIELDS = sorted(name for name in fields(PLAIN) if not name.startswith("model."))


def test_all_numbers_are_asked():
    assert len(FIELDS) > 60 and {"calibration.rate", "machine.device.memory"} <= set(FIELDS)


@pytest.mark.parametrize("value", EXTREMES, ids=repr)
def test_an_extreme_is_refused_by_name_or_can_be_read(value):
    for name in FIELDS:
        readable(PLAIN, name, value)


@pytest.mark.parametrize("value", [1e-30, 1e30], ids=repr)
def test_so_it_is_where_the_network_is_split(value):
    for name in FIELDS:
        readable(SPLIT, name, value)


@pytest.mark.parametrize("split", [{}, {"strategy.tensor": 2, "strategy.zero": 1}])
def test_the_largest_batch_on_all_devices_overflows_neither_alone_nor_in_an_array(split):
    run = load("llama3-8b@h100-pod").set({"strategy.nodes": 3072, **split})
    most = int(1e12)
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        alone = predict(run.set({"strategy.batch": most}))
        both = predict(run.set({"strategy.batch": np.array([1, most])}))
        assert float(alone.memory_total) == pytest.approx(float(both.memory_total[1]))
    assert (
        float(both.throughput[1]) == pytest.approx(float(alone.throughput)) and both.steps[1] == 1
    )
    with pytest.raises(SpecError, match=r"strategy.batch = 1e\+15: legal: .* at most 1e\+12"):
        run.set({"strategy.batch": 10**15})


def test_the_samples_of_a_split_network_are_counted_without_overflow():
    run = load("cosmoflow-512@h100-pod").set({"dataset.sample_shape": [4, 512, 512, 512]})
    run = run.set({"strategy.batch": 10**12, "strategy.tensor": 2})
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        held = predict(run).memory["input batch"]
    assert held == pytest.approx(1e12 * 2 * math.prod(run.dataset.sample_shape))


@given(st.sampled_from(FIELDS), st.floats())
@example("calibration.rate", 5e-324)
@settings(max_examples=60, deadline=None)
def test_any_number_is_refused_by_name_or_can_be_read(name, value):
    readable(PLAIN, name, value)


def readable(run, name, value):
    """Assert that a field is refused by its name, or what is printed is finite and short."""
    where = f"{name} = {value!r}"
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", RuntimeWarning)
            prediction = predict(run.set({name: value}))
            text, table = as_text(prediction, explained=True), as_dict(prediction)
    except SpecError as error:
        section, *_, field = name.split(".")
        links = "links" if "_node" in name else field
        assert any(word in str(error) for word in (field, section, links)), where
        assert len(str(error)) < 400, where
        return
    assert not re.search(r"\bnan\b|not known", text), where
    assert not re.search(rf"\d{{{DIGITS},}}", text.replace(",", "")), where
    figures = [line for line in text.splitlines() if re.match(r" {2,4}\w[\w -]{20,}\d", line)]
    assert len(figures) > 10 and max(map(len, figures)) <= 120, (where, max(figures, key=len))
    numbers = [number for number in leaves(table) if isinstance(number, float)]
    assert not np.isnan(numbers).any(), where


def leaves(value):
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list):
        for each in value:
            yield from leaves(each)
    else:
        yield value
