"""Context parallelism as a layout: tokens are divided once, work evenly, and what cannot be divided is refused."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from split_runs import GPT, IMAGES, split

from lib_dlhpc import SpecError
from lib_dlhpc.layout import own_tokens, parts
from lib_dlhpc.prediction import predict

RING = {"context_exchange": "ring", "fused_attention": "auto"}


def tokens_of(length, ranks, way):
    ranges = [own_tokens(length, ranks, rank, way) for rank in range(ranks)]
    return [np.concatenate([np.arange(*each) for each in own]) for own in ranges]


@given(st.integers(1, 9), st.integers(1, 9), st.sampled_from(["heads", "ring"]))
def test_each_token_is_on_one_rank_and_all_have_as_many(ranks, many, way):
    own = tokens_of(2 * ranks * many, ranks, way)
    assert sorted(np.concatenate(own)) == list(range(2 * ranks * many))
    assert {len(each) for each in own} == {2 * many}


@given(st.integers(1, 9), st.integers(1, 9))
def test_in_a_ring_all_ranks_see_as_many_tokens(ranks, many):
    """With a causal mask, and tokens from both ends; with consecutive tokens the last rank would see twice the mean."""
    own = tokens_of(2 * ranks * many, ranks, "ring")
    seen = [int((each + 1).sum()) for each in own]
    assert len(set(seen)) == 1


@pytest.mark.parametrize("ways", [{}, {"tensor": 2}, {"tensor": 2, "sequence_parallel": True}])
@pytest.mark.parametrize("way", [{}, RING], ids=["heads", "ring"])
def test_work_and_stored_activations_are_divided_and_weights_are_not(way, ways):
    """Scores that are stored without a fused kernel are divided, too."""
    run = split(GPT, context=2, **{**ways, **way})
    tensor = int(run.strategy.tensor)
    whole = run.set({"strategy.context": 1, "strategy.nodes": tensor})
    for rank in range(2 * tensor):
        own, alone = parts(run, rank)[0].model, parts(whole, rank % tensor)[0].model
        assert own.forward_flop == pytest.approx(alone.forward_flop / 2)
        for name in ("stored", "mask_bytes"):
            one, both = (sum(getattr(x, name) for x in each.layers) for each in (own, alone))
            assert 2 * one == both, name
        if not ways.get("sequence_parallel"):  # then tensor ranks divide the table of positions
            assert own.parameters == alone.parameters


@pytest.mark.parametrize(
    ("model", "ways", "words"),
    [
        (GPT, {"context": 3}, "32 tokens of a sequence must be a multiple of 3"),
        (GPT, {"context": 32, **RING}, "must be a multiple of 64"),
        (GPT, {"context": 8}, "= 8 must divide the 4 heads of keys and values"),
        (GPT, {"context": 4, "tensor": 2}, "= 8 must divide the 4 heads"),
        (IMAGES, {"context": 2}, r"samples of shape \(3, 32, 32\) are not sequences"),
        (
            {"family": "bert", "layers": 1, "hidden": 8, "heads": 2},
            {"context": 2},
            "does not treat",
        ),
        ("lstm", {"context": 2}, r"\(lstm\) does not treat each token by itself"),
        (GPT | {"experts": 4, "capacity": 1.0}, {"context": 2}, r"\(experts\) does not treat"),
        (GPT, {"context": 2, "update": "local"}, "only synchronous devices"),
        (GPT, {"context": 2, "spatial": 2}, "a sequence or an image"),
        (GPT, {"context": 2, **RING, "fused_attention": "off"}, "fused_attention = 'off'"),
    ],
)
def test_what_cannot_be_divided_is_refused(model, ways, words):
    if model == "lstm":
        model = {
            "family": "lstm_language_model",
            "layers": 1,
            "hidden": 8,
            "sequence": 4,
            "vocabulary": 9,
        }
    with pytest.raises(SpecError, match=words):
        predict(split(model, **ways))
