"""The decoder with its cache is the network without one, at every position, for any grouping of tokens."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from services import TINY

from lib_dlhpc.errors import SpecError
from lib_dlhpc.serving import Decoder, decode
from lib_dlhpc.spec.experiment import read_model
from lib_dlhpc.training.network import Network

LENGTH = 16
SMALL = {"layers": 2, "hidden": 32, "heads": 4, "sequence": LENGTH, "vocabulary": 32}
MODELS = {
    "grouped": {**TINY, "sequence": LENGTH},
    "window": {**TINY, "sequence": LENGTH, "window": 4},
    "tied": {**TINY, "sequence": LENGTH, "tied": True, "kv_heads": 1},
    "palm": {"family": "palm", "head_size": 8, **SMALL},
    "gpt": {"family": "gpt", "dropout": 0.0, **SMALL},
    "bloom": {"family": "bloom", **SMALL},
    "olmo 2": {
        "family": "decoder",
        "layers": 2,
        "hidden": 32,
        "sequence": LENGTH,
        "vocabulary": 32,
        "block": "post",
        "feed_forward": {"features": 48},
        "attention": {"heads": 4, "kv_heads": 2, "rotary_base": 100, "width_normed": True},
    },
}


def full(model, tokens):
    """Return the logits of all positions, by the network that training uses."""
    network = Network(model, np.float64, seed=3)
    network.begin_step((len(tokens),))
    return network.run("single", tokens, {})[model.layers[-1].name]


@pytest.mark.parametrize("name", MODELS)
def test_prefill_and_steps_are_the_full_forward_pass(name):
    model = read_model(MODELS[name])
    tokens = np.random.default_rng(0).integers(0, 32, (2, LENGTH))
    expected, decoder = full(model, tokens), Decoder(model, 3, np.float64, LENGTH)
    first = decoder.step([(0, tokens[0]), (1, tokens[1][:5])], every=True)
    np.testing.assert_allclose(first, [*expected[0], *expected[1][:5]], rtol=0, atol=1e-10)
    for at in range(5, LENGTH):
        (logits,) = decoder.step([(1, tokens[1][at : at + 1])])
        np.testing.assert_allclose(logits, expected[1][at], rtol=0, atol=1e-10)


@pytest.fixture(scope="module")
def whole():
    """A model, four texts, and their logits."""
    model = read_model(MODELS["grouped"])
    tokens = np.random.default_rng(1).integers(0, 32, (4, LENGTH))
    return model, tokens, full(model, tokens)


@settings(max_examples=20, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 3), st.integers(1, 4)), min_size=1, max_size=20))
def test_any_grouping_of_tokens_gives_the_same_logits(whole, turns):
    model, tokens, expected = whole
    decoder = Decoder(model, 3, np.float64, LENGTH)
    done = [0] * 4
    for at in range(0, len(turns), 2):
        work = {name: min(done[name] + size, LENGTH) for name, size in turns[at : at + 2]}
        step = [(n, tokens[n][done[n] : stop]) for n, stop in work.items() if stop > done[n]]
        if step:
            logits = decoder.step(step)
            for (name, own), row in zip(step, logits, strict=True):
                done[name] += len(own)
                np.testing.assert_allclose(row, expected[name][done[name] - 1], rtol=0, atol=1e-10)


def test_a_ragged_batch_is_decoded_as_one_by_one():
    model = read_model(MODELS["grouped"])
    prompts = [[1, 2, 3, 4, 5], [6], [7, 8]]
    together = decode(model, prompts, 8, seed=2, dtype=np.float64)
    assert together == [decode(model, [one], 8, 2, np.float64)[0] for one in prompts]


def test_a_freed_name_is_a_new_sequence():
    decoder = Decoder(read_model(MODELS["grouped"]), 0, np.float64, 8)
    first = decoder.step([("a", [1, 2])])
    assert not np.array_equal(decoder.step([("a", [1, 2])]), first)
    decoder.free("a")
    np.testing.assert_allclose(decoder.step([("a", [1, 2])]), first, rtol=1e-12)


def test_what_cannot_be_decoded_is_named():
    with pytest.raises(SpecError, match="'gated_experts' are not decoded"):
        Decoder(read_model("mixtral-8x7b"))
    decoder = Decoder(read_model(MODELS["grouped"]), longest=4)
    with pytest.raises(SpecError, match="A sequence of 5 tokens: legal: 1 to 4"):
        decoder.step([(0, [1] * 5)])
