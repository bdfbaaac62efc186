"""Scaling laws of the loss: what the papers print, optima that no other split beats, and where a law extrapolates."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lib_dlhpc.convergence.loss_law import BESIROGLU, HOFFMANN, LAWS, TRAIN, law_of
from lib_dlhpc.errors import SpecError

GOPHER = 5.76e23  # FLOP, Hoffmann et al. 2022, section 4: the budget of Gopher and Chinchilla
LLAMA = 3.8e25  # FLOP, Grattafiori et al. 2024, section 1
UNROUNDED = replace(HOFFMANN, floor=1.6934, alpha=0.3392, beta=0.2849)  # as Besiroglu found them
SARDANA = replace(HOFFMANN, alpha=0.336, beta=0.283)  # with which their figure 1 is met

laws = st.sampled_from([*LAWS.values()])
budgets = st.floats(18, 27).map(lambda power: 10**power)


@given(laws, budgets)
def test_a_split_spends_the_budget_and_both_terms_gain_equally(law, compute):
    own = law.split(compute)
    assert TRAIN * own.weights * own.tokens == pytest.approx(compute)
    of_weights = law.alpha * law.of_weights / own.weights**law.alpha
    assert of_weights == pytest.approx(law.beta * law.of_tokens / own.tokens**law.beta)


@given(laws, budgets, st.floats(0, 13).map(lambda power: 10**power), st.floats(0.2, 5))
def test_no_other_size_reaches_a_lower_loss(law, compute, served, times):
    own = law.split(compute, served)
    assert own.flop == pytest.approx(compute, rel=1e-6)
    other = own.weights * times
    tokens = compute / TRAIN / other - served / 3
    assert tokens <= 0 or law.loss(other, tokens) >= own.loss - 1e-9


@given(laws, budgets, st.floats(8, 13).map(lambda power: 10**power))
def test_served_tokens_make_the_best_model_smaller_and_over_trained(law, compute, served):
    plain, own = law.split(compute), law.split(compute, served)
    assert own.weights < plain.weights and own.loss > plain.loss
    assert own.tokens / own.weights > plain.tokens / plain.weights


@given(laws, budgets)
def test_few_served_tokens_change_nothing(law, compute):
    assert law.split(compute, 1e-3).weights == pytest.approx(law.split(compute).weights, rel=1e-6)


@given(laws, budgets, st.floats(9, 13).map(lambda power: 10**power))
def test_the_cheapest_model_of_a_loss_is_the_best_of_its_budget(law, compute, served):
    own = law.split(compute, served)
    cheap = law.cheapest(own.loss, served)
    # A loss is flat around its optimum, so rounding of the loss moves weights by its root.
    assert cheap.flop == pytest.approx(own.flop, rel=1e-6)
    assert cheap.weights == pytest.approx(own.weights, rel=1e-3)


def test_for_the_budget_of_gopher_the_refit_chooses_chinchilla():
    assert pytest.approx(GOPHER, rel=0.03) == 6 * 70e9 * 1.4e12
    assert pytest.approx(GOPHER, rel=0.13) == 6 * 280e9 * 300e9  # 6ND leaves out attention
    own = BESIROGLU.split(GOPHER)
    assert own.weights == pytest.approx(72.2e9, rel=1e-3)
    assert own.tokens == pytest.approx(1.33e12, rel=1e-2)
    for law in LAWS.values():
        assert law.loss(70e9, 1.4e12) < law.loss(280e9, 300e9)


def test_rounded_coefficients_move_the_optimum_of_hoffmann_by_a_fifth():
    """The paper says 40 G for approach 3 (figure 4), which takes its unrounded exponents."""
    assert HOFFMANN.split(GOPHER).weights == pytest.approx(32.2e9, rel=1e-2)
    assert UNROUNDED.split(GOPHER).weights == pytest.approx(40.3e9, rel=1e-2)


def test_what_each_law_predicts_for_llama_3_405b():
    """Their own law says 402 billion parameters on 16.55 T tokens (section 3.2.1), between these two extrapolations."""
    assert pytest.approx(LLAMA, rel=0.01) == 6 * 405e9 * 15.6e12
    hoffmann, besiroglu = HOFFMANN.split(LLAMA), BESIROGLU.split(LLAMA)
    assert hoffmann.weights == pytest.approx(213e9, rel=0.01)
    assert hoffmann.tokens == pytest.approx(29.7e12, rel=0.01)
    assert besiroglu.weights == pytest.approx(619e9, rel=0.01)
    assert besiroglu.tokens == pytest.approx(10.2e12, rel=0.01)
    assert hoffmann.weights < 402e9 < besiroglu.weights
    for law, own in ((HOFFMANN, hoffmann), (BESIROGLU, besiroglu)):
        assert law.beyond(own.weights, own.tokens)
        assert 0 <= law.loss(405e9, 15.6e12) - own.loss < 0.01  # flat around the optimum


@pytest.mark.parametrize(
    ("weights", "served", "smaller", "data", "saved"),
    [(13e9, 2e12, 6.97e9, 2.1, 0.17), (30e9, 1e13, 13.6e9, 2.84, 0.28)],
)
def test_the_examples_of_sardana(weights, served, smaller, data, saved):
    """Figure 1: a smaller model of the quality of 13 and of 30 billion parameters, with `served` tokens."""
    law = SARDANA
    share = (law.alpha + law.beta) / law.beta
    plain = law.split(1e23 * (weights / law.split(1e23).weights) ** share)
    assert plain.weights == pytest.approx(weights)
    own = law.cheapest(plain.loss, served)
    assert own.weights == pytest.approx(smaller, rel=0.01)
    assert own.tokens / plain.tokens == pytest.approx(data, rel=0.04)
    before = plain.flop + 2 * plain.weights * served
    assert 1 - own.flop / before == pytest.approx(saved, abs=0.01)


def test_beyond_what_was_measured_it_says_so():
    assert BESIROGLU.beyond(1e9, 1e11) == ""
    assert "70 billion parameters" in BESIROGLU.beyond(70e9, 1e11)
    assert "1.4 T tokens" in BESIROGLU.beyond(1e9, 1.4e12)
    assert BESIROGLU.beyond(1e7, 1e9).count("fitted range") == 2


def test_a_loss_of_arrays_is_that_of_each():
    weights, tokens = np.array([1e9, 7e9]), np.array([2e10, 1e11])
    each = [BESIROGLU.loss(*pair) for pair in zip(weights, tokens, strict=True)]
    assert BESIROGLU.loss(weights, tokens) == pytest.approx(each)
    assert BESIROGLU.loss(np.inf, np.inf) == BESIROGLU.floor


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: BESIROGLU.split(0), "compute = 0"),
        (lambda: BESIROGLU.split(float("nan")), "compute = nan"),
        (lambda: BESIROGLU.split(1e21, -1), "served = -1"),
        (
            lambda: BESIROGLU.split(1e12, 1e13),
            r"served = 1e\+13: legal for 1e\+12 FLOP: below 5e\+11",
        ),
        (lambda: BESIROGLU.cheapest(1.8), "loss = 1.8: legal: above 1.8172"),
        (lambda: BESIROGLU.cheapest(np.inf), "loss = inf: legal: above 1.8172"),
        (lambda: law_of("kaplan"), "legal: hoffmann, besiroglu"),
    ],
)
def test_what_has_no_answer_is_refused(call, words):
    with pytest.raises(SpecError, match=words):
        call()
