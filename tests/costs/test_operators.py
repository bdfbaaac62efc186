"""A step by class of operator: nothing is lost, and a fused kernel moves what it must and no more."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lib_dlhpc.costs.operators import (
    ATTENTION,
    CLASSES,
    ELEMENTWISE,
    GEMM,
    NORM,
    by_operator,
    chains,
    class_of,
    fused_bytes,
)
from lib_dlhpc.costs.roofline import layer_times, streaming_rate, update_time
from lib_dlhpc.spec.experiment import read_model
from lib_dlhpc.spec.machine import read_device

A100 = replace(read_device("a100-sxm-80gb"), dispatch=0.0)
LIGHT = ("relu", "gelu", "tanh", "layer_norm", "rms_norm")


def network(*layers, shape=(64, 32)):
    return read_model({"family": "sequential", "input": list(shape), "layers": list(layers)})


@pytest.mark.parametrize("name", ["gpt2-1.5b", "llama3-8b", "mixtral-8x7b", "resnet50", "dit-b2"])
def test_the_classes_are_all_of_a_step(name):
    model = read_model(name)
    found = by_operator(model, A100, 2, "bf16", "adam")
    times = layer_times(model, A100, 2, "bf16")
    whole = times.forward.sum() + times.backward.sum() + update_time(model, A100, "adam")
    assert tuple(found) == CLASSES
    assert sum(each.seconds + each.launches for each in found.values()) == pytest.approx(whole)


def test_each_layer_of_a_block_has_its_class():
    classes = {layer.kind: class_of(layer) for layer in read_model("gpt2-1.5b").layers}
    assert classes["dense"] == GEMM and classes["attention"] == ATTENTION
    assert classes["layer_norm"] == NORM
    assert {classes[kind] for kind in ("gelu", "dropout", "add", "embedding")} == {ELEMENTWISE}
    hybrid = {layer.kind: class_of(layer) for layer in read_model("nemotron-h-8b").layers}
    assert hybrid["state_space"] == ATTENTION


@given(st.lists(st.sampled_from(LIGHT), min_size=2, max_size=6))
def test_a_chain_reads_its_input_once_and_writes_its_output_once(kinds):
    plain = {"layer_norm": {"scale": False, "bias": False}}
    model = network(*({"kind": kind, **plain.get(kind, {})} for kind in kinds))
    (members,) = chains(model)
    assert members == tuple(range(len(kinds)))
    weights = sum(layer.parameters for layer in model.layers)
    assert fused_bytes(model, members, 3, 2) == 2 * (2 * 3 * 64 * 32 + weights)
    eager, fused = (
        sum(
            each.moved
            for each in by_operator(model, A100, 3, "bf16", "sgd", way).values()
            if each.seconds != 0
        )
        for way in (False, True)
    )
    assert fused < eager


def test_no_chain_reaches_around_a_product():
    """A sum reads what a product made of the other part of its chain, so it cannot be in one kernel with it."""
    model = read_model("gpt2-1.5b")
    depth = dict[str, int]()
    for layer in model.layers:
        before = max((depth[name] for name in layer.inputs if name in depth), default=0)
        depth[layer.name] = before + bool(layer.forward_flop)
    names = [layer.name for layer in model.layers]
    found = chains(model)
    for members in found:
        assert len({depth[names[k]] for k in members}) == 1
        assert not any(model.layers[k].forward_flop for k in members)
    every = [k for members in found for k in members]
    assert len(every) == len(set(every))
    block = [names[k] for k in found[1]]
    assert block == ["layer1.dropout1", "layer1.add1", "layer1.layer_norm2"]
    # It reads the product and the residual, and writes the sum, which the next sum reads, and the norm.
    values = 4 * 1024 * 1600
    weights = model.layers[found[1][-1]].parameters
    assert fused_bytes(model, found[1], 1, 2) == 2 * (values + weights)


def test_a_lone_activation_between_products_is_left_as_it_is():
    model = network(
        {"kind": "dense", "features": 32}, {"kind": "gelu"}, {"kind": "dense", "features": 32}
    )
    assert chains(model) == ()
    eager, fused = (by_operator(model, A100, 8, "bf16", "sgd", way) for way in (False, True))
    assert eager == fused


def test_a_kernel_of_a_chain_takes_its_bytes_and_one_launch_in_each_direction():
    model = network(*({"kind": "gelu"} for _ in range(5)), shape=(4096, 4096))
    eager, fused = (
        by_operator(model, A100, 4, "bf16", "sgd", way)[ELEMENTWISE] for way in (False, True)
    )
    assert (eager.kernels, fused.kernels) == (15, 3)
    for each in (eager, fused):
        assert each.seconds == pytest.approx(each.moved / streaming_rate(A100))
        assert each.launches == pytest.approx(each.kernels * A100.launch)
    assert np.isclose(eager.moved, 5 * fused.moved)
