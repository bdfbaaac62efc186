"""Model sizes within a budget: rates are the planner's, tokens follow from the budget, no size beats the best."""

from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from lib_dlhpc import Experiment, plan, predict
from lib_dlhpc.convergence import LAWS
from lib_dlhpc.errors import SpecError
from lib_dlhpc.planner import guessed, sizes, trained
from lib_dlhpc.planner.model_sizes import CHOOSE, LAYERS, SEQUENCE, SEQUENCES, decoder

DAY = 86_400.0
SLOW = {"name": "h100-pod", "inter_node": "ethernet-100g", "nics": 1}


@cache
def family(machine="h100-pod", gpus=64):
    return sizes(SLOW if machine == "slow" else machine, gpus)


def test_a_size_is_the_fastest_layout_of_the_planner():
    run = Experiment(
        model=decoder(24),
        machine="h100-pod",
        dataset="webtext",
        strategy={"nodes": 8, "batch": 8, "precision": "bf16", "optimizer": "adam"},
    )
    best = plan(run, "time", choose=CHOOSE, most=12, best=1).best
    (own,) = sizes("h100-pod", 64, layers=(24,))
    assert own.layout == best.words
    step = float(predict(best.experiment).step_time)
    assert own.rate == pytest.approx(SEQUENCE * SEQUENCES / step)
    assert own.utilization == pytest.approx(float(predict(best.experiment).utilization))


def test_a_compute_scale_slows_computation_only():
    (own,), (slower,) = (sizes("h100-pod", 64, (24,), compute_scale=scale) for scale in (1.0, 1.2))
    assert own.rate / 1.2 < slower.rate < own.rate


def test_the_family_has_12_weights_per_layer_and_squared_width():
    for each in family():
        hidden = 128 * each.layers
        blocks = each.weights - 2 * 32_000 * hidden
        # The feed-forward network is rounded up to a multiple of 256, which the smallest width feels most.
        assert blocks == pytest.approx(12 * each.layers * hidden**2, rel=0.08)
    assert decoder(32)["feed_forward"] == 11_008  # that of Llama 2 7B


def test_attention_makes_a_token_take_more_than_6_flop_per_weight_most_in_small_models():
    extra = [each.uncounted for each in family()]
    assert all(0.04 < each < 0.25 for each in extra)
    assert extra[1:] == sorted(extra[1:], reverse=True)
    by_hand = 12 * 128 * 32 * 32 * 4096 - 6 * 32_000 * 4096  # attention, less the table of words
    (seven,) = (each for each in family() if each.layers == 32)
    assert seven.flop - 6 * seven.weights == pytest.approx(by_hand, rel=0.02)


@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize("served", [0.0, 1e11, 1e12])
def test_tokens_are_what_the_rate_allows_and_the_best_is_no_worse_than_any(law, served):
    own = trained(family(), 3 * DAY, served=served, law=law)
    rate = np.array([each.rate for each in own.family])
    left = rate * 3 * DAY - served / 3
    assert own.tokens == pytest.approx(np.maximum(left, 0))
    assert own.loss[own.best] == own.loss.min()
    assert np.isinf(own.loss[own.tokens == 0]).all()
    assert own.energy == pytest.approx([each.watts * 3 * DAY for each in own.family])


def test_a_budget_of_energy_is_the_time_that_it_lasts():
    by_time = trained(family(), 3 * DAY)
    row = by_time.best
    by_energy = trained(family(), joules=float(by_time.energy[row]))
    assert by_energy.time[row] == pytest.approx(3 * DAY)
    assert by_energy.tokens[row] == pytest.approx(by_time.tokens[row])


def test_with_one_utilization_the_best_is_near_the_closed_form():
    own = trained(guessed(family()), 3 * DAY)
    assert [each.utilization for each in own.family] == pytest.approx([0.4] * len(LAYERS))
    # 64 GPUs for three days, of which 6N counts a twelfth less than the layers near the best.
    free = own.law.split(0.4 * 64 * 989e12 * 3 * DAY / 1.12)
    near = [each.weights for each in own.family]
    below = max(each for each in near if each <= free.weights)
    above = min(each for each in near if each >= free.weights)
    assert own.family[own.best].weights in (below, above)
    assert own.loss[own.best] >= free.loss


def test_predicted_utilization_moves_the_optimum():
    own, guess = trained(family(), 3 * DAY), trained(guessed(family()), 3 * DAY)
    assert own.family[own.best].weights > guess.family[guess.best].weights
    fast, slow = (trained(family(name, 512), 3 * DAY) for name in ("h100-pod", "slow"))
    assert slow.family[slow.best].weights < fast.family[fast.best].weights
    used = [each.utilization for each in slow.family]
    assert used[-1] > 3 * used[0]  # a guess is wrong by a different factor for each size


def test_what_does_not_fit_is_not_trained_but_a_guess_trains_it():
    own = trained(family(gpus=8), 30 * DAY)
    assert own.family[-1].rate == 0 and np.isinf(own.loss[-1])
    assert np.isfinite(trained(guessed(family(gpus=8)), 30 * DAY).loss[-1])
    assert own.family[-1].layout in repr(own.summary().rows)


def test_more_served_tokens_never_choose_a_larger_model():
    best = [trained(family(), 3 * DAY, served=s) for s in (0, 1e11, 1e12, 3e12)]
    weights = [each.family[each.best].weights for each in best]
    assert weights == sorted(weights, reverse=True) and weights[-1] < weights[0]


def test_the_result_reads_in_words_columns_and_a_chart():
    own = trained(family(), 3 * DAY)
    assert "13 billion parameters on 123 billion tokens" in repr(own)
    columns = own.to_columns()
    assert {len(each) for each in columns.values()} == {len(LAYERS)}
    assert columns["extrapolated"] == [bool(own.beyond(row)) for row in range(len(LAYERS))]
    assert own.plot().to_dict()["data"]["values"]
    low, high = own.near()
    assert low.weights <= own.family[own.best].weights <= high.weights
    assert not own.at_an_end
    last = replace(own, family=own.family[: own.best + 1])
    assert last.at_an_end and "at an end" in last.summary().facts


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (
            lambda: sizes("h100-pod", 12),
            "devices = 12: legal are divisors of 512 that fill nodes: 8, 16",
        ),
        (lambda: sizes("h100-pod", 1024), "devices = 1024"),
        (lambda: sizes("summit", 6), "none, since its nodes have 6 devices"),
        (
            lambda: trained(guessed(family(gpus=8)), joules=1e9),
            "joules: W of sizes that do not fit",
        ),
        (lambda: trained(family()), "seconds = 0, joules = 0"),
        (lambda: trained(family(), 1.0, 1.0), "one of them above 0"),
        (lambda: trained(family(), 1.0, served=-1), "served = -1"),
        (lambda: trained(family(), DAY, served=1e16), "does not cover"),
        (lambda: trained(family(), DAY, law="kaplan"), "legal: hoffmann"),
        (lambda: guessed(family(), 0), "utilization = 0"),
    ],
)
def test_what_has_no_answer_is_refused(call, words):
    with pytest.raises(SpecError, match=words):
        call()
