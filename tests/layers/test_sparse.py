"""Sparse latent attention: FLOP and bytes in closed form, what is stored and split, and a step simulated."""

from dataclasses import replace

import pytest
from split_runs import split

from lib_dlhpc import simulate
from lib_dlhpc.costs.roofline import layer_times, product_bytes
from lib_dlhpc.costs.stored_activations import stored_bytes
from lib_dlhpc.errors import SpecError
from lib_dlhpc.layout import parts
from lib_dlhpc.prediction import predict
from lib_dlhpc.spec.experiment import read_model
from lib_dlhpc.spec.low_precision import with_narrow
from lib_dlhpc.spec.machine import load_machine
from lib_dlhpc.timeline import breakdown

HEADS, LATENT, ROTATED, QUERIES = 4, 64, 16, 48
INDEX = {"index_heads": 2, "index_size": 32}
SIZES = {"family": "decoder", "layers": 2, "hidden": 256, "sequence": 1024, "vocabulary": 512}
LATENTS = {"heads": HEADS, "latent": LATENT, "queries": QUERIES, "plain": 32, "rotated": ROTATED}


def model(chosen, **more):
    """Return the options of a network whose queries attend to `chosen` keys; 0: all."""
    few = {"chosen": chosen, **INDEX} if chosen else {}
    return SIZES | {
        "attention": LATENTS | {"values": 32} | few | more,
        "feed_forward": {"features": 512},
    }


def layer(chosen, name):
    return next(x for x in read_model(model(chosen)).layers if x.name == f"layer1.{name}")


def test_deepseek_v32_is_v3_with_an_indexer_in_each_layer():
    old, new = read_model("deepseek-v3"), read_model("deepseek-v3.2")
    index = 1536 * 64 * 128 + 7168 * 128 + 2 * 128 + 7168 * 64
    assert new.parameters == old.parameters + 61 * index
    kinds = [x.kind for x in new.layers]
    assert kinds.count("indexer") == kinds.count("sparse_latent_attention") == 61


@pytest.mark.parametrize("chosen", [64, 1024, 5000])
def test_flop_in_closed_form(chosen):
    """The indexer scores all pairs; each query of a head reads the latent vectors that it chose, twice."""
    positions, seen = SIZES["sequence"], min(chosen, SIZES["sequence"])
    index, attends = layer(chosen, "index"), layer(chosen, "attention")
    assert index.forward_flop == 2 * positions**2 * 2 * 32
    assert attends.forward_flop == 2 * HEADS * (2 * LATENT + ROTATED) * positions * seen
    # What the mask leaves: position i sees min(i, seen).
    pairs = sum(min(i, seen) for i in range(1, positions + 1))
    assert attends.traits.computed_part(attends) * positions * seen == pytest.approx(pairs)
    rotation = 2 * positions * (HEADS + 1) * ROTATED
    moved = attends.traits.extra_traffic(attends, 2) - rotation
    assert moved == pytest.approx(pairs * (LATENT + ROTATED))


@pytest.mark.parametrize("chosen", [64, 1024])
def test_backward_of_the_indexer_reaches_what_it_chose(chosen):
    device = replace(
        load_machine("h100-pod").device, half_work=0.0, launch=0.0, memory_bandwidth=1e30
    )
    found, index = read_model(model(chosen)), layer(chosen, "index")
    at = [x.name for x in found.layers].index(index.name)
    times = layer_times(found, device, 1, "bf16")
    share = chosen / SIZES["sequence"]
    assert times.backward[at] == pytest.approx(2 * share * times.forward[at])


def test_chosen_positions_are_stored_in_four_bytes_and_scores_are_not():
    few, many = (stored_bytes(parts(split(model(chosen)), 0)[0], 2) for chosen in (64, 128))
    assert many - few == 2 * SIZES["sequence"] * 64 * 4  # in two layers
    index = layer(64, "index")
    assert (index.stored, index.mask_bytes) == (0, SIZES["sequence"] * 64 * 4)


def test_many_keys_cost_more_than_all_of_them_unfolded_and_few_less():
    """A pair costs (2 latent + rotated) here, and (plain + rotated + values) where keys and values are expanded."""
    full = layer(0, "attention").forward_flop
    dear = (2 * LATENT + ROTATED) / (32 + ROTATED + 32)
    assert layer(1024, "attention").forward_flop == pytest.approx(dear * full)
    assert layer(64, "attention").forward_flop == pytest.approx(dear * full / 16)


def test_weights_of_the_heads_are_made_in_16_bits():
    layers = {x.name: x.narrow for x in with_narrow(read_model(model(64)), "fp8").layers}
    assert layers["layer1.index_query"] == layers["layer1.index_key"] == "fp8"
    assert not layers["layer1.index_weight"] and not layers["layer1.index"]


def test_ranks_of_a_tensor_group_each_compute_the_indexer():
    run = split(model(64), tensor=2)
    whole = {x.name: x for x in run.model.layers}
    for part in parts(run, 1):
        for x in part.model.layers:
            if x.name.startswith("layer1.index"):
                assert x.forward_flop == whole[x.name].forward_flop
                assert x.parameters == whole[x.name].parameters
        own = next(x for x in part.model.layers if x.name == "layer1.attention")
        assert own.forward_flop == whole[own.name].forward_flop / 2
        size = product_bytes(part.model, 1, 2)
        assert len(size) == len(part.model.layers)


@pytest.mark.parametrize(
    "ways",
    [
        {},
        {"tensor": 2},
        {"tensor": 2, "sequence_parallel": True},
        {"pipeline": 2, "microbatches": 4},
        {"data": 2, "zero": 3, "recompute": "full"},
        {"tensor": 2, "recompute": "light"},
    ],
    ids=str,
)
def test_a_step_predicted_is_simulated(ways):
    run = split(model(64), **ways)
    predicted, simulated = predict(run), breakdown(simulate(run))
    assert simulated.step_time == pytest.approx(float(predicted.step_time), rel=1e-9)


def test_what_is_not_modeled_is_refused():
    with pytest.raises(SpecError, match=r"strategy.context = 2: .*\(indexer\).*legal value is 1"):
        predict(split(model(64), context=2))
    with pytest.raises(
        SpecError, match="queries = 0: an indexer needs it; legal with chosen = 64: above 0"
    ):
        read_model(model(64, queries=0))
