"""Latent attention, normalized heads and gated experts, partitioned: nothing is lost, and the steps are proved."""

import pytest
from split_runs import split

from lib_dlhpc import parallel
from lib_dlhpc.layout import parts
from lib_dlhpc.prediction import predict
from lib_dlhpc.program import prove

SIZES = {"family": "decoder", "layers": 2, "hidden": 32, "sequence": 16, "vocabulary": 64}
LATENT = {"heads": 4, "latent": 8, "queries": 12, "plain": 8, "rotated": 4, "values": 8}
MODELS = {
    "latent": SIZES
    | {
        "attention": LATENT,
        "feed_forward": {"features": 48},
        "experts": {"experts": 4, "chosen": 2, "features": 24, "shared": 24, "dense": 1},
    },
    "normed": SIZES
    | {
        "attention": {"heads": 4, "kv_heads": 2, "normed": True, "rotary_base": 10000},
        "feed_forward": {"features": 48},
        "experts": {"experts": 4, "chosen": 2, "features": 24, "shared": 24, "shared_gate": True},
    },
}


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize(
    "ways",
    [
        {"tensor": 2},
        {"tensor": 2, "sequence_parallel": True},
        {"tensor": 2, "pipeline": 2, "microbatches": 4},
        {"data": 4, "experts": 2, "tensor": 2},
        {"data": 2, "zero": 3},
    ],
    ids=str,
)
def test_a_step_is_proved_and_no_product_is_lost(name, ways):
    run = split(MODELS[name], **ways)
    prove(parallel.steps(run))
    ranks = int(run.devices)
    every = [each for rank in range(ranks) for each in parts(run, rank)]
    total = sum(each.model.forward_flop for each in every)
    assert 1.0 <= total / (run.model.forward_flop * ways.get("data", 1)) < 1.05


@pytest.mark.parametrize("fused", ["on", "off"])
def test_latent_attention_is_fused_like_any_other(fused):
    """Fused, it stores its output and a number a row; in separate kernels all scores."""
    run = split(MODELS["latent"], fused_attention=fused)
    attends = [layer for layer in run.model.layers if "latent_attention" in layer.kind]
    assert len(attends) == SIZES["layers"]
    positions, heads, values = 16, 4, 8
    for layer in attends:
        assert layer.traits.selective == (fused == "off")
        scores = heads * positions**2
        assert layer.stored == positions * heads * values + scores * (fused == "off")
        assert layer.mask_bytes == 4 * heads * positions * (fused == "on")
        assert layer.forward_flop == 2 * scores * (12 + values)
    assert predict(run).step_time > 0
