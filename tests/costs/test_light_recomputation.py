"""Laws of light recomputation: what is recomputed costs and frees what a count by hand says, and nothing is missing."""

import pytest
from same_terms import assert_same_terms
from split_runs import MOE, split

from lib_dlhpc.costs.light_recomputation import light_runs
from lib_dlhpc.costs.segments import segments
from lib_dlhpc.costs.stored_activations import backward_extra, reads_input, stored_bytes
from lib_dlhpc.errors import SpecError
from lib_dlhpc.layout import parts, untrained
from lib_dlhpc.parallel import steps
from lib_dlhpc.prediction import predict
from lib_dlhpc.prediction.changes.no_effect import without_effect
from lib_dlhpc.program import prove
from lib_dlhpc.simulation import simulate
from lib_dlhpc.spec import catalog
from lib_dlhpc.spec.experiment import read_model
from lib_dlhpc.timeline import breakdown
from lib_dlhpc.training.check import check

S, H, HEADS, LATENT, QUERIES, PLAIN, ROTATED, VALUES = 32, 64, 4, 16, 24, 12, 4, 10
WIDE, EXPERTS, CHOSEN, NARROW, SHARED, LAYERS = 96, 8, 2, 20, 28, 3
DECODER = {
    "family": "decoder",
    "layers": LAYERS,
    "hidden": H,
    "sequence": S,
    "vocabulary": 128,
    "attention": {
        "heads": HEADS,
        "latent": LATENT,
        "queries": QUERIES,
        "plain": PLAIN,
        "rotated": ROTATED,
        "values": VALUES,
    },
    "feed_forward": {"features": WIDE},
    "experts": {
        "dense": 1,
        "experts": EXPERTS,
        "chosen": CHOSEN,
        "features": NARROW,
        "shared": SHARED,
    },
}
WAYS = [
    {},
    {"data": 4, "experts": 2, "zero": 1},
    {"data": 4, "experts": 4, "zero": 3},
    {"data": 2, "zero": 3, "zero_unit": "layer"},
    {"tensor": 2},
    {"tensor": 2, "sequence_parallel": True},
    {"pipeline": 2, "microbatches": 4},
    {"pipeline": 2, "microbatches": 4, "schedule": "zb-h1"},
    {"pipeline": 2, "microbatches": 8, "schedule": "dualpipe", "data": 2, "experts": 2},
    {"precision": "fp8"},
]


def run_of(model=DECODER, **ways):
    return split(model, **({"batch": 16, "recompute": "light", "precision": "bf16"} | ways))


def test_flop_are_those_of_the_up_projections():
    """Norms and SwiGLU have none; each block expands queries, and keys and values, of all heads once."""
    run = run_of()
    model = parts(run, 0)[0].model
    again = [at for each in segments(model, "light") for at in each.repeated]
    up = QUERIES * (PLAIN + ROTATED) + LATENT * (PLAIN + VALUES)
    assert sum(model.layers[at].forward_flop for at in again) == LAYERS * 2 * S * HEADS * up


@pytest.mark.parametrize("size", [2, 4])
def test_bytes_freed_are_those_of_the_outputs(size):
    """Of each block two norms, two of latent vectors, queries, keys and values, and the output of SwiGLU."""
    part = parts(run_of(), 0)[0]
    freed = stored_bytes(part, size, "none") - stored_bytes(part, size, "light")
    each = 2 * H + QUERIES + LATENT + HEADS * (2 * PLAIN + ROTATED + VALUES)
    sparse = CHOSEN * NARROW + SHARED
    final_norm = H
    assert freed == S * size * (LAYERS * each + WIDE + (LAYERS - 1) * sparse + final_norm)


@pytest.mark.parametrize("name", catalog.names("models"))
def test_what_is_recomputed_reads_what_is_there_and_lasts_as_long_as_it_is_read(name):
    """Of each layer that is repeated, an input is stored or repeated before it, and every reader is in its run."""
    layers = read_model(name).layers
    stop = 0
    for run in light_runs(layers):
        assert stop <= run.first == run.repeated[0] and run.repeated[-1] < run.stop
        assert list(run.repeated) == sorted(set(run.repeated))
        stop = run.stop
        made = set[str]()
        for at in run.repeated:
            layer = layers[at]
            assert layer.traits.light or layer.traits.product
            # Its own backward pass reads the input, so it is stored where it is not recomputed.
            assert reads_input(layer) and "output" not in layer.traits.backward_reads
            made.add(layer.name)
        needed = [
            at for at, layer in enumerate(layers) if made & {*layer.inputs} and reads_input(layer)
        ]
        assert set(needed) <= set(range(run.first, run.stop)) and max(needed) == run.stop - 1


@pytest.mark.parametrize("ways", WAYS, ids=str)
def test_predicted_is_what_is_played_and_the_program_trains(ways):
    run = run_of(**ways)
    prove(steps(run))
    predicted, _ = assert_same_terms(run)
    assert float(predicted.recomputation) > 0


def test_with_events_it_takes_as_long():
    run = run_of(data=4, experts=2)
    rounds, events = (breakdown(simulate(run, each)) for each in ("rounds", "events"))
    assert events.step_time == pytest.approx(rounds.step_time, rel=1e-9)


def test_it_is_between_none_and_full():
    none, light, full = (predict(run_of(recompute=each)) for each in ("none", "light", "full"))
    assert none.recomputation == 0 < light.recomputation < full.recomputation
    assert none.memory["activations"] > light.memory["activations"] > full.memory["activations"]


def test_exchanges_of_experts_are_not_repeated():
    none, light, full = (
        predict(run_of(recompute=each, data=4, experts=4)).exposed["experts"]
        for each in ("none", "light", "full")
    )
    assert light == pytest.approx(float(none), rel=1e-12) and full == pytest.approx(1.5 * none)


def test_the_peak_holds_what_one_run_makes_again():
    """The working set does not grow with the number of blocks."""
    more = DECODER | {"layers": 2 * LAYERS}
    few, many = (backward_extra(parts(run_of(each), 0)[0], 2, "light") for each in (DECODER, more))
    assert few == pytest.approx(many) and few > 0


def test_it_is_not_run():
    words = "'light': it is predicted and simulated, not run; to train: 'none', 'selective', 'full'"
    with pytest.raises(SpecError, match=words):
        check(split(MOE, recompute="light", batch=16))
    assert "'light': it is predicted and simulated" in untrained(split(MOE, recompute="light"))


def test_a_network_without_norms_says_that_it_has_no_effect():
    run = split(
        {"family": "mlp", "widths": [8, 8, 8], "activation": "tanh"}, recompute="light", batch=16
    )
    (note,) = without_effect(run)
    assert "no norm and no activation" in note
    assert float(predict(run).recomputation) == 0
