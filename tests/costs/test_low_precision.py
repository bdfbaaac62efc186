"""Time of layers in fp8 and nvfp4: the formula by hand, its limits, and that nothing else changes."""

from dataclasses import replace

import numpy as np
import pytest

from lib_dlhpc.costs import low_precision as costs
from lib_dlhpc.costs.roofline import (
    layer_activities,
    layer_times,
    product_bytes,
    streaming_rate,
    update_time,
)
from lib_dlhpc.spec.experiment import read_model
from lib_dlhpc.spec.layer_rate import LayerRate
from lib_dlhpc.spec.low_precision import with_narrow
from lib_dlhpc.spec.machine import load_machine
from lib_dlhpc.spec.strategy import Strategy

H100, B200 = (load_machine(name).device for name in ("h100-pod", "b200-pod"))
WIDE = {"family": "gpt", "layers": 2, "hidden": 8192, "heads": 64, "sequence": 4096}
MODELS = {"gpt": read_model(WIDE), "experts": read_model({**WIDE, "experts": 8, "hidden": 4096})}


def both(model, batch=1, device=H100, each_pass=False):
    """Return the times in bf16 and in fp8, and which layers are in fp8; each_pass: whether it casts weights."""
    found = with_narrow(model, "fp8")
    narrow = layer_times(found, device, batch, "fp8", each_pass=each_pass)
    times = layer_times(model, device, batch, "bf16"), narrow
    return *times, np.array([bool(layer.narrow) for layer in found.layers])


@pytest.mark.parametrize(("name", "most"), [("gpt", 0.75), ("experts", 1.0)])
def test_large_linear_layers_take_more_than_half_their_time_and_others_their_own(name, most):
    """Experts of fewer rows each save less where weights are cast: that takes as long with any number of rows."""
    wide, narrow, linear = both(MODELS[name], each_pass=True)
    _, held, _ = both(MODELS[name])
    for before, after, once in zip(wide, narrow, held, strict=True):
        assert (0.5 * before[linear] < once[linear]).all()
        assert (once[linear] < after[linear]).all()
        assert (after[linear] < most * before[linear]).all()
        assert (once[linear] < 0.7 * before[linear]).all()
        assert (after[~linear] == before[~linear]).all()
        assert (once[~linear] == before[~linear]).all()


@pytest.mark.parametrize("each_pass", [True, False])
@pytest.mark.parametrize("batch", [1, 4])
@pytest.mark.parametrize(
    ("form", "device", "size", "moved"),
    [("fp8", H100, 1, 3), ("nvfp4", B200, 4 / 8 + 1 / 16, 4 + 2 * (4 / 8 + 1 / 16))],
)
def test_a_dense_layer_by_hand(form, device, size, moved, batch, each_pass):
    model = with_narrow(MODELS["gpt"], form)
    index = next(at for at, x in enumerate(model.layers) if x.name == "layer1.expand")
    rows, inputs, outputs = batch * 4096, 8192, 4 * 8192
    weights = inputs * outputs + outputs
    share = device.fp8_efficiency if form == "fp8" else device.efficiency
    bandwidth, rate = streaming_rate(device), device.peak[form] * share
    product = (2 * rows * inputs * outputs + device.half_work) / rate
    cast = each_pass * weights
    casts = [moved * (rows * each + cast) / bandwidth for each in (inputs, outputs)]
    found = layer_times(model, device, batch, form, each_pass=each_pass)
    assert found.forward[index] == pytest.approx(product + casts[0] + device.launch)
    assert found.backward[index] == pytest.approx(2 * product + casts[1] + 2 * device.launch)
    read = size * (rows * inputs + weights) + 2 * rows * outputs
    assert product_bytes(model, batch, 2)[index] == pytest.approx(read)
    # One row is limited by memory: its product reads half, and its casts read and write more than that.
    (forward, _), _, _ = layer_activities(model, device, batch / 4096, form)
    assert forward[index] == 0


@pytest.mark.parametrize("optimizer", ["adam", "sgd"])
def test_weights_that_are_held_are_cast_once_with_the_update(optimizer):
    """3 B for each weight of a layer in fp8, whatever the optimizer moves; frozen weights stay as they are."""
    model = with_narrow(MODELS["gpt"], "fp8")
    usual, cast = (update_time(model, H100, optimizer, casts) for casts in (False, True))
    assert usual == update_time(MODELS["gpt"], H100, optimizer)
    narrow = sum(layer.parameters for layer in model.layers if layer.narrow)
    assert cast - usual == pytest.approx(3 * narrow / streaming_rate(H100), rel=1e-9)
    frozen = replace(model, layers=tuple(replace(x, frozen=bool(x.narrow)) for x in model.layers))
    assert update_time(frozen, H100, optimizer) == update_time(frozen, H100, optimizer, False)


@pytest.mark.parametrize(
    ("ways", "wanted"),
    [
        ({}, False),
        ({"zero": 1}, False),
        ({"zero": 2}, False),
        ({"zero": 3}, True),
        ({"zero": 3, "gather": "forward"}, False),
        ({"offload": "activations"}, False),
        ({"offload": "all"}, True),
    ],
)
def test_weights_are_cast_in_each_pass_where_no_copy_is_held(ways, wanted):
    assert costs.casts_each_pass(Strategy(**ways)) is wanted


def test_what_experts_cast():
    """Each row and what the second product reads; in backward the gradients of both products' outputs."""
    model = with_narrow(MODELS["experts"], "fp8")
    index = next(at for at, x in enumerate(model.layers) if x.kind == "experts")
    rows, width = 2 * 4096, 4096
    found = costs.operands(model)
    assert found.activations[index] == found.gradients[index] == rows * 5 * width
    assert found.weights[index] == model.layers[index].parameters
    gated = with_narrow(read_model("mixtral-8x7b"), "fp8")
    layer = next(x for x in gated.layers if x.kind == "gated_experts")
    inner, rows = layer.attributes["features"], layer.attributes["routed"]
    assert layer.traits.operands(layer) == (rows * (4096 + inner), rows * (4096 + 2 * inner))


def test_few_rows_take_longer_in_fp8():
    """A product that waits for weights reads half of them, but casts move three times as much before it."""
    model = read_model({**WIDE, "sequence": 16})
    wide, narrow, linear = both(model, each_pass=True)
    assert (narrow.forward[linear] > wide.forward[linear]).all()
    _, held, _ = both(model)
    assert (held.forward[linear] < wide.forward[linear]).all()


def test_frozen_weights_cast_one_gradient_and_no_rate_of_a_kind_is_of_fp8():
    model = with_narrow(MODELS["gpt"], "fp8")
    frozen = replace(model, layers=tuple(replace(x, frozen=bool(x.narrow)) for x in model.layers))
    linear = [bool(layer.narrow) for layer in model.layers]
    forward = layer_times(frozen, H100, 1, "fp8").forward
    assert (forward == layer_times(model, H100, 1, "fp8").forward).all()
    measured = replace(H100, layers={"dense": LayerRate(rate=1e12, backward_rate=1e12)})
    slow, free = (layer_times(model, device, 1, "fp8").forward for device in (measured, H100))
    assert (slow[linear] == free[linear]).all()
    assert slow[-1] > 10 * free[-1]  # logits are in bf16
