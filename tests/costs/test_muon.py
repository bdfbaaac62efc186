"""Muon's price: which tensors are matrices, the published overhead, and its state."""

from dataclasses import replace

import pytest

from lib_dlhpc.costs.checkpoints import checkpoint_bytes
from lib_dlhpc.costs.muon import (
    Matrices,
    matrices,
    matrices_of,
    orthogonalization_time,
    orthogonalized,
    rest,
)
from lib_dlhpc.costs.roofline import (
    orthogonal_rate,
    streamed_update_time,
    streaming_rate,
    update_time,
)
from lib_dlhpc.spec.experiment import read_model
from lib_dlhpc.spec.machine import read_device

LLAMA, H100 = read_model("llama3-8b"), read_device("h100-sxm-80gb")
WIDTH, LAYERS, WORDS = 4096, 32, 128256


def test_tables_logits_and_norms_take_adamw():
    """Llama 3 8B: embedding and logits of 128,256 words, two norms a block and one after."""
    assert rest(LLAMA, "muon") == 2 * WORDS * WIDTH + (2 * LAYERS + 1) * WIDTH
    assert orthogonalized(LLAMA) + rest(LLAMA, "muon") == LLAMA.parameters
    assert len(matrices_of(LLAMA)) == 5 * LAYERS
    assert rest(LLAMA, "adam") == 0


def test_experts_are_matrices_each_and_a_kernel_is_one():
    layer = next(x for x in read_model("mixtral-8x7b").layers if x.kind == "gated_experts")
    assert {*matrices(layer).values()} == {Matrices(8, 4096, 14336), Matrices(8, 14336, 4096)}
    kernel = read_model("vgg16").layers[0]
    assert matrices(kernel) == {"weight": Matrices(1, 64, 3 * 3 * 3)}
    assert matrices(replace(kernel, frozen=True)) == {}


@pytest.mark.parametrize(
    ("width", "tokens", "published"), [(768, 524_288, 0.007), (16_384, 16e6, 0.005)]
)
def test_the_overhead_is_the_published_one(width, tokens, published):
    """Jordan et al. 2024: at most 5 m / B of a step's FLOP; 0.7% for NanoGPT, 0.5% for Llama 405B."""
    for rows in (width, 2 * width, 4 * width):
        share = Matrices(1, rows, width).flop / (6 * rows * width * tokens)
        assert share <= 5 * width / tokens
    square = Matrices(1, width, width).flop / (6 * width**2 * tokens)
    assert square == pytest.approx(5 * width / tokens) == pytest.approx(published, rel=0.05)


def test_an_update_is_that_of_momentum_and_the_iterations():
    rate = orthogonal_rate(H100)
    assert rate == H100.peak["bf16"] * H100.efficiency
    products = sum(each.flop for _, each in matrices_of(LLAMA)) / rate
    time = orthogonalization_time(LLAMA, H100, rate)
    assert products < time < 1.2 * products  # large products, and 15 launches each
    whole, streamed = (of(LLAMA, H100, "muon") for of in (update_time, streamed_update_time))
    assert whole == pytest.approx(streamed + time)
    moved = 4 * (5 * orthogonalized(LLAMA) + 7 * rest(LLAMA, "muon"))
    assert streamed == pytest.approx(moved / streaming_rate(H100))
    slow = replace(H100, slowdown=2.0)
    assert update_time(LLAMA, slow, "muon") == pytest.approx(2 * whole)


def test_a_checkpoint_has_one_number_of_state_for_a_matrix_and_two_for_the_rest():
    size = checkpoint_bytes(LLAMA, "bf16", "muon")
    assert size == pytest.approx(
        6 * LLAMA.parameters + 4 * orthogonalized(LLAMA) + 8 * rest(LLAMA, "muon")
    )
