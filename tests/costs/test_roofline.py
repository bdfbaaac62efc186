"""Laws of compute: between the rooflines, and exactly what was measured where it was measured."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lib_dlhpc import Experiment, SpecError
from lib_dlhpc.costs.roofline import (
    BYTES,
    STATE,
    UPDATE_TRAFFIC,
    layer_times,
    peak_rate,
    traffic,
    update_time,
)
from lib_dlhpc.prediction import predict
from lib_dlhpc.spec import catalog
from lib_dlhpc.spec.experiment import read_model
from lib_dlhpc.spec.machine import PRECISIONS, read_device
from lib_dlhpc.spec.strategy import FORMATS, OPTIMIZERS, TRAINING_PRECISIONS

RUN = Experiment(model="resnet50", dataset="imagenet", machine="summit", strategy={"nodes": 4})
RESNET = read_model("resnet50")
DEVICES = [read_device(name) for name in catalog.names("devices")]


@pytest.mark.parametrize("device", DEVICES, ids=lambda device: device.name)
@pytest.mark.parametrize("model", ["resnet50", "bert-base", "mlp-digits", "lstm-lm"])
def test_layers_lie_between_their_rooflines(device, model):
    model, stated = read_model(model), device
    device = replace(device, dispatch=0.0, multiprocessors=0, streaming=0.0, unfused_loss=False)
    for batch in (1, 32, 1024):
        times = layer_times(model, device, batch, "fp32")
        slower = layer_times(model, stated, batch, "fp32")  # tiles, dispatch and losses only add
        assert (slower.forward >= times.forward * (1 - 1e-12)).all()
        assert (slower.backward >= times.backward * (1 - 1e-12)).all()
        rate = peak_rate(device, "fp32")
        moved, weights = traffic(model, 4)
        memory = 4 * (batch * moved + weights) / device.memory_bandwidth
        work = batch * model.layer_forward_flop
        least = np.maximum(work / rate, memory)
        most = (
            work / (rate * device.efficiency)
            + device.half_work / (rate * device.efficiency)
            + memory
            + device.launch
        )
        assert (times.forward >= least * (1 - 1e-12)).all()
        assert (times.forward <= most * (1 + 1e-12)).all()
        # Twice the work, twice the bytes, twice the kernels.
        np.testing.assert_allclose(times.backward, 2 * times.forward, rtol=1e-12)


def test_a_layer_by_hand():
    """3 x 3 convolution, 64 to 64 channels, 56 x 56: w = 2 * 9 * 64 * 64 * 56^2 FLOP."""
    device = read_device("v100-sxm2-16gb")
    index = next(
        i
        for i, layer in enumerate(RESNET.layers)
        if layer.kind == "conv"
        and layer.input_shape == layer.output_shape == (64, 56, 56)
        and layer.attributes["kernel"] in (3, (3, 3), [3, 3])
    )
    work = 32 * 2 * 9 * 64 * 64 * 56 * 56
    by_flop = (work + device.half_work) / (device.peak["fp32"] * device.efficiency)
    by_byte = 4 * (32 * 2 * 64 * 56 * 56 + 9 * 64 * 64) / device.memory_bandwidth
    assert by_flop > by_byte
    found = layer_times(RESNET, device, 32, "fp32").forward[index]
    assert found == pytest.approx(by_flop + device.launch, rel=1e-12)


def test_a_view_is_free_and_an_embedding_reads_its_rows_only():
    for name in ("vgg16", "bert-base"):
        model = read_model(name)
        moved, weights = traffic(model, 4)
        for index, layer in enumerate(model.layers):
            if layer.traits.view:
                assert moved[index] == 0
            if layer.kind == "embedding":
                assert weights[index] == 0 and moved[index] > 0
    device = read_device("v100-sxm2-16gb")
    free = [layer.traits.view for layer in read_model("vgg16").layers]
    assert any(free) and not layer_times(read_model("vgg16"), device, 8, "fp32").forward[free].any()


@given(st.integers(1, 4096), st.integers(1, 4096))
def test_a_bigger_batch_takes_longer_but_never_longer_a_sample(a, b):
    small, big = sorted((a, b))
    device = read_device("p100-sxm2")
    one = layer_times(RESNET, device, small, "fp32").forward
    more = layer_times(RESNET, device, big, "fp32").forward
    assert (more >= one).all()
    assert (more / big <= one / small * (1 + 1e-12)).all()


def test_the_p40_computes_mixed_precision_at_its_fp32_rate():
    device = read_device("p40")
    assert device.peak["fp16"] < device.peak["fp32"]
    for precision in ("fp16", "bf16"):
        assert peak_rate(device, precision) == peak_rate(device, "fp32") == 11.8e12
    assert layer_times(RESNET, device, 32, "fp16").forward.sum() < (
        layer_times(RESNET, device, 32, "fp32").forward.sum()
    )


@pytest.mark.parametrize(
    ("peak", "precision", "rate"),
    [
        ({"fp32": 1, "fp16": 8}, "fp16", 8),
        ({"fp32": 1, "fp16": 8}, "bf16", 1),
        ({"fp32": 1, "tf32": 4}, "tf32", 4),
        ({"fp32": 1}, "tf32", 1),
        ({"bf16": 9}, "fp32", 9),
        ({"bf16": 9}, "fp16", 9),
        ({"fp32": 1}, "fp64", None),
    ],
)
def test_the_rate_of_a_precision(peak, precision, rate):
    device = RUN.machine.device
    found = peak_rate(type(device)(**{**vars(device), "peak": peak}), precision)
    assert np.isnan(found) if rate is None else found == rate


def test_a_precision_the_device_lacks_is_refused():
    run = RUN.set({"machine.device.name": "tpu-v3", "strategy.precision": "fp64"})
    with pytest.raises(SpecError, match=r"strategy\.precision = 'fp64'.*legal here"):
        predict(run)


def test_tables_cover_every_choice():
    assert set(BYTES) == set(TRAINING_PRECISIONS)
    assert {FORMATS.get(each, each) for each in TRAINING_PRECISIONS} <= set(PRECISIONS)
    assert set(STATE) == set(UPDATE_TRAFFIC) == set(OPTIMIZERS)
    two = ("fp16", "bf16", *FORMATS)
    assert {"fp64": 8, "fp32": 4, "tf32": 4, **dict.fromkeys(two, 2)} == BYTES
    # Momentum reads w, g, m and writes w, m; Adam also its second moment.
    assert (UPDATE_TRAFFIC["sgd"], UPDATE_TRAFFIC["momentum"], UPDATE_TRAFFIC["adam"]) == (3, 5, 7)


def test_the_update_moves_fp32_parameters():
    device = read_device("v100-sxm2-16gb")
    found = update_time(RESNET, device, "momentum")
    assert found == pytest.approx(4 * 5 * 25_557_032 / device.memory_bandwidth, rel=1e-12)
