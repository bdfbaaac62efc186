"""Fused attention: no scores in memory, more FLOP in backward, fewer bytes; where nothing is said, as on the device."""

import numpy as np
import pytest

from lib_dlhpc import Experiment, loads, simulate
from lib_dlhpc.costs.roofline import layer_times
from lib_dlhpc.layout.parts import parts
from lib_dlhpc.prediction import predict
from lib_dlhpc.prediction.memory.device_ledger import ledger
from lib_dlhpc.prediction.memory.rank_memory import peak_of
from lib_dlhpc.prediction.validation.published import family
from lib_dlhpc.prediction.what_if import what_if
from lib_dlhpc.spec.experiment import dumps, read_experiment
from lib_dlhpc.timeline import breakdown

RUN = Experiment(
    model={"name": "llama2-7b", "layers": 2},
    dataset="webtext",
    machine={"name": "h100-pod", "device": {"fused_attention": False}},
    strategy={"devices_per_node": 2, "batch": 2, "precision": "bf16", "optimizer": "adam"},
)
ON = {"strategy.fused_attention": "on"}
WAYS = [
    {},
    {"strategy.tensor": 2},
    {"strategy.tensor": 2, "strategy.sequence_parallel": True},
    {"strategy.pipeline": 2, "strategy.microbatches": 2},
    {"strategy.recompute": "full"},
    {"model.window": 1024},
]


def attention(run):
    """The first attention of the first part, its forward and its backward time."""
    model = parts(run, 0)[0].model
    times = layer_times(model, run.machine.device, 1, run.strategy.precision)
    at = next(n for n, layer in enumerate(model.layers) if "attention" in layer.kind)
    return model.layers[at], times.forward[at], times.backward[at]


@pytest.mark.parametrize("way", WAYS)
def test_it_stores_a_number_a_row_in_the_place_of_the_scores(way):
    without, with_it = (attention(RUN.set({**way, **more}))[0] for more in ({}, ON))
    positions, features = with_it.output_shape
    heads = with_it.attributes["heads"]
    assert (with_it.stored, with_it.mask_bytes) == (positions * features, 4 * heads * positions)
    assert without.stored - with_it.stored == heads * positions**2


def test_activations_of_gpt_are_34_s_h_and_a_row_statistic():
    """Korthikanti et al. 2022, table 2, without the term 5 a s^2."""
    run = RUN.set({"model.name": "gpt3-175b", **ON})
    inside = [layer for layer in run.model.layers if layer.name.startswith("layer1.")]
    s, h, a = 2048, 12288, 96
    assert sum(2 * layer.stored + layer.mask_bytes for layer in inside) == 34 * s * h + 4 * a * s


@pytest.mark.parametrize("window", [0, 3, 8, 100])
def test_a_kernel_computes_the_products_that_a_causal_mask_leaves(window):
    run = RUN.set({"model.window": window, "model.sequence": 8, **ON})
    layer = attention(run)[0]
    seen = min(window or 8, 8)
    left = sum(min(at + 1, seen) for at in range(8))
    assert layer.traits.computed_part(layer) == pytest.approx(left / (8 * seen))
    split = run.set({"strategy.context": 2, "strategy.context_exchange": "ring"})
    part = attention(split)[0]
    assert part.traits.computed_part(part) == layer.traits.computed_part(layer)


def test_a_stated_share_of_the_peak_is_that_of_the_products_left():
    fast = {"machine.device.memory_bandwidth": 1e18, "machine.device.launch": 0.0}
    run = RUN.set({**fast, "machine.device.half_work": 0.0, "machine.device.attention": 0.25, **ON})
    layer, forward, backward = attention(run)
    left = layer.forward_flop * 4097 / 8192
    assert forward == pytest.approx(left / (0.25 * run.machine.device.peak["bf16"]))
    assert backward == pytest.approx(2.5 * forward)
    # Attention in separate kernels has the rate of other products, in all blocks.
    apart = run.set({"strategy.fused_attention": "off"})
    others = apart.set({"machine.device.attention": 0.0})
    assert attention(apart)[1:] == attention(others)[1:]


def test_backward_repeats_one_of_two_products():
    """Five products in backward for two in forward (Dao 2023, "FlashAttention-2", section 4.1), if compute limits."""
    fast = RUN.set({"machine.device.memory_bandwidth": 1e18, "machine.device.launch": 0.0})
    fast = fast.set({"machine.device.half_work": 0.0})
    _, forward, backward = attention(fast.set(ON))
    assert backward == pytest.approx(2.5 * forward)
    _, forward, backward = attention(fast)
    assert backward == pytest.approx(2 * forward)


@pytest.mark.parametrize("way", WAYS)
def test_a_step_is_faster_and_smaller_on_a_gpu_and_simulated_alike(way):
    run = RUN.set(way)
    fused = run.set(ON)
    assert predict(fused).step_time < predict(run).step_time
    assert ledger(fused)["activations"] <= ledger(run)["activations"]
    assert peak_of(fused, 0).total < peak_of(run, 0).total
    simulated = breakdown(simulate(fused)).step_time
    assert simulated == pytest.approx(predict(fused).step_time, rel=0.1)


def test_a_window_limits_the_products_only_if_fused():
    def of(changes):
        return attention(RUN.set(changes))[0].forward_flop

    few = {"model.window": 1024}
    assert of(few) == of({})
    assert of({**few, **ON}) == of(ON) / 4 == of({}) / 4
    assert of({"model.window": 10**6, **ON}) == of(ON)


def test_it_is_on_by_default_where_the_device_says_so():
    there = RUN.set({"machine.device.fused_attention": True})
    assert there.fuses_attention and not RUN.fuses_attention
    assert predict(there).step_time == predict(RUN.set(ON)).step_time
    off = there.set({"strategy.fused_attention": "off"})
    assert predict(off).step_time == predict(RUN).step_time
    assert off.model.layers == RUN.model.layers
    assert loads(dumps(there)).model.layers == there.model.layers == RUN.set(ON).model.layers


def test_a_measured_rate_becomes_that_of_the_fused_kernel():
    measured = RUN.set({"calibration.rate": 3.0, "calibration.devices": 2, "calibration.batch": 2})
    apart, fused = predict(measured), predict(what_if(measured, ON))
    free = predict(RUN.set(ON)).compute / predict(RUN).compute
    assert fused.compute / apart.compute == pytest.approx(free, rel=1e-6)
    assert free < 0.9


def test_it_changes_neither_weights_nor_other_layers():
    one, other = RUN.model, RUN.set(ON).model
    assert one.parameters == other.parameters
    same = [a == b for a, b in zip(one.layers, other.layers, strict=True)]
    assert np.sum(same) == len(same) - 2


@pytest.mark.parametrize("name", ["megatron", "korthikanti", "mt-nlg", "bloom"])
def test_published_rows_before_it_do_not_depend_on_the_device(name):
    """The publications of 2021 and 2022 trained without it."""
    table = family(name)["experiment"]
    run = read_experiment(table)
    modern = run.set({"machine.device.fused_attention": True})
    assert not modern.fuses_attention
    assert modern.model is run.model
