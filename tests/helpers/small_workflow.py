"""A workflow of milliseconds; its costs are given, so nothing is measured."""

from dataclasses import replace
from typing import Any

from lib_dlhpc.spec.workflow import Workflow, loads

TEXT = """
[simulation]
grid = 12
steps = 96
sampling = 2
restart = 8
substeps = 2

[coupling]
placement = "separate"
ranks = 1
depth = 2

[costs]
point = "10 ns"
small_step = "5 us"
sample = "200 us"
update = "100 us"
latency = "5 us"
byte = "1 ns"

[model]
family = "sequential"
input = [1, 12, 12]
layers = [{ kind = "conv", channels = 1, kernel = 5, padding = 2 }]

[strategy]
batch = 4
precision = "fp64"
optimizer = "adam"
nodes = 1
devices_per_node = 1

[training]
rate = 0.05
"""


def small(placement: str = "separate", simulating: int = 1, **coupling: Any) -> Workflow:
    """The workflow, placed, with fields of [coupling] changed."""
    workflow = loads(TEXT).placed(placement, simulating)
    return replace(workflow, coupling=replace(workflow.coupling, **coupling))
