"""Laws of what a device file may state of its kernels: tiles of products, dispatch by the host, streaming."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lib_dlhpc.costs import roofline
from lib_dlhpc.costs.cross_entropy import loss_bytes
from lib_dlhpc.costs.gemm_tiles import used
from lib_dlhpc.costs.host import dispatched, kernels, waited, waits
from lib_dlhpc.costs.roofline import layer_times, update_time
from lib_dlhpc.layout import parts
from lib_dlhpc.prediction import predict
from lib_dlhpc.spec.experiment import Experiment, read_model
from lib_dlhpc.spec.machine import read_device

A100 = read_device("a100-sxm-80gb")
PLAIN = replace(A100, dispatch=0.0, multiprocessors=0, streaming=0.0, unfused_loss=False)
GPT = read_model({"name": "gpt3-175b", "layers": 3, "hidden": 1024, "heads": 16, "sequence": 1024})
SECONDS = st.lists(st.floats(0, 1), min_size=1, max_size=9)


def test_a_product_whose_tiles_fill_whole_waves_has_the_full_rate():
    assert used(256 * 108, 128, 108) == used(256 * 27, 128 * 8, 108) == 1.0
    assert used(256 * 109, 128, 108) == pytest.approx(0.8 * 436 / 540)  # smaller tiles waste less
    assert used(1, 1, 108) == pytest.approx(0.6 / (108 * 64 * 64))


@given(st.integers(1, 20_000), st.integers(1, 20_000), st.integers(1, 200))
def test_no_product_is_quicker_than_full_waves_and_none_takes_more_than_one_of_each_tile(
    m, n, many
):
    part = used(m, n, many)
    assert 0 < part <= 1
    tiles = -(-m // 128) * -(-n // 128)
    assert part >= 0.95 * m * n / (-(-tiles // many) * many * 128 * 128) * (1 - 1e-12)


@given(SECONDS, SECONDS, SECONDS)
def test_a_pass_takes_as_long_as_the_slower_of_host_and_device_or_a_little_longer(
    busy, issue, sent
):
    many = min(map(len, (busy, issue, sent)))
    busy, issue, sent = (np.array(each[:many]) for each in (busy, issue, sent))
    each = dispatched(busy, issue, sent)
    assert (each >= busy - 1e-12).all()
    whole, start = each.sum() + sent.sum(), issue[:-1].sum()
    assert whole >= max(busy.sum() + sent.sum(), start) - 1e-12
    # Lindley, one layer after the other.
    end, host = 0.0, 0.0
    for work, own, wire in zip(busy, issue, sent, strict=True):
        end, host = max(end, host) + work + wire, host + own
    assert whole == pytest.approx(end)


@given(SECONDS, SECONDS, SECONDS, st.sets(st.integers(1, 8)))
def test_a_host_that_waits_for_the_device_has_no_lead_after_it(busy, issue, sent, at):
    many = min(map(len, (busy, issue, sent)))
    busy, issue, sent = (np.array(each[:many]) for each in (busy, issue, sent))
    at = sorted(each for each in at if each < many)
    found = waited(busy, issue, sent, at)
    # One layer after the other: the host waits until the layer before is computed, not for what is sent after it.
    free = computed = host = 0.0
    for number, (work, own, wire) in enumerate(zip(busy, issue, sent, strict=True)):
        host = max(host, computed) if number in at else host
        computed = max(free, host) + work
        free, host = computed + wire, host + own
    assert found.sum() + sent.sum() == pytest.approx(free)
    assert (found >= busy - 1e-12).all()
    assert found.sum() >= dispatched(busy, issue, sent).sum() - 1e-9  # rounding of sums
    np.testing.assert_array_equal(waited(busy, issue, sent, ()), dispatched(busy, issue, sent))


def test_the_host_waits_for_counts_of_rows_unless_a_capacity_gives_them():
    table = {"name": "qwen3-30b-a3b", "layers": 3}
    model = read_model(table)
    kinds = [layer.kind for layer in model.layers]
    assert [kinds[at] for at in waits(model)] == ["gated_experts"] * 3
    full = {"experts": 128, "chosen": 8, "features": 768, "capacity": 1.0}
    assert waits(read_model(table | {"experts": full})) == waits(read_model("llama3-8b")) == ()


def test_a_wait_costs_time_only_where_the_host_is_not_ahead():
    """A host that issues nothing slowly loses nothing by waiting; a slow one takes longer, and no pass gets shorter."""
    model = read_model({"name": "qwen3-30b-a3b", "layers": 3})
    capacity = {"experts": 128, "chosen": 8, "features": 768, "capacity": 1.0}
    padded = read_model({"name": "qwen3-30b-a3b", "layers": 3, "experts": capacity})
    for samples, least, most in ((1, 1.01, 2.0), (256, 1.0, 1.001)):
        waiting, other = (
            layer_times(each, A100, samples, "bf16").forward.sum() for each in (model, padded)
        )
        assert least <= waiting / other <= most


def test_the_host_limits_small_batches_only():
    quick = replace(A100, dispatch=0.0)
    ahead, back = kernels(GPT)
    small, of_device = (layer_times(GPT, way, 1, "fp16").forward[:-1] for way in (A100, quick))
    assert small.sum() == pytest.approx(A100.dispatch * ahead[:-1].sum(), rel=0.1)
    # Without the logits, on which the device works for a while.
    assert small.sum() > 2 * of_device.sum()
    large, of_device = (layer_times(GPT, way, 64, "fp16").forward for way in (A100, quick))
    assert large.sum() == pytest.approx(of_device.sum(), rel=0.01)
    np.testing.assert_array_equal(back, 2 * ahead)


def test_attention_in_one_kernel_is_issued_sooner():
    fused = Experiment(
        model="gpt2-1.5b", dataset="webtext", machine="selene", strategy={"fused_attention": "on"}
    )
    apart = fused.set({"strategy.fused_attention": "off"})
    assert kernels(fused.model)[0].sum() < kernels(apart.model)[0].sum()


def test_tensor_ranks_issue_their_collectives_and_do_not_wait_for_them_twice():
    run = Experiment(
        model={"name": "gpt3-175b", "layers": 4, "hidden": 1024, "heads": 16},
        dataset="webtext",
        machine="selene",
        strategy={"batch": 1, "tensor": 8, "precision": "fp16", "overlap": False},
    )
    bound = predict(run)
    free = predict(run.set({"machine.device.dispatch": 0.0}))
    assert bound.forward > 2 * free.forward
    # What the host takes is met by computing and by sending: a slower link costs nothing until it is the slower one.
    slower = predict(run.set({"machine.intra_node.latency": 8e-6}))
    assert slower.exposed["tensor"] > bound.exposed["tensor"] * 1.2
    assert slower.step_time < bound.step_time + 0.6 * (
        slower.exposed["tensor"] - bound.exposed["tensor"]
    )


def test_the_loss_of_a_language_model_reads_its_logits():
    ahead, back = loss_bytes(GPT)
    logits = 1024 * 51200
    assert (ahead.sum(), back.sum()) == (38 * logits, 18 * logits)
    assert not any(each.sum() for each in loss_bytes(read_model("resnet50")))
    half = replace(PLAIN, streaming=0.5)
    apart, fused = (
        layer_times(GPT, device, 2, "fp16").forward[-1]
        for device in (replace(half, unfused_loss=True), half)
    )
    assert apart == pytest.approx(fused + 2 * 38 * logits / 1e12, rel=1e-9)
    assert fused == layer_times(GPT, PLAIN, 2, "fp16").forward[-1]  # bound by arithmetic


def test_what_only_moves_data_takes_the_streaming_rate():
    half = replace(PLAIN, streaming=0.5)
    assert update_time(GPT, half, "adam") == pytest.approx(2 * update_time(GPT, PLAIN, "adam"))


@pytest.mark.parametrize("device", ["a100-sxm-80gb", "v100-sxm2-16gb"])
def test_layers_with_equal_counts_take_as_long_as_if_each_were_priced(device, monkeypatch):
    own, batch = read_device(device), np.array([1, 3, 32])
    few, place = roofline.distinct_layers(GPT)
    once = layer_times(GPT, own, batch, "fp16")
    assert len(few.layers) < len(GPT.layers) == len(place)
    monkeypatch.setattr(roofline, "distinct_layers", lambda model: (model, np.arange(len(place))))
    for one, other in zip(once, layer_times(GPT, own, batch, "fp16"), strict=True):
        assert np.array_equal(one, other)


@pytest.mark.parametrize("here", [8, 32])
def test_each_expert_has_its_own_products_and_in_fp8_a_cast_before_each(here):
    """Of the host; on the device four of the products are at work at once."""
    run = Experiment(
        model={"name": "qwen3-30b-a3b", "layers": 2},
        dataset="webtext",
        machine="h100-pod",
        strategy={"nodes": 2, "batch": 1, "precision": "bf16", "experts": 128 // here},
    )
    model, narrow = (
        parts(each, 0)[0].model for each in (run, run.set({"strategy.precision": "fp8"}))
    )
    (ahead, back), (cast, cast_back) = kernels(model), kernels(narrow)
    at = [layer.kind for layer in model.layers].index("gated_experts")
    beside = 5  # rows are copied four times, and activated
    assert (ahead[at], back[at]) == (2 * here + beside, 2 * (2 * here + beside))
    assert cast[at] - ahead[at] == cast_back[at] - back[at] == 2 * here


def test_biases_and_limits_of_experts_are_kernels_and_traffic_of_their_own():
    """A bias after the last product is two kernels of each expert and one of all; the limits are three."""
    mixture = {"experts": 8, "chosen": 2, "features": 48}
    options = {
        "family": "decoder",
        "layers": 1,
        "hidden": 32,
        "sequence": 16,
        "vocabulary": 64,
        "attention": {"heads": 4},
        "feed_forward": {"features": 48},
    }
    plain, biased, clamped = (
        next(
            layer
            for layer in read_model(options | {"experts": mixture | more}).layers
            if layer.kind == "gated_experts"
        )
        for more in ({}, {"bias": True}, {"activation": "clamped"})
    )
    issued = plain.traits.issues(plain)[0]
    assert plain.traits.issues(biased)[0] == issued + 2 * 8 + 1
    assert plain.traits.issues(clamped)[0] == issued + 3
    rows = 2 * 16
    for layer, width, ahead, back in ((biased, 32, 6, 8), (clamped, 48, 8, 10)):
        for size in (2, 4):
            moved = np.subtract(plain.traits.beside(layer, size), plain.traits.beside(plain, size))
            assert moved.tolist() == [ahead * size * rows * width, back * size * rows * width]
    assert biased.parameters == plain.parameters + 8 * (2 * 48 + 32)


def test_gradients_of_experts_biases_are_added_one_by_one_in_backward():
    """Two biases of each expert, one before and one after the activation."""
    options = {
        "family": "decoder",
        "layers": 1,
        "hidden": 32,
        "sequence": 16,
        "vocabulary": 64,
        "attention": {"heads": 4},
        "feed_forward": {"features": 48},
    }
    mixture = {"experts": 8, "chosen": 2, "features": 48}
    for bias in (False, True):
        model = read_model(options | {"experts": mixture | {"bias": bias}})
        at = [layer.kind for layer in model.layers].index("gated_experts")
        ahead, back = (each[at] for each in kernels(model))
        assert back - 2 * ahead == (2 * 8 if bias else 0)
