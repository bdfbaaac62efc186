"""Published figures that are arithmetic: each against its own numbers."""

import pytest

from lib_dlhpc.prediction.validation.definitions import DEFINITIONS

CASES = [
    ("checkpoint_size", {"parameters": 8.03e9, "bytes_each": 14}, 112.42e9),
    ("checkpoint_overhead", {"duration": 7776000, "interval": 10800, "seconds_each": 40}, 28800),
    ("checkpoint_interval", {"cost": 2, "mtbf": 100, "order": "first"}, 20),
    ("checkpoint_interval", {"cost": 2, "mtbf": 100}, 20 * (1 + 0.1 / 3 + 0.01 / 9) - 2),
    # At its best interval, which solves (1 - tau / M) e^((tau + C) / M) = 1, the share is (M - tau) e^(-R / M) / M.
    ("training_share", {"cost": 300, "mtbf": 86400, "restart": 600}, 0.912605),
    ("facility_energy", {"device_hours": 1022362, "watts": 400, "pue": 1.1}, 449.84e6 * 3600),
    ("file_operations", {"files": 1.3e6, "epochs": 90}, 117e6),
    ("listing_operations", {"directories": 2002, "ranks": 64}, 128_128),
    ("file_size", {"size": 140e9, "files": 1.4e6}, 1e5),
    ("holders", {"size": 455e9, "capacity": 60e9}, 8),
    (
        "fed_step",
        {"records": 10, "record": 1e6, "files": 100, "batch": 50, "bandwidth": 1e8},
        50 * 1e6 / 1e8,
    ),
    ("gradient_bandwidth", {"bytes_moved": 200e6, "seconds": 0.125}, 12.8e9 / 8),
    ("attention_activation_saved", {"heads": 96, "sequence": 2048, "hidden": 12288}, 80 / 114),
    (
        "model_state_bytes",
        {"parameters": 7.5e9, "precision": "fp16", "optimizer": "adam", "shards": 64, "stage": 1},
        7.5e9 * (4 + 12 / 64),
    ),
    (
        "training_time",
        {"tokens": 300e9, "parameters": 174.6e9, "devices": 1024, "rate": 140e12},
        8 * 300e9 * 174.6e9 / (1024 * 140e12),
    ),
    # (34 / t) / (10 + 24 / t + 5 a s / (h t)) of Korthikanti et al. 2022, table 2, with t = 8
    ("activation_fraction", {"model": "mt-nlg-530b", "tensor": 8}, 4.25 / (10 + 3 + 8)),
]


@pytest.mark.parametrize(("name", "inputs", "value"), CASES)
def test_a_definition_by_hand(name, inputs, value):
    assert DEFINITIONS[name](**inputs) == pytest.approx(value, rel=1e-5)


def test_every_definition_has_a_case():
    assert {name for name, *_ in CASES} | {"protocol_bus_bandwidth"} == set(DEFINITIONS)


def test_the_protocol_goes_through_its_measured_points_and_never_beyond_its_bus():
    points = {"ranks": 32, "nodes": 4, "small": [32768, 0.92e9], "large": [2**34, 91.69e9]}
    found = DEFINITIONS["protocol_bus_bandwidth"]
    assert found(n=32768, **points) == pytest.approx(0.92e9)
    assert found(n=2**34, **points) == pytest.approx(91.69e9, rel=2e-3)
    sizes = [found(n=2.0**k, **points) for k in range(10, 60)]
    assert sizes == sorted(sizes)
    assert sizes[-1] == pytest.approx(91.69e9) and sizes[-1] <= 91.69e9
