"""Units of ZeRO 3: what they are in each network, what they hold, what a step gathers and reduces by them."""

import pytest
from split_runs import split

from lib_dlhpc.costs.exchanges import weights_read
from lib_dlhpc.costs.fsdp_units import buckets_of, unit_weights, units
from lib_dlhpc.costs.segments import segments
from lib_dlhpc.parallel import steps
from lib_dlhpc.prediction import predict
from lib_dlhpc.program import gathers, sums
from lib_dlhpc.spec.experiment import Experiment, read_model
from lib_dlhpc.spec.strategy import ZERO_UNITS, Strategy

BLOCKS = {"llama3-8b": 32, "moe-tiny": 2, "bert-base": 12, "resnet50": 16, "vgg16": 5}


@pytest.mark.parametrize("name", [*BLOCKS, "lstm-lm", "inception-v3"])
@pytest.mark.parametrize("kind", ZERO_UNITS)
def test_units_hold_all_weights_once_in_order(name, kind):
    model = read_model(name)
    found = units(model, kind)
    layers = [layer for unit in found for layer in unit]
    assert layers == [*range(layers[0], len(model.layers))]
    assert not any(layer.parameters for layer in model.layers[: layers[0]])
    assert sum(unit_weights(model, kind)) == sum(weights_read(model))
    sizes, first = buckets_of(model, Strategy(zero=3))
    assert sizes.sum() == 4 * model.trained
    assert [*first] == [unit.start for unit in units(model, "block")][::-1]


@pytest.mark.parametrize("name", BLOCKS)
def test_a_block_is_a_unit_and_a_layer_outside_of_blocks_another(name):
    model = read_model(name)
    read = weights_read(model)
    counts = [sum(bool(read[layer]) for layer in unit) for unit in units(model, "block")]
    assert sum(count > 1 for count in counts) == BLOCKS[name]


@pytest.mark.parametrize("name", ["llama3-8b", "bert-base", "dit-s2", "moe-tiny"])
def test_blocks_that_are_recomputed_are_units(name):
    """So one gather serves a block's recomputation and its backward pass."""
    model = read_model(name)
    read = weights_read(model)
    for segment in segments(model, "full"):
        inside = {layer for layer in range(segment.first, segment.stop) if read[layer]}
        (unit,) = (u for u in units(model, "block") if inside & {*u})
        assert inside <= {*unit}


def run_of(**strategy):
    return Experiment(
        model={"name": "gpt2-1.5b", "layers": 3, "vocabulary": 1024},
        dataset={"name": "words", "samples": 64, "bytes": 58},
        machine="selene",
        strategy={"nodes": 2, "batch": 2, "precision": "bf16", "zero": 3, **strategy},
    )


@pytest.mark.parametrize("recompute", ["none", "full"])
def test_a_step_has_one_collective_for_each_block_and_pass(recompute):
    """FSDP gathers a block forward and again backward, and reduce-scatters it, whether it is recomputed or not."""
    run = run_of(recompute=recompute)
    (chunk,) = steps(run)[0].stages[0]
    count = len(units(run.model, "block"))
    forward, last = (b.variants[0].instructions for b in (chunk.forward, chunk.last))
    assert sum(map(gathers, forward)) == sum(map(gathers, last)) == count
    assert sum(map(sums, last)) == count - 1  # the head is tied


def test_fewer_and_larger_messages_take_less_time_and_more_memory():
    block, layer = (run_of(zero_unit=unit, allreduce="ring") for unit in ZERO_UNITS)
    fast, slow = predict(block), predict(layer)
    assert fast.messages["data"].latency < slow.messages["data"].latency / 2
    assert fast.messages["data"].bandwidth == pytest.approx(slow.messages["data"].bandwidth)
    name = "communication buffer"
    assert fast.memory[name] > slow.memory[name]
    largest = max(unit_weights(block.model, "block"))
    # Weights, gradients; two, of 2 B.
    assert fast.memory[name] == pytest.approx(2 * 2 * 2 * largest)


@pytest.mark.parametrize("wire", ["same", "fp32"])
def test_buffers_hold_a_unit_and_the_next_not_the_largest_twice(wire):
    """Of four products the third has most weights, with as many in that before it as in that after it."""
    sizes = [8 * 8, 8 * 64, 64 * 64, 64 * 8]
    layers = [{"kind": "dense", "features": n, "bias": False} for n in (8, 64, 64, 8)]
    model = {"family": "sequential", "input": [8], "layers": layers}
    ways = {"data": 4, "zero": 3, "zero_unit": "layer", "bucket": 1.0, "precision": "bf16"}
    found = predict(split(model, **ways, wire=wire)).memory["communication buffer"]
    gathered = 2 * (sizes[2] + sizes[1])
    in_flight = {"same": 2, "fp32": 4}[wire] * sizes[2] + 2 * sizes[1]  # the next is being filled
    assert found == gathered + in_flight


@pytest.mark.parametrize("zero_unit", ZERO_UNITS)
def test_a_stage_without_weights_gathers_none(zero_unit):
    layers = [{"kind": "dense", "features": 64}, *[{"kind": "relu"}] * 3]
    model = {"family": "sequential", "input": [64], "layers": layers}
    run = split(model, pipeline=4, data=2, microbatches=4, zero=3, zero_unit=zero_unit)
    assert predict(run).memory["communication buffer"] > 0
