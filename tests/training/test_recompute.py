"""Laws of recomputation: results are bitwise equal, and less is saved."""

import tracemalloc

import numpy as np
import pytest
from layer_references import samples_of

from lib_dlhpc.costs.segments import segments
from lib_dlhpc.layers.dropout import Dropout
from lib_dlhpc.spec.networks import build
from lib_dlhpc.training import graph
from lib_dlhpc.training.loss import mean_squared_error, softmax_cross_entropy
from lib_dlhpc.training.network import Network

from .test_network import ALL, NORMALIZED, targets_of
from .test_stages import ORDERS, Pipeline

BLOCKS = {
    "gpt of three blocks": build(
        "gpt",
        {"layers": 3, "hidden": 4, "heads": 2, "sequence": 3, "vocabulary": 7, "dropout": 0.3},
    ),
    "long": build("mlp", {"widths": [5] * 9 + [3], "activation": "tanh", "dropout": 0.3}),
}
MODELS = ALL | BLOCKS
WAYS = ["full", "selective"]


def steps(model, recompute, batches=(3, 1, 2), order="one forward, one back", dtype=np.float64):
    """Return losses, gradients and statistics of some steps, each with masks of its own."""
    network = Network(model, dtype, 1, recompute=recompute)
    x = samples_of(model, sum(batches), dtype=dtype)
    targets = np.random.default_rng(8).normal(size=(sum(batches), *model.output_shape))
    found, (words, slots), ends = [], ORDERS[order], np.cumsum([0, *batches])
    for step in range(3):
        network.context.step = step
        network.begin_step(batches)
        dys = {}
        for what, number in words.split():
            number = int(number)
            part = slice(*ends[number : number + 2])
            network.context.first_sample = int(part.start) if what == "f" else -1
            if what == "f":
                (y,) = network.run(slots[number], x[part]).values()
                loss, dys[number] = mean_squared_error(y, targets[part], len(x))
                found.append(np.array(loss))
            else:
                network.back(slots[number], {network.gives[0]: dys.pop(number)})
        found += [network.gradients.copy(), network.statistics.copy()]
        network.weights -= network.dtype.type(0.01) * network.gradients
    return found


def assert_equal(found, expected):
    for a, b in zip(found, expected, strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("recompute", WAYS)
@pytest.mark.parametrize("name", MODELS)
def test_recomputation_changes_no_bit(name, recompute, dtype):
    expected = steps(MODELS[name], "none", dtype=dtype)
    assert_equal(steps(MODELS[name], recompute, dtype=dtype), expected)


@pytest.mark.parametrize("cut", [2, 5])
@pytest.mark.parametrize("recompute", WAYS)
@pytest.mark.parametrize("name", ["residual", "one vector, three readers", "gpt"])
def test_stages_recompute_as_well(name, recompute, cut):
    x, targets, found = samples_of(ALL[name], 6), targets_of(name, 6), []
    for way in ("none", recompute):
        pipeline = Pipeline(ALL[name], (cut,), recompute=way)
        loss, gradients = pipeline.step(x, targets, (3, 1, 2), *ORDERS["one forward, one back"])
        found.append([np.array(loss), *gradients.values()])
    assert_equal(*found)


def peak(model, batch, recompute):
    """Return the peak of some steps beyond weights and gradients."""
    tracemalloc.start()
    network = Network(model, np.float32, recompute=recompute)
    labels = np.zeros((batch, *model.output_shape[:-1]), int)
    for _ in range(2):
        _, dy = softmax_cross_entropy(
            network.forward(samples_of(model, batch, dtype=np.float32)), labels, batch
        )
        network.backward(dy)
        del dy
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return most - 2 * network.weights.nbytes


def test_less_is_saved():
    deep = build("mlp", {"widths": [256] * 33, "activation": "tanh"})
    gpt = build("gpt", {"layers": 6, "hidden": 32, "heads": 4, "sequence": 96, "vocabulary": 64})
    assert peak(deep, 512, "full") < 0.45 * peak(deep, 512, "none")
    none, selective, full = (peak(gpt, 8, way) for way in ("none", "selective", "full"))
    assert full < 0.5 * selective
    # Of a block, before and after dropout, with its mask; only one block is live at a time.
    scores = 8 * 4 * 96 * 96 * (4 + 4 + 1)
    assert none - selective == pytest.approx(5 * scores, rel=0.03)
    residual = build("resnet_cifar", {"depth": 29})
    # With a batch large enough for its activations to outweigh what convolutions take to compute.
    assert peak(residual, 8, "full") < 0.6 * peak(residual, 8, "none")


def test_backward_retains_nothing():
    network = Network(MODELS["gpt"], np.float64, recompute="full")
    x = samples_of(MODELS["gpt"], 2)
    for training in (True, False):
        y = network.forward(x, training)
        if training:
            assert any(own.held for own in network._passes.values())
            network.backward(y)
        for own in network._passes.values():
            assert not own.held and not any(saved.values for saved in own.saved)


# -- the tests can fail -----------------------------------------------------------------------------


def test_a_mask_of_another_microbatch_is_found(monkeypatch):
    right = Dropout.forward

    def late(layer, weights, saved, x):
        saved.context.first_sample += saved.context.recomputing
        return right(layer, weights, saved, x)

    monkeypatch.setattr(Dropout, "forward", late)
    with pytest.raises(AssertionError):
        test_recomputation_changes_no_bit("long", "full", np.float64)


def test_statistics_that_move_twice_are_found(monkeypatch):
    name, right = next(iter(NORMALIZED)), Network._one

    def twice(network, *of):
        network.context.recomputing = False
        return right(network, *of)

    monkeypatch.setattr(Network, "_one", twice)
    with pytest.raises(AssertionError):
        test_recomputation_changes_no_bit(name, "full", np.float64)


def test_a_segments_input_that_is_overwritten_is_found(monkeypatch):
    right, found = graph.flags, 0
    monkeypatch.setattr(graph, "flags", lambda model, sends, segments: right(model, sends, ()))
    for name in MODELS:
        if segments(MODELS[name], "full"):
            try:
                test_recomputation_changes_no_bit(name, "full", np.float64)
            except AssertionError:
                found += 1
    assert found
