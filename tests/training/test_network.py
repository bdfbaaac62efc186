"""Laws of networks: a batch is the sum of its parts, memory has one owner, gradients complete in order."""

from itertools import pairwise
from threading import Barrier, Thread

import numpy as np
import pytest
from layer_references import assert_gradient, model_of, samples_of
from patience import PATIENCE

from lib_dlhpc.errors import SpecError
from lib_dlhpc.layers.add import Add
from lib_dlhpc.layers.dense import Dense
from lib_dlhpc.layers.embedding import Embedding
from lib_dlhpc.spec import catalog
from lib_dlhpc.spec.experiment import read_model
from lib_dlhpc.spec.networks import build
from lib_dlhpc.training.loss import mean_squared_error, softmax_cross_entropy
from lib_dlhpc.training.network import Network

CONV = {"kind": "conv", "channels": 3, "kernel": 3, "padding": 1}
WORDS = {"kind": "embedding", "vocabulary": 7, "features": 4, "name": "words"}

# Every kind of layer dependency, as small as possible.
MODELS = {
    "mlp": build("mlp", {"widths": [5, 4, 6, 3]}),
    "mlp, dropped": build("mlp", {"widths": [5, 8, 3], "activation": "gelu", "dropout": 0.4}),
    "images": model_of(
        (2, 5, 6),
        CONV,
        {"kind": "relu"},
        {"kind": "dropout", "rate": 0.3},
        {"kind": "max_pool", "kernel": 2},
        {"kind": "flatten"},
        {"kind": "dense", "features": 3},
    ),
    "volumes": model_of(
        (1, 4, 5, 4),
        {**CONV, "channels": 4},
        {"kind": "leaky_relu"},
        {"kind": "avg_pool", "kernel": 2},
        {**CONV, "groups": 2, "channels": 2},
        {"kind": "tanh"},
        {"kind": "global_avg_pool"},
        {"kind": "dense", "features": 3},
    ),
    "residual": model_of(
        (2, 4, 3),
        {**CONV, "name": "source"},
        {"kind": "relu"},
        {**CONV, "name": "branch"},
        {"kind": "add", "inputs": ["source", "branch"], "name": "sum"},
        {"kind": "relu"},
        {"kind": "concat", "inputs": ["sum", "relu2", "branch"]},
        {"kind": "flatten"},
        {"kind": "dense", "features": 3},
    ),
    "one vector, three readers": model_of(
        (4,),
        {"kind": "dense", "features": 4, "name": "a"},
        {"kind": "relu", "name": "b"},
        {"kind": "sigmoid", "name": "c", "after": "a"},
        {"kind": "tanh", "name": "d", "after": "b"},
        {"kind": "add", "inputs": ["a", "b", "c"], "name": "e"},
        {"kind": "add", "inputs": ["e", "e"]},
        {"kind": "concat", "inputs": ["d", "add1", "e"]},
    ),
    "gpt": build(
        "gpt",
        {"layers": 2, "hidden": 4, "heads": 2, "sequence": 3, "vocabulary": 7, "dropout": 0.2},
    ),
    "tied twice": model_of(
        (3,),
        WORDS,
        {"kind": "dense", "features": 7, "tied": "words", "name": "first"},
        {"kind": "dense", "features": 4},
        {"kind": "layer_norm"},
        {"kind": "dense", "features": 7, "tied": "words", "bias": False},
    ),
    "lstm": build(
        "lstm_language_model",
        {"layers": 2, "hidden": 3, "sequence": 4, "vocabulary": 6, "dropout": 0.3},
    ),
    "frnn": build("frnn", {"signals": 3, "steps": 4, "layers": 2, "hidden": 2}),
}
# Batch norm mixes the samples of a batch.
NORMALIZED = {
    "resnet_cifar": build("resnet_cifar", {"depth": 11, "image": 4, "classes": 3}),
    "normalized": model_of(
        (2, 3, 4),
        CONV,
        {"kind": "batch_norm"},
        {"kind": "relu"},
        {**CONV, "name": "branch"},
        {"kind": "batch_norm"},
        {"kind": "add", "inputs": ["batch_norm2", "relu1"]},
        {"kind": "flatten"},
        {"kind": "dense", "features": 4},
        {"kind": "batch_norm"},
        {"kind": "relu"},
        {"kind": "dense", "features": 3},
    ),
}
# The last layer's output is the loss's to overwrite, whatever the layer still needs of it.
ENDS = {
    kind: model_of((2, 3, 4), CONV, {"kind": kind, **options})
    for kind, options in {
        "relu": {},
        "leaky_relu": {},
        "tanh": {},
        "sigmoid": {},
        "gelu": {},
        "dropout": {},
        "batch_norm": {},
        "conv": {"channels": 2, "kernel": 2},
        "max_pool": {"kernel": 2},
        "avg_pool": {"kernel": 2},
        "global_avg_pool": {},
        "flatten": {},
    }.items()
}
ENDS["dropout of nothing"] = model_of(
    (4,), {"kind": "dense", "features": 3}, {"kind": "tanh"}, {"kind": "dropout", "rate": 0.0}
)
ENDS["flat, of tanh"] = model_of(
    (3, 2), {"kind": "lstm", "hidden": 3}, {"kind": "tanh"}, {"kind": "flatten"}
)
ALL = MODELS | NORMALIZED | ENDS

each = pytest.mark.parametrize("name", MODELS)
each_of_all = pytest.mark.parametrize("name", ALL)


def network_of(name, seed=1, dtype=np.float64):
    """Return a network whose weights all differ from their initial values."""
    network = Network(ALL[name], dtype, seed)
    network.weights += np.random.default_rng(6).normal(size=network.weights.size) / 5
    network.context.step = 2
    return network


def targets_of(name, batch):
    return np.random.default_rng(8).normal(size=(batch, *ALL[name].output_shape))


def step(network, x, targets, samples=None, done=lambda start: None):
    """Return loss and gradients of these samples' part of a batch."""
    network.gradients.fill(np.nan)
    loss, dy = mean_squared_error(network.forward(x), targets, samples or len(x))
    network.backward(dy, done)
    return loss, network.gradients.copy()


@each_of_all
def test_gradients_equal_differences(name):
    x, targets, network = samples_of(ALL[name], 3), targets_of(name, 3), network_of(name)
    _, gradients = step(network, x, targets)
    places = np.random.default_rng(0).permutation(network.weights.size)[:60]
    some = network.weights[places]

    def loss():
        network.weights[places] = some
        return mean_squared_error(network.forward(x), targets, 3)[0]

    assert_gradient("weights", gradients[places], loss, some)


@each
@pytest.mark.parametrize("cut", [(1, 5), (2, 2, 2), (3, 0, 1, 2), (1,) * 6])
def test_a_batch_is_the_sum_of_its_parts(name, cut):
    x, targets, network = samples_of(ALL[name], 6), targets_of(name, 6), network_of(name)
    whole, gradients = step(network, x, targets)
    loss, total = 0.0, np.zeros_like(gradients)
    for first, stop in pairwise(np.cumsum([0, *cut])):
        network.context.first_sample = int(first)
        share, part = step(network, x[first:stop], targets[first:stop], samples=6)
        loss, total = loss + share, total + part
    assert loss == pytest.approx(whole, rel=1e-13)
    np.testing.assert_allclose(total, gradients, rtol=1e-11, atol=1e-13)


@pytest.mark.parametrize("name", NORMALIZED)
@pytest.mark.parametrize("cut", [(1, 5), (2, 1, 3), (0, 6)])
def test_ranks_with_global_normalization_equal_one(name, cut):
    x, targets, alone = samples_of(ALL[name], 6), targets_of(name, 6), network_of(name)
    whole, gradients = step(alone, x, targets)
    networks = [network_of(name) for _ in cut]
    barrier, sent = Barrier(len(cut), timeout=PATIENCE), [None] * len(cut)
    found = [None] * len(cut)

    def rank(number, part):
        def sum_over_ranks(values):
            sent[number] = values.copy()
            barrier.wait()
            total = np.sum(sent, axis=0)
            barrier.wait()
            return total

        networks[number].context.sum_over_ranks = sum_over_ranks
        found[number] = step(networks[number], x[part], targets[part], samples=6)

    ends = np.cumsum([0, *cut])
    ranks = [Thread(target=rank, args=(k, slice(*ends[k : k + 2]))) for k in range(len(cut))]
    for thread in ranks:
        thread.start()
    for thread in ranks:
        thread.join()
    assert sum(loss for loss, _ in found) == pytest.approx(whole, rel=1e-12)
    np.testing.assert_allclose(sum(part for _, part in found), gradients, rtol=1e-9, atol=1e-12)
    for network in networks:
        np.testing.assert_allclose(network.statistics, alone.statistics, rtol=1e-12)


@each_of_all
def test_memory_of_a_larger_batch_changes_nothing(name):
    x, targets = samples_of(ALL[name], 5), targets_of(name, 5)
    used, fresh = network_of(name), network_of(name)
    step(used, x, targets)
    for batch in (2, 1, 3):
        loss, gradients = step(used, x[:batch], targets[:batch])
        expected_loss, expected = step(fresh, x[:batch], targets[:batch])
        assert loss == expected_loss
        np.testing.assert_array_equal(gradients, expected)


@each_of_all
def test_gradients_complete_from_the_end_to_the_start_and_are_then_unchanged(name):
    network, starts, seen = network_of(name), [], []

    def done(start):
        starts.append(start)
        seen.append(network.gradients[start:].copy())

    _, gradients = step(network, samples_of(ALL[name], 2), targets_of(name, 2), done=done)
    assert starts == sorted(set(starts), reverse=True)
    assert starts[-1:] == ([0] if len(gradients) else [])
    assert set(starts) <= {parameter.start for parameter in network.parameters}
    for start, part in zip(starts, seen, strict=True):
        np.testing.assert_array_equal(part, gradients[start:])


@each_of_all
@pytest.mark.parametrize("batch", [1, 3])
@pytest.mark.parametrize("training", [True, False])
def test_forward_does_not_modify_the_samples(name, batch, training):
    x, network = samples_of(ALL[name], batch), network_of(name)
    before = x.copy()
    x.flags.writeable = False
    y = network.forward(x, training)
    assert y.shape == (batch, *ALL[name].output_shape)
    y.fill(np.nan)  # the caller owns the output; it is no view of the samples
    np.testing.assert_array_equal(x, before)


@each_of_all
def test_backward_does_not_modify_samples_or_weights(name):
    x, network = samples_of(ALL[name], 3), network_of(name)
    x.flags.writeable = network.weights.flags.writeable = False
    for tensors in network.store._weights:
        for tensor in tensors.values():
            tensor.flags.writeable = False
    _, gradients = step(network, x, targets_of(name, 3))
    assert np.all(np.isfinite(gradients))


@each_of_all
def test_evaluation_changes_no_state_and_repeats_itself(name):
    x, targets, network = samples_of(ALL[name], 3), targets_of(name, 3), network_of(name)
    _, expected = step(network, x, targets)
    state = [array.copy() for array in (network.weights, network.gradients, network.statistics)]
    first = network.forward(x, training=False).copy()
    np.testing.assert_array_equal(network.forward(x, training=False), first)
    rows = [network.forward(x[k : k + 1], training=False).copy() for k in range(3)]
    np.testing.assert_allclose(np.concatenate(rows), first, rtol=1e-11, atol=1e-13)
    after = (network.weights, network.gradients, network.statistics)
    for now, before in zip(after, state, strict=True):
        np.testing.assert_array_equal(now, before)
    _, again = step(network, x, targets)
    np.testing.assert_array_equal(again, expected)


def test_backward_after_an_evaluation_is_refused():
    network, x = network_of("mlp"), samples_of(ALL["mlp"], 2)
    network.forward(x)
    y = network.forward(x, training=False)
    with pytest.raises(RuntimeError, match="needs a forward pass in training"):
        network.backward(y)


@each
def test_float32_is_near_float64_and_starts_from_the_same_weights(name):
    x = samples_of(ALL[name], 3)
    narrow, wide = Network(ALL[name], np.float32, 5), Network(ALL[name], np.float64, 5)
    np.testing.assert_array_equal(narrow.weights, wide.weights.astype(np.float32))
    targets = targets_of(name, 3)
    y = narrow.forward(x if x.dtype.kind == "i" else x.astype(np.float32))
    assert y.dtype == narrow.gradients.dtype == narrow.statistics.dtype == np.float32
    _, dy = mean_squared_error(y, targets, 3)
    narrow.backward(dy)
    wide.forward(x)
    _, expected = step(wide, x, targets)
    np.testing.assert_allclose(narrow.gradients, expected, rtol=1e-3, atol=1e-5)


def test_equal_seeds_give_equal_weights_and_others_do_not():
    for model in (MODELS["gpt"], NORMALIZED["resnet_cifar"]):
        one, same, other = (Network(model, seed=seed) for seed in (3, 3, 4))
        assert one.weights.tobytes() == same.weights.tobytes()
        assert not np.array_equal(one.weights, other.weights)


def test_parameters_lie_in_the_order_of_the_layers_without_gap():
    network = Network(MODELS["gpt"])
    ends = [0, *(parameter.stop for parameter in network.parameters)]
    assert [parameter.start for parameter in network.parameters] == ends[:-1]
    assert ends[-1] == MODELS["gpt"].parameters
    layers = [parameter.layer for parameter in network.parameters]
    assert layers == sorted(layers)
    decaying = {p.name.rpartition(".")[2] for p in network.parameters if p.decays}
    fixed = {p.name.rpartition(".")[2] for p in network.parameters if not p.decays}
    assert (decaying, fixed) == ({"weight"}, {"bias", "scale", "shift"})


def test_a_network_learns():
    network, x = Network(MODELS["images"], np.float64), samples_of(MODELS["images"], 12)
    labels, losses = np.arange(12) % 3, []
    for _ in range(60):
        loss, dy = softmax_cross_entropy(network.forward(x), labels, 12)
        network.backward(dy)
        network.weights -= 0.1 * network.gradients
        losses.append(loss)
    assert losses[-1] < losses[0] / 3


# -- which models -----------------------------------------------------------------------------------

UNTRAINABLE = {
    "bert-base": "gather",
    "bert-large": "gather",
    "deepseek-v3": "latent_attention",
    "deepseek-v3.2": "indexer",
    "gpt-oss-120b": "sinks",
    "srgan-generator": "prelu",
    "ddpm-cifar10": "timestep",
    **dict.fromkeys(("dit-s2", "dit-b2", "dit-l2", "dit-xl2", "dit-xl2-512"), "label_embedding"),
    **dict.fromkeys(("vit-b16", "vit-l16", "vit-h14"), "gather"),
    "nemotron-h-8b": "state_space",
    "nemotron-h-56b": "state_space",
    "nemotron3-nano-30b-a3b": "state_space",
}


@pytest.mark.parametrize("name", catalog.names("models"))
def test_catalog_models_have_the_stated_number_of_weights_or_are_refused(name):
    model = read_model(name)
    if name in UNTRAINABLE:
        with pytest.raises(SpecError, match=rf"a {UNTRAINABLE[name]} layer .*trainable kinds: add"):
            Network(model)
        return
    for layer in model.layers:
        shapes = getattr(layer.traits(layer), "shapes", {})
        assert sum(int(np.prod(shape)) for shape in shapes.values()) == layer.parameters, layer.name
    if model.parameters < 1_000_000:
        network = Network(model)
        assert len(network.weights) == len(network.gradients) == model.parameters


@pytest.mark.parametrize(
    ("shape", "layers", "message"),
    [
        ((4,), [{"kind": "softmax"}], "softmax1: a softmax layer can be predicted but not trained"),
        (
            (2, 8),
            [{**CONV}],
            "conv1: a layer of kind conv is trained on samples of channels with 2 or 3",
        ),
        (
            (2, 8),
            [{"kind": "max_pool", "kernel": 2}],
            "max_pool1: a layer of kind max_pool is trained on",
        ),
        ((2, 8), [{"kind": "global_avg_pool"}], "global_avg_pool1: .* its input is"),
        ((2, 8), [{"kind": "batch_norm"}], "one row of features or channels with 2 or 3"),
        ((2, 8, 8), [{"kind": "layer_norm"}], r"of features or \(positions, features\)"),
        ((2, 8, 3), [{"kind": "attention", "heads": 1}], "attention1: a layer of kind attention"),
        ((2, 8), [WORDS], "words: a layer of kind embedding is trained on samples of one row"),
        ((8,), [{"kind": "relu"}, WORDS], "words: reads relu1; .*'input'"),
        (
            (4,),
            [
                {"kind": "dense", "features": 3, "bias": False, "name": "a"},
                {"kind": "dense", "features": 4, "tied": "a"},
            ],
            "dense1: tied = 'a' is a layer of kind dense",
        ),
        (
            (3,),
            [
                WORDS,
                {"kind": "dense", "features": 2},
                {"kind": "dense", "features": 14, "tied": "words"},
            ],
            "dense2: tied = 'words' .* an embedding of 2 features",
        ),
        (
            (4,),
            [
                {"kind": "relu"},
                {"kind": "tanh"},
                {"kind": "dense", "features": 2, "after": "relu1"},
            ],
            "tanh1: no layer reads its output.* dense1",
        ),
    ],
)
def test_what_cannot_be_trained_is_refused_by_name(shape, layers, message):
    with pytest.raises(SpecError, match=message):
        Network(model_of(shape, *layers))


# -- the tests can fail -----------------------------------------------------------------------------


def test_differences_find_branches_that_share_a_gradient(monkeypatch):
    shared = lambda layer, weights, gradients, saved, dy: (dy,) * saved.values["inputs"]  # noqa: E731
    monkeypatch.setattr(Add, "backward", shared)
    with pytest.raises(AssertionError, match="weights"):
        test_gradients_equal_differences("one vector, three readers")


def test_a_sum_overwrites_its_first_input_unless_another_layer_reads_it():
    layers = [{**CONV, "channels": 2, "name": name} for name in ("one", "two", "three")]
    layers[2]["after"] = "one"
    found = {}
    for inputs in (["two", "three"], ["one", "two", "three"]):
        model = model_of((2, 3, 4), *layers, {"kind": "add", "inputs": inputs})
        network, places = Network(model), []
        right = network.layers[-1].forward

        def watched(weights, saved, *x, right=right, places=places):
            y = right(weights, saved, *x)
            places.extend(np.shares_memory(each, y) for each in x)
            return y

        network.layers[-1].forward = watched
        network.forward(np.ones((3, 2, 3, 4), np.float32))
        found[inputs[0]] = places
    assert found == {"two": [True, False], "one": [False, False, False]}


def test_differences_find_an_output_that_is_overwritten_while_it_is_needed(monkeypatch):
    monkeypatch.setattr("lib_dlhpc.training.graph.overwritable", lambda layer: True)
    with pytest.raises(AssertionError, match="weights"):
        test_gradients_equal_differences("tanh")


def test_differences_find_a_tied_gradient_that_is_lost(monkeypatch):
    right = Embedding.backward

    def alone(layer, *arguments):
        layer.tied = False
        return right(layer, *arguments)

    monkeypatch.setattr(Embedding, "backward", alone)
    with pytest.raises(AssertionError, match="weights"):
        test_gradients_equal_differences("gpt")


def test_the_sum_of_parts_finds_a_mean(monkeypatch):
    right = Dense.backward

    def mean(layer, weights, gradients, saved, dy):
        dx = right(layer, weights, gradients, saved, dy)
        gradients["bias"] /= max(1, len(dy))
        return dx

    monkeypatch.setattr(Dense, "backward", mean)
    with pytest.raises(AssertionError):
        test_a_batch_is_the_sum_of_its_parts("mlp", (1, 5))


def test_the_order_of_gradients_finds_one_that_is_done_too_early(monkeypatch):
    backward = Network.backward

    def early(network, dy, done):
        backward(network, dy, lambda start: done(max(0, start - 1)))

    monkeypatch.setattr(Network, "backward", early)
    with pytest.raises(AssertionError):
        test_gradients_complete_from_the_end_to_the_start_and_are_then_unchanged("mlp")
