"""The groups of ranks are those of Megatron-LM in its default order, tp-cp-ep-dp-pp."""

from itertools import product

import pytest

from lib_dlhpc import Experiment
from lib_dlhpc.layout.context import context_group
from lib_dlhpc.layout.experts import expert_group
from lib_dlhpc.layout.groups import group

MODEL = {"name": "moe-tiny", "layers": 8, "capacity": 0.0}


def of(devices, **strategy):
    on_node = min(devices, 8)
    places = {"nodes": devices // on_node, "devices_per_node": on_node}
    return Experiment(
        model=MODEL,
        machine="bigbasin",
        strategy={"batch": 8, "microbatches": 4} | places | strategy,
    )


def groups(experiment, ranks, kind):
    found = {group(experiment, rank, kind) for rank in range(ranks)}
    return [list(each) for each in sorted(found)]


def test_the_example_of_16_gpus_in_megatrons_documentation():
    """initialize_model_parallel lists these for tensor groups of 2 and 4 stages."""
    run = of(16, tensor=2, pipeline=4)
    pairs = [[0, 2], [1, 3], [4, 6], [5, 7], [8, 10], [9, 11], [12, 14], [13, 15]]
    assert groups(run, 16, "data") == pairs
    assert groups(run, 16, "tensor") == [[rank, rank + 1] for rank in range(0, 16, 2)]
    stages = [[0, 4, 8, 12], [1, 5, 9, 13], [2, 6, 10, 14], [3, 7, 11, 15]]
    assert groups(run, 16, "pipeline") == stages


def test_the_example_of_context_groups_in_megatrons_documentation():
    """Of 8 GPUs, tensor groups of 4 and context groups of 2."""
    run = of(8, tensor=4, context=2)
    found = {context_group(run, rank) for rank in range(8)}
    assert sorted(found) == [(0, 4), (1, 5), (2, 6), (3, 7)]


@pytest.mark.parametrize(("inner", "size"), [("context", 2), ("experts", 2), ("experts", 4)])
@pytest.mark.parametrize(("tensor", "pipeline"), [(1, 1), (2, 1), (1, 2), (2, 2)])
def test_ranks_vary_as_in_the_order_tensor_context_or_experts_data_pipeline(
    tensor, pipeline, inner, size
):
    """Rank = t + T (c + C (d + D p)); a group has all ranks that differ in one of these only."""
    data = 2
    ranks = tensor * size * data * pipeline
    run = of(ranks, tensor=tensor, pipeline=pipeline, **{inner: size})
    member = context_group if inner == "context" else expert_group
    expected = sorted(
        tuple(t + tensor * (c + size * (d + data * p)) for c in range(size))
        for t, d, p in product(range(tensor), range(data), range(pipeline))
    )
    assert sorted({member(run, rank) for rank in range(ranks)}) == expected
