"""Laws of what experts do beside products: copies of rows, and products that start one after another."""

from dataclasses import replace

import pytest

from lib_dlhpc.costs.roofline import layer_times
from lib_dlhpc.layers.base.copies import expected_places
from lib_dlhpc.layers.experts import STREAMS
from lib_dlhpc.layout.experts import own_experts
from lib_dlhpc.spec.experiment import read_model
from lib_dlhpc.spec.machine import load_machine

POSITIONS, WIDTH, INNER, CHOSEN, EXPERTS = 32, 64, 48, 4, 16
ROWS = POSITIONS * CHOSEN
ARRIVED = POSITIONS * expected_places(EXPERTS, CHOSEN, 1, 1, 4)  # one copy for a device of four
DEVICE = load_machine("h100-pod").device


def model_of(shared=1, gathered=False, experts=EXPERTS, width=WIDTH, inner=INNER):
    model = read_model(
        {
            "family": "decoder",
            "layers": 1,
            "hidden": width,
            "sequence": POSITIONS,
            "vocabulary": 64,
            "attention": {"heads": 4},
            "feed_forward": {"features": 96},
            "experts": {"experts": experts, "chosen": CHOSEN, "features": inner},
        }
    )
    return own_experts(model, shared, 0, 1.0, gathered)


def experts_of(model):
    (layer,) = (each for each in model.layers if each.traits.tensor == "experts")
    return layer


@pytest.mark.parametrize(
    ("shared", "gathered", "copies"),
    [
        # What each pass reads and writes of rows: as they leave and are summed, and by expert where they arrive.
        (1, False, 2 * (POSITIONS + ROWS)),
        (4, False, 2 * (POSITIONS + ROWS) + 4 * ROWS),
        (4, True, 2 * (ARRIVED + ROWS)),
        (EXPERTS, False, 2 * (POSITIONS + ROWS)),  # one expert: rows arrive in its order
        (EXPERTS, True, 0),
    ],
)
def test_rows_are_copied_once_each_time_that_their_order_changes(shared, gathered, copies):
    layer = experts_of(model_of(shared, gathered))
    for size in (2, 4):
        forward, backward = layer.traits.beside(layer, size)
        # SwiGLU reads two arrays and writes one.
        assert forward == pytest.approx(size * (copies * WIDTH + 3 * ROWS * INNER))
        assert backward == pytest.approx(size * (copies * WIDTH + 5 * ROWS * INNER))


@pytest.mark.parametrize("shared", [1, 2, 4, 8, 16])
def test_each_expert_has_two_products_and_some_are_at_work_at_once(shared):
    layer = experts_of(model_of(shared))
    products, kernels = layer.traits.starts(layer)
    assert products == 2 * -(-EXPERTS // shared // STREAMS)
    assert kernels == products + 3 + 2 * (1 < shared < EXPERTS)


def test_the_same_rows_take_longer_for_more_experts_by_their_starts():
    """A quarter of the rows for each of four times the experts: the same arithmetic and copies, more starts."""
    few, many = (model_of(experts=count, width=1024, inner=1024) for count in (16, 64))
    names = [layer.name for layer in few.layers]
    at = names.index(experts_of(few).name)
    batch = 2**12  # enough rows for arithmetic to limit both
    one, other = (layer_times(model, DEVICE, batch, "bf16") for model in (few, many))
    more = 2 * (64 - 16) / STREAMS
    start = DEVICE.half_work / (DEVICE.peak["bf16"] * DEVICE.efficiency) + DEVICE.launch
    assert other.forward[at] - one.forward[at] == pytest.approx(more * start, rel=1e-6)
    assert other.backward[at] - one.backward[at] == pytest.approx(2 * more * start, rel=1e-6)


def test_layers_without_experts_have_nothing_beside_and_start_once():
    for layer in model_of().layers:
        if layer.traits.tensor != "experts":
            assert layer.traits.beside(layer, 2) == (0.0, 0.0)
            assert layer.traits.starts(layer) == (1, 1)


@pytest.mark.parametrize(("size", "moved"), [(2, (28, 40)), (4, (24, 32))])
def test_a_bias_whose_weights_come_in_32_bits_is_cast_only_to_fewer(size, moved):
    """Forward: times weights 4, sum n + 8, concatenation 8, cast n + 4; in 32 bits the last is a view."""
    rows = ROWS * WIDTH
    layer = experts_of(model_of(4, gathered=True))
    biased = replace(layer, attributes={**layer.attributes, "bias": True})
    found = (each.traits.beside(each, size) for each in (biased, layer))
    assert [one - other for one, other in zip(*found, strict=True)] == [n * rows for n in moved]
