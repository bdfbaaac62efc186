"""What is predicted and simulated grows in proportion to layers and instructions, counted in calls of Python."""

import sys

import pytest

from lib_dlhpc.prediction import predict
from lib_dlhpc.simulation import simulate
from lib_dlhpc.spec.experiment import read_experiment
from lib_dlhpc.timeline import from_rows, join

TWICE = 2.5  # at most, where there is twice as much to do; a quadratic step shows as 4


def calls(act):
    """Return how many functions (and steps of generators) are called."""
    counted = 0

    def count(frame, event, arg):
        nonlocal counted
        counted += event == "call"

    sys.setprofile(count)
    try:
        act()
    finally:
        sys.setprofile(None)
    return counted


def deep(layers, microbatches=4, **strategy):
    """A network of so many convolutions; its name keeps it out of all caches."""
    block = [{"kind": "conv", "channels": 8, "kernel": 3, "padding": 1}, {"kind": "relu"}]
    head = [{"kind": "flatten"}, {"kind": "dense", "features": 10}]
    model = {"family": "sequential", "input": [3, 32, 32], "layers": block * layers + head}
    tables = {"model": model, "dataset": {"name": "imagenet"}}
    tables["machine"] = {"name": "h100-pod", "nodes": 64}
    split = {"batch": 4 * microbatches, "nodes": 8, "devices_per_node": 1}
    split |= {"microbatches": microbatches, **strategy} if strategy else {}
    return read_experiment(tables | {"strategy": split})


@pytest.mark.parametrize(
    "ways",
    [
        {},
        {"tensor": 2},
        {"tensor": 2, "split": "column"},
        {"spatial": 2},
        {"pipeline": 4},
        {"zero": 3},
        {"recompute": "full"},
        {"pipeline": 2, "tensor": 2, "zero": 1},
    ],
    ids=str,
)
def test_twice_the_layers_are_twice_the_work(ways):
    few, many = (calls(lambda n=n: predict(deep(n, **ways))) for n in (150, 300))
    assert many < TWICE * few


@pytest.mark.parametrize("fidelity", ["rounds", "events"])
@pytest.mark.parametrize("schedule", ["gpipe", "1f1b"])
def test_twice_the_microbatches_are_twice_the_work(schedule, fidelity):
    ways = {"pipeline": 4, "schedule": schedule}
    few, many = (calls(lambda m=m: simulate(deep(8, m, **ways), fidelity)) for m in (24, 48))
    assert many < TWICE * few


def test_each_name_of_a_joined_part_is_read_once_or_twice():
    class Names(tuple):
        read = 0

        def __iter__(self):
            Names.read += len(self)
            return super().__iter__()

        def __radd__(self, other):
            Names.read += len(other) + len(self)
            return tuple(other) + tuple(self)

    from dataclasses import replace

    rows = [[(0, "compute", "forward", f"{part}", 0.0, 1.0)] for part in range(200)]
    parts = [from_rows(each, 1, "simulated") for each in rows]
    joined = join([replace(part, names=Names(part.names)) for part in parts])
    assert len(joined.names) == 200 and Names.read <= 2 * 200
