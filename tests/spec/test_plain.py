"""JSON output is valid JSON, with quantities as numbers in SI units."""

import json
import math
from dataclasses import replace

import pytest

from lib_dlhpc.spec.experiment import Experiment, read_experiment, to_tables
from lib_dlhpc.spec.plain import as_json, plain_tables
from lib_dlhpc.spec.schema import to_table

TEXT = Experiment(
    model="mlp-digits",
    dataset="digits",
    machine={
        "name": "laptop",
        "node_mtbf": "3 days",
        "device": {
            "launch": "2 us",
            "memory_bandwidth": "63.29 GB/s",
            "layers": {"tanh": {"bandwidth": "20 GB/s"}},
            "peak": {"fp32": "0.2 TFLOP/s"},
        },
    },
    storage={"tier": "ssd"},
    strategy={"devices_per_node": 2, "bucket": "1 MB"},
    run={"checkpoint_interval": "20 min"},
)


def strict(text):
    return json.loads(text, parse_constant=lambda name: pytest.fail(f"{name} is no JSON"))


def test_a_number_that_is_not_finite_is_null():
    values = {
        "a": math.inf,
        "b": [1.5, (-math.inf, math.nan)],
        "c": {"d": "inf", "e": True, "f": 3},
    }
    wanted = {"a": None, "b": [1.5, [None, None]], "c": {"d": "inf", "e": True, "f": 3}}
    assert strict(as_json(values)) == wanted


def test_quantities_of_an_experiment_are_numbers_in_si_units():
    tables = strict(as_json(plain_tables(TEXT)))
    machine = tables["machine"]
    assert machine["name"] == "laptop"
    assert machine["node_mtbf"] == 259200.0
    assert machine["device"]["launch"] == 2e-6
    assert machine["device"]["memory_bandwidth"] == 63.29e9
    assert machine["device"]["peak"]["fp32"] == 2e11
    tanh = machine["device"]["layers"]["tanh"]
    assert tanh["bandwidth"] == 2e10
    assert tanh["rate"] is None and tanh["backward_rate"] is None
    assert tables["strategy"] == {"devices_per_node": 2, "bucket": 1e6}
    assert tables["run"]["checkpoint_interval"] == 1200.0


def test_a_machine_round_trips_through_si_units():
    experiment = TEXT
    whole = replace(experiment.machine, name="")
    tables = plain_tables(replace(experiment, machine=whole))

    def without_null(table):
        if not isinstance(table, dict):
            return table
        return {key: without_null(value) for key, value in table.items() if value is not None}

    again = read_experiment(without_null(tables))
    assert to_table(again.machine) == to_table(whole)
    assert to_tables(again) == to_tables(replace(experiment, machine=whole))
