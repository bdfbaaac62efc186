"""[plan] of an experiment: it is read, written and read again, and what is wrong names the legal values."""

import pytest

from lib_dlhpc.errors import SpecError
from lib_dlhpc.spec.experiment import Experiment, dumps, loads
from lib_dlhpc.spec.planning import Bounds, Planning, overridden, read_planning


def run(plan=None):
    return Experiment(model="resnet50", machine="summit", strategy={"nodes": 4}, plan=plan)


@pytest.mark.parametrize(
    "plan",
    [
        {},
        {"objectives": ["energy", "time"], "predictions": 7},
        {"limits": {"memory": "40 GiB", "time": "12 h", "energy": "3 kWh", "cost": 12.5}},
        {"axes": {"tensor": [1, 2], "pipeline": {"least": 2}, "zero": {"least": 0, "most": 1}}},
        {"axes": {"overlap": [True], "bucket": ["1 MB", 2e6], "allreduce": ["ring"], "nodes": 4}},
    ],
)
def test_it_is_read_again_as_it_was_written(plan):
    experiment = run(plan)
    assert loads(dumps(experiment)) == experiment
    assert ("[plan" in dumps(experiment)) == bool(plan)


def test_quantities_are_in_si_and_one_value_is_a_list_of_one():
    found = read_planning({"objectives": "cost", "limits": {"time": "2 h"}, "axes": {"tensor": 4}})
    assert found.objectives == ("cost",) and found.limits.time == 7200
    assert found.axes == {"tensor": (4,)} and found.predictions == Planning().predictions


def test_set_changes_one_of_its_fields():
    changed = run({"limits": {"cost": 5}}).set({"plan.limits.time": "1 h", "plan.axes.zero": [0]})
    assert (changed.plan.limits.cost, changed.plan.limits.time) == (5, 3600)
    assert changed.plan.axes == {"zero": (0,)}


def test_arguments_override_limits_and_axes_one_by_one():
    plan = read_planning({"limits": {"cost": 5, "time": 9}, "axes": {"tensor": 4, "zero": 1}})
    found = overridden(plan, limits={"time": 1}, axes={"zero": {"most": 2}}, objectives=None)
    assert (found.limits.cost, found.limits.time) == (5, 1)
    assert found.axes == {"tensor": (4,), "zero": Bounds(None, 2)}
    assert overridden(plan) == plan


WRONG = [
    ({"objectives": ["speed"]}, ["'speed'", "time, energy, cost"]),
    ({"objectives": []}, ["plan.objectives", "at least one"]),
    ({"objectives": 3}, ["plan.objectives = 3"]),
    ({"limits": {"watts": 1}}, ["plan.limits.watts", "energy"]),
    ({"limits": {"memory": "3 W"}}, ["plan.limits.memory", "bytes"]),
    ({"limits": {"cost": 0}}, ["plan.limits.cost = 0", "above 0"]),
    ({"limits": [1]}, ["plan.limits"]),
    ({"axes": {"tp": [1]}}, ["plan.axes.tp", "Did you mean 'tensor'?"]),
    ({"axes": {"tensr": [1]}}, ["plan.axes.tensr", "Did you mean 'tensor'?"]),
    ({"axes": {"tensor": []}}, ["plan.axes.tensor", "at least one"]),
    ({"axes": {"tensor": [0]}}, ["plan.axes.tensor = 0", "at least 1"]),
    ({"axes": {"schedule": ["gpip"]}}, ["plan.axes.schedule = 'gpip'", "gpipe"]),
    ({"axes": {"tensor": {"greatest": 3}}}, ["plan.axes.tensor.greatest", "least, most"]),
    ({"axes": {"tensor": {"least": 4, "most": 2}}}, ["least = 4", "most = 2"]),
    ({"axes": {"power_limit": {"most": 200}}}, ["plan.axes.power_limit", "list the values"]),
    ({"predictions": 0}, ["plan.predictions = 0", "at least 1"]),
    ({"most": 3}, ["plan.most", "predictions"]),
]


@pytest.mark.parametrize(("plan", "words"), WRONG)
def test_what_is_wrong_names_the_legal_values(plan, words):
    with pytest.raises(SpecError) as caught:
        run(plan)
    assert all(word in str(caught.value) for word in words), caught.value
