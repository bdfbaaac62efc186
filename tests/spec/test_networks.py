"""Networks: counts against published ones, laws of the transformer papers, errors that help."""

import csv
from math import prod
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lib_dlhpc.errors import SpecError
from lib_dlhpc.spec import catalog, networks
from lib_dlhpc.spec.networks import FAMILIES, build
from lib_dlhpc.spec.networks.builder import Builder

ROWS = list(csv.DictReader((Path(__file__).parents[1] / "data" / "workloads.csv").open()))


def named(name):
    options = catalog.body("models", name)
    return build(options.pop("family"), options, name)


# -- reference rows ------------------------------------------------------------------------------

MODELS = {
    "ResNet-50 v1.5": "resnet50",
    "ResNet-50 v1": "resnet50-v1",
    "ResNet-101 v1.5": "resnet101",
    "ResNet-152 v1.5": "resnet152",
    "VGG-16": "vgg16",
    "AlexNet (grouped, CaffeNet)": "alexnet",
    "AlexNet (one weird trick, torchvision)": "alexnet-owt",
    "ResNet-1001 (CIFAR 32x32)": "resnet1001",
    "ResNet-1001 (224x224 input)": "resnet1001-224",
    "Inception-v3": "inception-v3",
    "BERT-base": "bert-base",
    "BERT-large": "bert-large",
    "GPT-2 1.5B": "gpt2-1.5b",
    "GPT-3 175B (vocab 51200)": "gpt3-175b",
    "GPT 22B": "gpt-22b",
    "MT-NLG 530B": "mt-nlg-530b",
    "GPT 1T": "gpt-1t",
    "CosmoFlow 128^3 (Mathuriya)": "cosmoflow-128",
    "SRGAN generator": "srgan-generator",
    "FRNN": "frnn",
}


def measure(model, quantity):
    pools = sum(layer.stored for layer in model.layers if layer.kind.endswith("pool"))
    return {
        "params": model.parameters / 1e6,
        "fwd": model.forward_flop / 1e9,
        "train": model.train_flop / 1e9,
        "grad_fp32": 4 * model.parameters / 1e6,
        # The two AlexNet rows leave the pools out of the activations.
        "act": 4 * (model.stored - (pools if model.name.startswith("alexnet") else 0)) / 1e6,
        "seq": model.input_shape[0],
    }[quantity]


def tolerance(row):
    """Return the relative error allowed, and why."""
    if row["confidence"] == "computed" and row["quantity"] == "act" and "1001" in row["name"]:
        return 5e-4, "the reference leaves out one map of 16 channels (a normalization)"
    if row["confidence"] == "computed":
        digits = len(row["value"].partition(".")[2])
        return 0.51 * 10**-digits / float(row["value"]), "the printed digits"
    if row["name"] == "CosmoFlow 128^3 (Mathuriya)" and row["quantity"] == "train":
        return 0.09, "recalled; the layer shapes of the published code give 8% less"
    if row["name"].startswith("BERT") and row["quantity"] in ("fwd", "train"):
        return 0.05, "the reference counts the encoder only, without the heads"
    if row["name"] == "SRGAN generator":
        return 0.04, "quoted to two digits"
    return 0.03, "recalled"


@pytest.mark.parametrize(
    "row",
    [row for row in ROWS if row["name"] in MODELS],
    ids=lambda row: f"{row['name']}-{row['quantity']}",
)
def test_counts_equal_the_reference(row):
    allowed, why = tolerance(row)
    value = measure(named(MODELS[row["name"]]), row["quantity"])
    assert value == pytest.approx(float(row["value"]), rel=allowed), why


@pytest.mark.parametrize("name", catalog.names("models"))
def test_catalog_models_build_and_meet_their_published_counts(name):
    model = named(name)
    for quantity, expected in catalog.read("models", name).get("expected", {}).items():
        allowed = expected["within"]
        assert getattr(model, quantity) == pytest.approx(expected["value"], rel=allowed, abs=0)


def test_inception_with_its_auxiliary_classifier():
    assert build("inception", {"auxiliary": True}).parameters == 27_161_264


# -- BERT ----------------------------------------------------------------------------------------


def test_bert_without_heads_is_the_encoder_and_pooler():
    model = build("bert", {"head": "pooler"})
    assert model.parameters == 109_482_240
    assert model.forward_flop == pytest.approx(22.4e9, rel=5e-3)
    assert build("bert", {}).parameters == 110_106_428


# -- GPT -----------------------------------------------------------------------------------------

gpts = st.builds(
    lambda layers, heads, width, sequence, vocabulary: {
        "layers": layers,
        "hidden": heads * width,
        "heads": heads,
        "sequence": sequence,
        "vocabulary": vocabulary,
    },
    layers=st.integers(1, 5),
    heads=st.integers(1, 16),
    width=st.integers(1, 64),
    sequence=st.integers(1, 300),
    vocabulary=st.integers(2, 60000),
)


@given(gpts)
@settings(deadline=None, max_examples=50)
def test_gpt_is_narayanan_2021_equations_2_and_3(options):
    layers, h, _, s, vocabulary = options.values()
    model = FAMILIES["gpt"](**options)
    eq2 = 12 * layers * h**2 + 13 * layers * h + (vocabulary + s) * h
    assert model.parameters == eq2 + 2 * h  # the last layer norm, which eq. 2 leaves out
    eq3 = 72 * s * layers * h**2 * (1 + s / (6 * h) + vocabulary / (12 * layers * h))
    assert model.train_flop == pytest.approx(eq3, rel=1e-12)


@given(gpts)
@settings(deadline=None, max_examples=50)
def test_gpt_activations_are_korthikanti_2022_table_2(options):
    layers, h, a, s, vocabulary = options.values()
    model = FAMILIES["gpt"](**options)
    for number in range(1, layers + 1):
        inside = [item for item in model.layers if item.name.startswith(f"layer{number}.")]
        kept = sum(2 * item.stored + item.mask_bytes for item in inside)
        assert kept == 34 * s * h + 5 * a * s**2
    # Section 4.4: the embedding's dropout, the last layer norm, the last matrix, fp32 logits.
    whole = layers * (34 * s * h + 5 * a * s**2) + 5 * s * h + 4 * s * vocabulary
    assert 2 * model.stored + model.mask_bytes == whole


def test_gpt2_has_the_released_number_of_parameters():
    assert named("gpt2-1.5b").parameters == 1_557_611_200


# -- networks listed layer by layer --------------------------------------------------------------

convs = st.builds(
    lambda channels, kernel, stride, padding, bias: {
        "kind": "conv",
        "channels": channels,
        "kernel": kernel,
        "stride": stride,
        "padding": min(padding, kernel // 2),
        "bias": bias,
    },
    channels=st.integers(1, 6),
    kernel=st.integers(1, 3),
    stride=st.integers(1, 2),
    padding=st.integers(0, 1),
    bias=st.booleans(),
)
pools = st.sampled_from([{"kind": "max_pool", "kernel": 2}, {"kind": "avg_pool", "kernel": 2}])
plain = st.sampled_from([{"kind": "relu"}, {"kind": "batch_norm"}, {"kind": "dropout"}])


@given(
    shape=st.lists(st.integers(5, 12), min_size=1, max_size=3),
    channels=st.integers(1, 4),
    layers=st.lists(st.one_of(convs, pools, plain), max_size=5),
    features=st.integers(1, 9),
)
@settings(deadline=None, max_examples=100)
def test_sequential_counts_equal_brute_force(shape, channels, layers, features):
    tables = [*layers, {"kind": "flatten"}, {"kind": "dense", "features": features}]
    try:
        model = build("sequential", {"input": [channels, *shape], "layers": tables})
    except SpecError:
        assert any("kernel" in table for table in layers)
        return
    assert len(model.layers) == len(tables)
    parameters, multiply_adds, space, depth = 0, 0, list(shape), channels
    for table in layers:
        kind = table["kind"]
        if kind == "conv":
            weights = [
                (output, source, *place)
                for output in range(table["channels"])
                for source in range(depth)
                for place in _places(table["kernel"], len(space))
            ]
            space = [_windows(n, table["kernel"], table["stride"], table["padding"]) for n in space]
            depth = table["channels"]
            parameters += len(weights) + (depth if table["bias"] else 0)
            multiply_adds += len(weights) * prod(space)
        elif kind.endswith("pool"):
            space = [_windows(n, 2, 2, 0) for n in space]
        elif kind == "batch_norm":
            parameters += 2 * depth
    flat = depth * prod(space)
    assert model.parameters == parameters + (flat + 1) * features
    assert model.forward_flop == 2 * (multiply_adds + flat * features)
    assert model.layers[-2].output_shape == (flat,)


def _places(kernel, rank):
    places = [()]
    for _ in range(rank):
        places = [(*place, i) for place in places for i in range(kernel)]
    return places


def _windows(extent, kernel, stride, padding):
    return len(range(-padding, extent + padding - kernel + 1, stride))


def test_sequential_joins_branches_by_name():
    model = build(
        "sequential",
        {
            "input": [3, 8, 8],
            "layers": [
                {"kind": "conv", "channels": 3, "kernel": 3, "padding": 1, "name": "left"},
                {"kind": "conv", "channels": 3, "kernel": 1, "after": "input", "name": "right"},
                {"kind": "add", "inputs": ["left", "right"], "name": "sum"},
                {"kind": "concat", "inputs": ["sum", "input"]},
            ],
        },
    )
    assert model.output_shape == (6, 8, 8)
    assert model.layers[2].inputs == ("left", "right")


def test_layers_carry_what_a_trainer_needs():
    routed = {"experts", "chosen", "features", "capacity", "routed", "groups", "chosen_groups"}
    needed = {
        "conv": {"channels", "kernel", "stride", "padding", "groups", "bias"},
        "dense": {"features", "bias", "tied"},
        "max_pool": {"kernel", "stride", "padding"},
        "avg_pool": {"kernel", "stride", "padding"},
        "embedding": {"vocabulary", "features"},
        "position_embedding": {"positions"},
        "attention": {
            *("heads", "kv_heads", "causal", "window", "dropout"),
            *("rotary_base", "alibi"),
        },
        "glu": {"activation"},
        "layer_norm": {"bias", "scale"},
        "group_norm": {"groups"},
        "modulate": {"first", "form"},
        "timestep": {"features"},
        "label_embedding": {"labels", "features"},
        "untokens": {"space"},
        "upsample": {"factor"},
        "lstm": {"hidden", "sequences"},
        "dropout": {"rate"},
        "leaky_relu": {"slope"},
        "pixel_shuffle": {"factor"},
        "gather": {"positions"},
        "experts": routed,
        "squared_relu_experts": routed,
        "gated_experts": routed | {"activation", "bias"},
        "latent_attention": {"heads", "size", "values", "rotated"},
        "indexer": {"heads", "size", "chosen"},
        "sparse_latent_attention": {*("heads", "size", "values", "rotated"), *("latent", "chosen")},
        "head_norm": {"heads", "kv_heads"},
        "sinks": {"heads", "kv_heads"},
        "state_space": {"heads", "head_size", "state", "groups", "kernel", "chunk"},
        "tokens": {"learned"},
    }
    for name in catalog.names("models"):
        for layer in named(name).layers:
            assert set(layer.attributes) == needed.get(layer.kind, set())


@given(hidden=st.integers(1, 20), features=st.integers(1, 20), steps=st.integers(1, 9))
def test_an_lstm_has_four_gates_over_input_and_state(hidden, features, steps):
    net = Builder(steps, features)
    net.lstm(hidden)
    (layer,) = net.model("lstm").layers
    assert layer.parameters == 4 * (hidden * features + hidden * hidden + hidden)
    assert layer.forward_flop == steps * 2 * (4 * hidden * features + 4 * hidden * hidden)


# -- the same arguments, the same object ---------------------------------------------------------


def test_build_remembers_what_it_built():
    assert build("resnet", {"classes": 10}) is build("resnet", {"classes": 10})
    assert build("resnet", {"classes": 10}) is not build("resnet", {"classes": 11})


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"widths": [4, 3, 2], "bias": True}, {"widths": [4, 3, 2], "bias": 1}),
        ({"widths": [4, 3]}, {"widths": [4, 3, 2]}),
    ],
)
def test_build_tells_options_apart(one, other):
    assert networks._hashable(one) != networks._hashable(other)
    assert networks._hashable(one) == networks._hashable(dict(reversed(one.items())))


@pytest.mark.parametrize("value", [object(), {1}, b"resnet", [[None, 1j]], 5 * [{"a": print}]])
def test_options_that_are_not_plain_are_named(value):
    with pytest.raises(SpecError, match=r"'mlp': options must be numbers, text, .*: .* is a \w+"):
        build("mlp", {"widths": value})


def test_options_that_hold_themselves_are_refused():
    widths = [1]
    widths.append(widths)
    with pytest.raises(SpecError, match="options must be numbers"):
        build("mlp", {"widths": widths})


def test_options_given_to_build_are_copied():
    options = {"widths": [4, 3, 2]}
    model = build("mlp", options)
    options["widths"].append(1)
    assert model.options == {"widths": [4, 3, 2]}


# -- errors name the value and what is legal -----------------------------------------------------

EXPERTS = {"experts": 2, "chosen": 1, "features": 5}
SMALL = {"input": [1, 8, 8]}


@pytest.mark.parametrize(
    ("family", "options", "words"),
    [
        ("resnets", {}, ["'resnets'", "resnet_cifar", "Did you mean 'resnet'"]),
        ("resnet", {"block": [1]}, ["'block'", "stride_in", "Did you mean 'blocks'"]),
        ("resnet", {"stride_in": "3x4"}, ["'3x4'", "1x1, 3x3", "Did you mean '3x3'"]),
        ("resnet", {"blocks": [3, 0]}, ["blocks", "0", "at least 1"]),
        ("resnet", {"blocks": []}, ["blocks", "[]", "at least one"]),
        ("resnet", {"image": 2.5}, ["image", "2.5", "whole number"]),
        ("resnet", {"image": True}, ["image", "True", "whole number"]),
        ("resnet", {"bottleneck": 1}, ["bottleneck", "1", "true or false"]),
        ("resnet_cifar", {"depth": 1000}, ["depth", "1000", "1001"]),
        ("gpt", {"layers": 2, "hidden": 8}, ["needs", "'heads'"]),
        ("gpt", {"layers": 2, "hidden": 10, "heads": 3}, ["heads = 3", "divide"]),
        ("gpt", {"layers": 2, "hidden": 8, "heads": 2, "dropout": 1.5}, ["1.5", "< 1"]),
        (
            "gpt",
            {"layers": 2, "hidden": 8, "heads": 2, "experts": 4, "capacity": "1"},
            ["capacity = '1'", "a number from 0"],
        ),
        (
            "sequential",
            {"input": [4, 3], "layers": [{"kind": "experts", "inputs": ["input"], **EXPERTS}]},
            ["experts1", "(4, 3)", "(4, 2)"],
        ),
        ("gpt", {"layers": 10**6, "hidden": 8, "heads": 2}, ["at most 100,000 layers"]),
        ("gpt", {"layers": 2, "hidden": 10**10, "heads": 2}, ["10000000000", "1,000,000,000"]),
        ("bert", {"sequence": 600}, ["512", "600"]),
        ("cosmoflow_large", {"image": 100}, ["100", "128, 256, 512"]),
        ("mlp", {"widths": [3]}, ["widths", "[3]", "2"]),
        ("vgg", {"image": 16}, ["kernel = 2", "larger than its input"]),
        ("sequential", SMALL, ["needs", "'layers'"]),
        ("sequential", {**SMALL, "layers": [{"kind": "cnov"}]}, ["'cnov'", "Did you mean 'conv'"]),
        ("sequential", {**SMALL, "layers": [{}]}, ["layer 1", "kind = None"]),
        ("sequential", {**SMALL, "layers": ["conv"]}, ["'conv'", "table"]),
        (
            "sequential",
            {**SMALL, "layers": [{"kind": "conv", "chanels": 3, "kernel": 1}]},
            ["layer 1 (conv)", "'chanels'", "Did you mean 'channels'"],
        ),
        (
            "sequential",
            {**SMALL, "layers": [{"kind": "conv", "channels": 3, "kernel": 9}]},
            ["conv1", "kernel = 9", "1 to 8"],
        ),
        (
            "sequential",
            {**SMALL, "layers": [{"kind": "max_pool", "kernel": [2, 2, 2]}]},
            ["[2, 2, 2]", "2 entries"],
        ),
        (
            "sequential",
            {**SMALL, "layers": [{"kind": "max_pool", "kernel": 2, "padding": 2}]},
            ["padding = 2", "0 to 1"],
        ),
        (
            "sequential",
            {**SMALL, "layers": [{"kind": "conv", "channels": 4, "kernel": 1, "groups": 3}]},
            ["groups = 3", "1 input channels"],
        ),
        ("sequential", {**SMALL, "layers": [{"kind": "dense", "features": 2}]}, ["flatten"]),
        (
            "sequential",
            {**SMALL, "layers": [{"kind": "relu", "after": "rely"}]},
            ["'rely'", "Legal: input"],
        ),
        (
            "sequential",
            {**SMALL, "layers": [{"kind": "relu", "name": "a"}, {"kind": "relu", "name": "a"}]},
            ["'a'", "own name"],
        ),
        (
            "sequential",
            {**SMALL, "layers": [{"kind": "max_pool", "kernel": 2}, {"kind": "add"}]},
            ["needs", "'inputs'"],
        ),
        (
            "sequential",
            {
                **SMALL,
                "layers": [
                    {"kind": "max_pool", "kernel": 2, "name": "half"},
                    {"kind": "add", "inputs": ["half", "input"]},
                ],
            },
            ["(1, 4, 4)", "(1, 8, 8)"],
        ),
        ("mlp", {"widths": {1, 2}}, ["numbers, text, lists"]),
    ],
)
def test_errors_name_the_value_and_what_is_legal(family, options, words):
    with pytest.raises(SpecError) as error:
        build(family, options)
    for word in words:
        assert word in str(error.value)


def test_a_family_that_shares_a_catalog_name_has_its_options_as_defaults():
    for name in set(FAMILIES) & set(catalog.names("models")):
        assert FAMILIES[name]().layers == named(name).layers


def test_an_integer_may_be_written_as_a_float():
    options = {"layers": 2, "hidden": 64, "heads": 4, "sequence": 16, "vocabulary": 32}
    floats = {name: float(value) for name, value in options.items()}
    one, other = build("gpt", options), build("gpt", floats)
    assert one == other and all(type(n) is int for n in other.layers[-1].output_shape)
    for wrong in (2.5, float("inf"), float("nan"), 1e10):
        with pytest.raises(SpecError, match="whole number of at least 1, at most"):
            build("gpt", {**options, "layers": wrong})


def test_heads_that_do_not_divide_the_features_raise():
    options = {"layers": 2, "hidden": 64, "heads": 3, "sequence": 16, "vocabulary": 32}
    with pytest.raises(SpecError, match=r"heads = 3 must divide the 64 features.*hidden = 64"):
        build("gpt", options)
