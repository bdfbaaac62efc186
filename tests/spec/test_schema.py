"""Laws of the door: every field of every table has a range, and what is outside is named."""

import dataclasses
import math

import numpy as np
import pytest
from nouns import TABLES, reach

from lib_dlhpc.errors import SpecError
from lib_dlhpc.spec.experiment import Experiment
from lib_dlhpc.spec.machine import Machine
from lib_dlhpc.spec.schema import (
    ELSEWHERE,
    check_value,
    difference,
    merge,
    number,
    readable,
    to_table,
)
from lib_dlhpc.spec.units import parse_quantity

BASE = Experiment(
    model="resnet50",
    dataset="imagenet",
    machine="summit",
    strategy={"nodes": 4},
    storage={"tier": "nvme"},
)
FIELDS = {
    f"{table}.{item.name}": item.metadata
    for table, cls in TABLES.items()
    for item in dataclasses.fields(cls)
    if item.metadata
}
NUMBERS = {key: meta for key, meta in FIELDS.items() if meta["kind"] in ("number", "whole")}


@pytest.fixture(scope="module")
def experiment():
    return BASE


def refusal(experiment, key, value):
    with pytest.raises(SpecError) as error:
        experiment.set({key: value})
    return str(error.value)


def outside(meta):
    """Values just outside the field's range."""
    yield meta["least"] - 1
    yield math.nan
    if meta["positive"] and meta["least"] == 0:
        yield 0
    if math.isfinite(meta["most"]):
        yield meta["most"] * 1.01 + 1
    if meta["kind"] == "whole":
        yield meta["least"] + 0.5
        yield math.inf


def test_the_table_of_fields_is_not_empty():
    assert len(NUMBERS) >= 45 and len(FIELDS) >= 58


@pytest.mark.parametrize("key", NUMBERS)
def test_a_number_out_of_range_names_field_value_and_range(experiment, key):
    meta = NUMBERS[key]
    for value in outside(meta):
        message = refusal(experiment, key, value)
        assert message.startswith(key)
        if not math.isnan(value):
            shown = message.split(": ")[0].removeprefix(f"{key} = ")
            if math.isinf(value):
                assert shown == "inf"
            else:
                assert parse_quantity(shown, meta["unit"]) == pytest.approx(value, rel=0.01)
            assert "legal: a" in message
            assert ("whole number" in message) == (meta["kind"] == "whole")
            assert ("above 0" in message) == (meta["positive"] and meta["least"] == 0)
            assert ("at most" in message) == math.isfinite(meta["most"])


@pytest.mark.parametrize("key", NUMBERS)
def test_one_bad_entry_spoils_an_array(experiment, key):
    meta = NUMBERS[key]
    good = max(meta["least"], 1)
    for value in outside(meta):
        assert refusal(experiment, key, np.array([good, value])).startswith(key)


@pytest.mark.parametrize("key", NUMBERS)
def test_what_is_no_number_is_refused_by_name(experiment, key):
    for value in (True, None, [1, 2], {"a": 1}, "much", "", 10**400, np.True_):
        assert key in refusal(experiment, key, value), value


@pytest.mark.parametrize("key", [key for key, meta in FIELDS.items() if meta["kind"] == "choice"])
def test_a_choice_lists_what_is_legal(experiment, key):
    for value in ("", "RING", "rings", 3, None, ["ring"], np.array(["ring", "a"])):
        message = refusal(experiment, key, value)
        assert key in message, value
        assert all(option in message for option in FIELDS[key]["options"]), value


def test_a_choice_names_the_nearest(experiment):
    message = refusal(experiment, "strategy.allreduce", "rabenseifer")
    assert message.startswith(
        "strategy.allreduce = 'rabenseifer': Did you mean 'rabenseifner'? Legal: "
    )


@pytest.mark.parametrize("value", [0, 1, "true", None, np.array([True])])
def test_a_switch_is_true_or_false(experiment, value):
    assert "legal: true, false" in refusal(experiment, "strategy.overlap", value)


@pytest.mark.parametrize("table", TABLES)
def test_an_unknown_key_names_itself_the_legal_ones_and_the_nearest(experiment, table):
    fields = [item.name for item in dataclasses.fields(TABLES[table])]
    for name in fields:
        message = refusal(experiment, f"{table}.{name}x", 1)
        assert f"{table}.{name}x" in message and "unknown key" in message
        assert all(field in message for field in fields)
        assert message.startswith(f"{table}.{name}x: unknown key. Did you mean '{name}'? Legal: ")


@pytest.mark.parametrize("key", NUMBERS)
def test_a_quantity_may_be_text_with_a_unit(experiment, key):
    meta = NUMBERS[key]
    unit = meta["unit"]
    if unit:
        value = 0.01 if unit == "s" else 1e12
        text = "10 ms" if unit == "s" else f"1 T{unit}"
        room = {"machine.device.busy_power": "1 TW", "machine.device.memory": "2 TB"}
        assert reach(experiment.set({**room, key: text}), key) == value


@pytest.mark.parametrize("dtype", [np.int8, np.int32, np.uint64, np.float32, np.float64])
def test_arrays_are_copied_and_wide_enough(experiment, dtype):
    given = np.array([1, 2, 3], dtype=dtype)
    batch = experiment.set({"strategy.batch": given}).strategy.batch
    bucket = experiment.set({"strategy.bucket": given}).strategy.bucket
    given[:] = 0
    assert batch.dtype == np.int64 and list(batch) == [1, 2, 3]
    assert bucket.dtype == np.float64 and list(bucket) == [1, 2, 3]


def test_numpy_scalars_become_plain_numbers(experiment):
    changed = experiment.set({"strategy.batch": np.int64(8), "strategy.bucket": np.float32(5)})
    assert type(changed.strategy.batch) is int and type(changed.strategy.bucket) is float


def test_merge_lays_over_and_a_name_replaces():
    base = {"a": "x", "b": {"name": "y", "c": 1}, "d": 1}
    assert merge(base, {"b": {"c": 2}})["b"] == {"name": "y", "c": 2}
    assert merge(base, {"b": {"name": "z"}})["b"] == {"name": "z"}
    assert merge(base, {"a": {"c": 2}})["a"] == {"name": "x", "c": 2}
    assert base["b"] == {"name": "y", "c": 1}


def test_difference_is_what_merge_needs():
    cases = [
        ({"b": {"name": "y"}}, {"b": {"name": "y", "c": 1}}),
        ({"b": {"name": "y", "c": 2}}, {"b": {"name": "y", "c": 1}}),
        ({"b": {"name": "z"}}, {"b": {"name": "y", "c": 1}}),
        ({"b": {"c": {"d": 1}}}, {"b": {"c": {"d": 2}}}),
        ({"a": 1}, {"a": 1}),
        ({"a": [1, 2]}, {"a": [1, 2, 3]}),
    ]
    for table, base in cases:
        assert merge(base, difference(table, base)) == table
    assert difference({"a": 1, "b": {"c": 1}}, {"a": 1, "b": {"c": 1}}) == {}


@pytest.mark.parametrize("value", [1 / 3, 22919 * 2.0**20, 1e300, 5e-324, math.inf, 0.0, 1e-6])
@pytest.mark.parametrize("unit", ["B", "s", "B/s"])
def test_readable_text_is_exact_or_a_number(value, unit):
    shown = readable(value, unit)
    assert (parse_quantity(shown, unit) if isinstance(shown, str) else shown) == value


def test_to_table_leaves_nothing_out(experiment):
    table = to_table(experiment.machine)
    assert set(table) == {item.name for item in dataclasses.fields(Machine)} - {"measured"}  # None
    assert table["storage"]["nvme"]["bandwidth"] == "5.5 GB/s"


def test_an_old_name_of_a_key_is_read_and_warns():
    with pytest.warns(FutureWarning, match="training.normalisation is now training.normalization"):
        old = Experiment("resnet18", "imagenet", "lassen", training={"normalisation": "global"})
    assert old.training.normalization == "global"
    with pytest.warns(FutureWarning):
        assert old.set({"training.normalisation": "local"}).training.normalization == "local"
    with pytest.raises(SpecError, match="normalisation: unknown key"):
        both = {"normalization": "local", "normalisation": "global"}
        Experiment("resnet18", "imagenet", "lassen", training=both)


def test_words_of_other_tools_name_fields_that_there_are():
    run = Experiment(model="llama3-8b", machine="h100-pod")
    for word, field in ELSEWHERE.items():
        section, _, name = field.partition(".")
        known = run.model.options if section == "model" else vars(getattr(run, section))
        assert name in known or field == "run.tokens", word
        with pytest.raises(SpecError, match=f"Did you mean '{field}'"):
            run.set({word: 1})


def test_a_list_for_a_field_that_may_be_an_array_is_refused_with_the_array():
    words = r"a.n = \[1, 2\]: expected one number; for several: np.array\(\[1, 2\]\)"
    with pytest.raises(SpecError, match=words):
        check_value(number(default=0.0).metadata, [1, 2], "a.n")
