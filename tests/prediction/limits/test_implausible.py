"""Numbers whose unit was left out are named beside the prediction."""

import pytest

from lib_dlhpc import load
from lib_dlhpc.prediction import predict
from lib_dlhpc.prediction.limits.implausible import implausible
from lib_dlhpc.prediction.reports.report import as_dict, as_text
from lib_dlhpc.spec import catalog


@pytest.mark.parametrize(
    ("field", "value", "unit"),
    [
        ("device.memory", 96, "B"),
        ("device.memory_bandwidth", 3350, "B/s"),
        ("intra_node.bandwidth", 450, "B/s"),
        ("inter_node.bandwidth", 400, "B/s"),
        ("host_link.bandwidth", 64, "B/s"),
        ("inter_node.latency", 5, "s"),
    ],
)
def test_a_number_without_its_unit_is_noted(field, value, unit):
    changes = {"machine.device.reserved_memory": 0, f"machine.{field}": value}
    prediction = predict(load("resnet50@h100-pod").set(changes))
    note = f"machine.{field} = {value if value < 1000 else '3.35 k'}"
    assert note in as_text(prediction) and f"without a unit is in {unit}." in as_text(prediction)
    assert any(note in each for each in as_dict(prediction)["notes"])


@pytest.mark.parametrize("machine", catalog.names("machines"))
def test_no_machine_of_the_catalog_is_implausible(machine):
    assert not implausible(load(f"resnet50@{machine}"))
