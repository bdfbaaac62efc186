"""State-space layers of Mamba-2: counts against the paper's algorithm, a published hybrid, its import and service."""

from dataclasses import replace

import numpy as np
import pytest
from same_terms import assert_same_terms

from lib_dlhpc import Experiment, predict
from lib_dlhpc.costs.roofline import streaming_rate
from lib_dlhpc.errors import SpecError
from lib_dlhpc.importing.hugging_face import from_config
from lib_dlhpc.layers import Site
from lib_dlhpc.layers.state_space import convolved, flop, state_elements
from lib_dlhpc.layout import too_few
from lib_dlhpc.layout.tensor import split_tensors
from lib_dlhpc.serving.price import Chunk, Prices
from lib_dlhpc.serving.service import read_service
from lib_dlhpc.spec.experiment import read_model
from lib_dlhpc.spec.networks import build
from lib_dlhpc.spec.networks.builder import Builder
from lib_dlhpc.training.trainable import check_layers

MODEL = read_model("nemotron-h-8b")
SCAN = next(layer for layer in MODEL.layers if layer.kind == "state_space")
SMALL = {"heads": 4, "head_size": 3, "state": 5, "groups": 2, "kernel": 4, "chunk": 6}
TINY = {
    "pattern": "M*-",
    "hidden": 8,
    "attention": {"heads": 2},
    "state_space": SMALL,
    "feed_forward": {"features": 16, "activation": "relu", "gated": False},
    "sequence": 24,
    "vocabulary": 32,
}
# The fields of nvidia/Nemotron-H-8B-Base-8K that say its shapes.
CONFIG = {
    "model_type": "nemotron_h",
    "hybrid_override_pattern": "M-M-M-M*-M-M-M-M-M*-M-M-M-M-M*-M-M-M-M-M*-M-M-M-M-M-",
    "num_hidden_layers": 52,
    "hidden_size": 4096,
    "intermediate_size": 21504,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "mamba_num_heads": 128,
    "mamba_head_dim": 64,
    "ssm_state_size": 128,
    "n_groups": 8,
    "conv_kernel": 4,
    "chunk_size": 128,
    "vocab_size": 131072,
    "max_position_embeddings": 8192,
    "tie_word_embeddings": False,
}


def test_nemotron_h_has_the_weights_of_its_configuration():
    """Mamba-2's module, tensor by tensor; the card says 8.1 billion."""
    inner, both, heads, width = 128 * 64, 128 * 64 + 2 * 8 * 128, 128, 4096
    mamba = width * (inner + both + heads) + 4 * both + both + 3 * heads + inner + inner * width
    attention = width * (32 + 2 * 8) * 128 + 32 * 128 * width
    layers = 24 * mamba + 4 * attention + 24 * 2 * width * 21504 + 52 * width
    assert MODEL.parameters == layers + 2 * 131072 * width + width
    assert MODEL.parameters == pytest.approx(8.1e9, rel=0.001)


def scan_in_chunks(x, b, c, decay, chunk):
    """Listing 1 of Dao and Gu 2024 for one head: y, and the FLOP of its products. x: (L, P), b, c: (L, N)."""
    state, y, flop = np.zeros((b.shape[1], x.shape[1])), np.empty_like(x), 0.0
    for start in range(0, len(x), chunk):
        at = slice(start, start + chunk)
        total = np.cumsum(decay[at])
        mask = np.tril(np.exp(total[:, None] - total))
        scores = c[at] @ b[at].T
        y[at] = (scores * mask) @ x[at] + np.exp(total)[:, None] * (c[at] @ state)
        new = (b[at] * np.exp(total[-1] - total)[:, None]).T @ x[at]
        state = np.exp(total[-1]) * state + new
        n, (p, s) = len(total), (x.shape[1], b.shape[1])
        flop += 2.0 * n * (n * s + n * p + s * p + s * p)
    return y, flop


def test_chunks_are_the_recurrence_and_their_flop_are_those_priced():
    dice, length = np.random.default_rng(3), 24
    b, c = (dice.normal(size=(2, length, SMALL["state"])) for _ in range(2))  # of two groups
    total = 0.0
    for head in range(SMALL["heads"]):
        x, decay = dice.normal(size=(length, 3)), -dice.random(length)
        group = head // 2
        y, flops = scan_in_chunks(x, b[group], c[group], decay, SMALL["chunk"])
        # C B' once a group.
        total += flops - (head % 2) * 2.0 * length * SMALL["chunk"] * SMALL["state"]
        state = np.zeros((SMALL["state"], 3))
        for at in range(length):
            state = np.exp(decay[at]) * state + np.outer(b[group][at], x[at])
            np.testing.assert_allclose(y[at], c[group][at] @ state, rtol=1e-12, atol=1e-12)
    layer = next(each for each in build("hybrid", TINY).layers if each.kind == "state_space")
    assert layer.forward_flop == total


def test_flop_grow_with_the_sequence_not_with_its_square():
    one, four = (build("hybrid", {**TINY, "sequence": s, "pattern": "M"}) for s in (24, 96))
    assert four.forward_flop == 4 * one.forward_flop
    assert flop(1, SMALL) < flop(SMALL["chunk"], SMALL)


def test_the_ledger_has_its_outputs_and_a_step_is_predicted():
    assert SCAN.stored == 2 * 8192 * 8192
    run = Experiment(
        model="nemotron-h-8b",
        machine="h100-pod",
        strategy={"nodes": 8, "batch": 1, "precision": "bf16", "optimizer": "adam", "zero": 3},
    )
    found = predict(run)
    assert found.fits and 0.3 < found.utilization < 0.75


@pytest.mark.parametrize(
    ("strategy", "words"), [({"context": 2}, "state_space"), ({"spatial": 2}, "spatial = 2")]
)
def test_splits_of_a_sequence_are_refused(strategy, words):
    with pytest.raises(SpecError, match=words):
        predict(Experiment(model="nemotron-h-8b", machine="h100-pod", strategy=strategy))


def test_it_is_priced_not_trained():
    with pytest.raises(SpecError, match="can be predicted but not trained"):
        check_layers(build("hybrid", TINY))


def test_an_import_by_fields_is_the_model_of_the_catalog():
    imported = from_config(CONFIG).model
    assert imported.parameters == MODEL.parameters
    assert imported.forward_flop == MODEL.forward_flop


def test_an_import_reads_the_whole_file():
    """All other fields that transformers writes for such a network; and layers by name in place of letters."""
    rest = {"time_step_min": 0.001, "time_step_max": 0.1, "time_step_limit": [0.0, 1e9]}
    rest |= {"time_step_floor": 1e-4, "expand": 2, "use_mamba_kernels": True, "hidden_dropout": 0.0}
    rest |= {"residual_in_fp32": False, "rescale_prenorm_residual": True, "sliding_window": None}
    rest |= {
        "num_logits_to_keep": 1,
        "mamba_hidden_act": "silu",
        "mamba_ssm_cache_dtype": "float32",
    }
    rest |= {"mlp_hidden_act": "relu2", "use_conv_bias": True, "layer_norm_epsilon": 1e-5}
    names = {"M": "linear_attention", "*": "full_attention", "-": "mlp"}
    listed = [names[letter] for letter in CONFIG["hybrid_override_pattern"]]
    plain = {key: value for key, value in CONFIG.items() if key != "hybrid_override_pattern"}
    for config in ({**CONFIG, **rest}, {**plain, "layers_block_type": listed}):
        assert from_config(config).model == from_config(CONFIG).model


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"hybrid_override_pattern": "MXM*"}, "'MXM\\*' is not understood; legal: letters M"),
        (
            {"layers_block_type": ["mamba", "rnn"]},
            "'rnn'.*legal: a list of mamba, linear_attention",
        ),
        ({"moe_latent_size": 1024}, "moe_latent_size = 1024 is not understood; legal: 0"),
        ({"num_hidden_layers": 51}, "has 52 layers"),
        ({"mlp_bias": True}, "mlp_bias = true is not modeled; legal: false"),
        ({"mlp_hidden_act": "silu"}, "mlp_hidden_act"),
    ],
)
def test_what_an_import_does_not_understand_is_refused(changes, words):
    with pytest.raises(SpecError, match=words):
        from_config({**CONFIG, **changes})


def test_a_wrong_pattern_or_width_is_refused():
    with pytest.raises(SpecError, match=r"pattern = 'MX': legal: letters M"):
        build("hybrid", {**TINY, "pattern": "MX"})
    with pytest.raises(
        SpecError, match=r"pattern = 'ME': letter E needs the table \[model.experts\]"
    ):
        build("hybrid", {**TINY, "pattern": "ME"})
    with pytest.raises(SpecError, match="groups = 3; legal: a divisor of the 4 heads"):
        build("hybrid", {**TINY, "state_space": SMALL | {"groups": 3}})
    with pytest.raises(
        SpecError, match="reads 8 features; 4 heads of 3 in 2 groups of state 5 need 48"
    ):
        Builder(24, 8).state_space(4, 3, 5, 2)


@pytest.mark.parametrize("ranks", [2, 3, 4])
@pytest.mark.parametrize("sequence_parallel", [False, True])
def test_a_tensor_group_divides_heads_by_whole_groups(ranks, sequence_parallel):
    """Each rank has the features that its heads read; together they have all FLOP and weights once, but for norms."""
    options = {**TINY, "pattern": "MM", "state_space": {**SMALL, "heads": 12, "groups": 6}}
    model = build("hybrid", options)
    graphs = [
        split_tensors(model, ranks, rank, "paired", sequence_parallel) for rank in range(ranks)
    ]
    assert sum(layer.forward_flop for graph in graphs for layer in graph.layers) == pytest.approx(
        model.forward_flop
    )
    norms = sum(layer.parameters for layer in model.layers if layer.kind == "rms_norm")
    every = sum(layer.parameters for graph in graphs for layer in graph.layers)
    assert every == model.parameters + (ranks - 1) * norms
    seen = [next(each for each in graph.layers if each.kind == "dense") for graph in graphs]
    ranges = [one for each in seen for one in each.attributes["part"]["weight"][1]]
    assert sorted(at for first, stop in ranges for at in range(first, stop)) == list(
        range(seen[0].attributes["whole"].output_shape[-1])
    )
    for graph in graphs:
        (scan, *_) = (each for each in graph.layers if each.kind == "state_space")
        again = scan.traits.describe(
            Site("scan", (scan.input_shape,), {}), **{key: scan.attributes[key] for key in SMALL}
        )
        assert again.forward_flop == pytest.approx(scan.forward_flop)
        assert (again.output, again.parameters) == (scan.output_shape, scan.parameters)


@pytest.mark.parametrize(
    "strategy",
    [
        {"tensor": 2, "sequence_parallel": True, "zero": 1},
        {"tensor": 4, "experts": 2, "microbatches": 2},
        {"pipeline": 2, "microbatches": 4, "schedule": "zb-h1", "optimizer": "muon"},
        {"zero": 3, "optimizer": "muon", "experts": 1, "recompute": "full"},
    ],
)
def test_a_hybrid_is_simulated_as_it_is_predicted(strategy):
    experts = {"experts": 8, "chosen": 2, "features": 8, "shared": 4, "activation": "squared_relu"}
    how = {"nodes": 1, "batch": 8, "precision": "bf16", "optimizer": "adam", **strategy}
    model = {**TINY, "family": "hybrid", "pattern": "ME*-", "experts": experts}
    run = Experiment(model=model, machine="h100-pod", strategy=how).set({"machine.jitter": 0.0})
    assert_same_terms(run)


def test_with_fewer_groups_than_ranks_each_computes_all():
    model = build("hybrid", {**TINY, "pattern": "M-"})  # of two groups
    (scan,) = (
        each
        for each in split_tensors(model, 4, 1, "paired", False).layers
        if each.kind == "state_space"
    )
    assert scan.forward_flop == next(
        each.forward_flop for each in model.layers if each.kind == "state_space"
    )
    assert too_few(model, 4) == (
        "layer1.scan has 2 groups, so each rank holds and computes all of them; up to 2 ranks divide them"
    )
    assert too_few(model, 2) == ""


def test_what_kernels_pass_to_each_other():
    """Counted kernel by kernel: reads and writes of a position in elements of 16 bits."""
    inner, shared, whole, states, scores = 8192, 8 * 128, 8192 + 2 * 8 * 128, 8192, 128 * 8
    ahead = {
        "convolution": 2 * whole,
        "states of chunks": inner + shared + 2 * states,
        "states passed on": 3 * states,
        "C B'": 2 * shared + 2 * scores,
        "outputs": 2 * scores + inner + shared + states + inner,
        "norm": 3 * inner,
    }
    counted = SCAN.input_shape[1] - 128 + 2 * inner + SCAN.traits.extra_traffic(SCAN, 2) / 8192
    assert counted == sum(ahead.values())
    back = {
        "norm": 5 * inner,
        "convolution again": 2 * whole,
        "C B' again": 2 * shared + 2 * scores,
        "states again": inner + shared + 2 * states + 4 * states,
        "gradients of states": shared + inner + 2 * states,
        "passed back": 6 * states,
        "dx": 3 * inner + 2 * scores + shared + states,
        "dB": inner + states + 4 * shared,
        "dC": inner + states + 4 * shared,
        "d C B'": 2 * inner + 4 * scores,
        "its two products": 2 * scores + 5 * shared,
        "decays": 2 * inner + 2 * scores,
        "convolution": 3 * whole,
    }
    assert SCAN.traits.beside(SCAN, 2)[1] / 2 / 8192 == sum(back.values()) - 2 * sum(ahead.values())


def test_in_fp32_what_is_in_32_bits_anyway_takes_no_more_bytes():
    """States and C B' are written and read in 32 bits; only what is passed on in 16 doubles."""
    inner, shared, states, scores = 8192, 8 * 128, 8192, 128 * 8
    half, whole = (size * SCAN.traits.extra_traffic(SCAN, size) / 8192 for size in (2, 4))
    assert half == 2 * (4 * inner + 6 * shared) + 12 * states + 8 * scores
    assert whole == 4 * (4 * inner + 6 * shared) + 16 * states + 8 * scores
    half, whole = (SCAN.traits.beside(SCAN, size)[1] / 8192 for size in (2, 4))
    assert whole - half == half - 2 * (4 * states + 4 * scores)


# -- hybrids with experts ------------------------------------------------------------------------


def test_nemotron_3_nano_has_the_weights_of_its_configuration():
    """Megatron-LM's modules, tensor by tensor; 31.6 billion, of which 3.2 without the embedding work on a token."""
    width, inner, both = 2688, 64 * 64, 64 * 64 + 2 * 8 * 128
    mamba = width * (inner + both + 64) + 5 * both + 3 * 64 + inner + inner * width
    attention = width * (32 + 2 * 2) * 128 + 32 * 128 * width
    every, one = 2 * width * 3712 + 128 * width, 2 * width * 1856
    rest = 23 * (mamba + every) + 6 * attention + 52 * width + 2 * 131072 * width + width
    model = read_model("nemotron3-nano-30b-a3b")
    assert model.parameters == rest + 23 * 128 * one == pytest.approx(31.6e9, rel=0.001)
    assert rest + 23 * 6 * one - 131072 * width == pytest.approx(3.2e9, rel=0.01)


def test_experts_with_a_squared_relu_have_no_biases():
    table = {"experts": 4, "chosen": 2, "features": 3, "activation": "squared_relu"}
    options = {**TINY, "pattern": "E", "experts": table}
    (experts,) = (x for x in build("hybrid", options).layers if x.kind == "squared_relu_experts")
    assert experts.parameters == 4 * 2 * 8 * 3
    assert experts.forward_flop == 24 * 2 * 2 * 2 * 8 * 3
    with pytest.raises(
        SpecError, match="bias = true: legal with activation = 'squared_relu': false"
    ):
        build("hybrid", {**options, "experts": table | {"bias": True}})


def test_a_state_without_attention_is_served():
    """Of Mamba-2: no cache, a state alone."""
    prices = Prices(service(model={"family": "hybrid", **TINY, "pattern": "M"}))
    assert prices.kv_cache_bytes(1) == prices.kv_cache_bytes(1000) == 2 * state_elements(SMALL)
    with pytest.raises(SpecError, match="does not generate text"):
        service(model={"family": "hybrid", **TINY, "pattern": "-"})


def service(**more):
    tables = {"model": "nemotron-h-8b", "machine": "h100-pod", "service": {"precision": "bf16"}}
    return read_service({**tables, **more})


def test_the_state_of_a_sequence_is_constant_and_only_attention_has_a_cache():
    prices, plain = Prices(service()), Prices(service(model="llama3-8b"))
    state = 24 * 2 * (128 * 64 * 128 + 3 * (128 * 64 + 2 * 8 * 128))
    assert 24 * 2 * state_elements(SCAN.attributes) == state
    assert convolved(SCAN.attributes) == 128 * 64 + 2 * 8 * 128
    for tokens in (1, 1000, 65536):
        assert prices.kv_cache_bytes(tokens) == state + tokens * 4 * 2 * 8 * 128 * 2
    assert prices.kv_cache_bytes(65536) < plain.kv_cache_bytes(65536) / 7
    # docs/guide/serve.md
    assert [state, 4 * 2 * 8 * 128 * 2, plain.kv_cache_bytes(1)] == pytest.approx(
        [51.8e6, 16.4e3, 131e3], rel=0.003
    )


def test_a_step_reads_and_writes_each_state_once():
    """One sequence more, in a batch that waits for memory: a state there and back, and the cache of attention."""
    prices = Prices(service())
    device = prices.device
    token = 4 * 2 * 8 * 128 * 2
    state = prices.kv_cache_bytes(1) - token
    more = prices.decode(33, 4096).cache - prices.decode(32, 4096).cache
    assert more == pytest.approx((2 * state + 4096 * token) / streaming_rate(device), rel=1e-9)


def test_a_prompt_takes_the_flop_of_its_chunks():
    prices = Prices(service())
    (kind,) = (each for each in prices.shard.attention if each.chunk)
    assert kind.layers == 24 and kind.prompt_flop == flop(128, SCAN.attributes)
    whole, halves = (
        prices.prefill(8192),
        [prices.step([Chunk(4096)]), prices.step([Chunk(4096, 4096)])],
    )
    assert whole.total < sum(each.total for each in halves)
    ratio = whole.total / Prices(service(model="llama3-8b")).prefill(8192).total
    assert 0.5 < ratio < 1.5  # as many weights


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"service": {"devices": 2}}, r"service.devices = 2.*legal: 1"),
        ({"service": {"prefix_block": 16}}, r"service.prefix_block = 16.*legal: 0"),
        ({"draft": {"name": "nemotron-h-8b"}}, r"draft = 'nemotron-h-8b'.*legal: none"),
    ],
)
def test_services_that_would_split_or_rewind_a_state_are_refused(more, words):
    with pytest.raises(SpecError, match=words):
        service(**more)


def test_mutating_the_state_size_changes_the_price():
    other = replace(SCAN, attributes={**SCAN.attributes, "state": 64})
    assert state_elements(other.attributes) < state_elements(SCAN.attributes)
    assert SCAN.traits.extra_traffic(other, 2) < SCAN.traits.extra_traffic(SCAN, 2)
