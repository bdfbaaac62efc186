"""Lab 15: the starter fails with a reason, the solution passes, each mistake is named, and bytes are the ledger's."""

import numpy as np
import pytest
from lab_answers import cells_of, found

from lib_dlhpc.labs.findings import as_text, passed, seed_of
from lib_dlhpc.labs.size_and_fit import size_laws, tuning_laws
from lib_dlhpc.labs.size_and_fit.size_laws import CLEAR, best, losses, sized_of
from lib_dlhpc.labs.size_and_fit.tuning_laws import experiment, shard, trained, tuned_of, whole
from lib_dlhpc.planner.model_sizes import Size
from lib_dlhpc.planner.model_sizes import trained as plan
from lib_dlhpc.prediction import predict

LAB = "15_size_and_fit"
NAMES = ["your name", "x"]


def handed_in(own, solved, function="", old="", new=""):
    """All functions of the solution, text of one replaced, as from cells."""
    return cells_of(solved, own.NAMES, {}, function, [(old, new)])


@pytest.mark.parametrize("name", NAMES)
def test_the_solution_passes(own, solved, name):
    findings = own.findings(vars(solved), name)
    assert passed(findings) and len(findings) == 7, as_text(findings)


def test_each_mistake_is_named(own, solved):
    wrong = []
    for mistake, (function, old, new, law, words) in solved.MISTAKES.items():
        findings = own.findings(handed_in(own, solved, function, old, new), "x")
        finding = found(findings, law)
        if finding.right is not False or words not in finding.words:
            wrong.append((mistake, as_text(findings)))
    assert not wrong, "\n\n".join(map("\n".join, wrong))


def test_the_starter_fails_with_a_useful_message(own, started):
    scope = started(*own.NAMES)
    findings = own.findings(scope, "x")
    assert not any(each.right for each in findings), as_text(findings)
    for law, words in (
        ("Adapters", "A has rank x inputs"),
        ("Bits", "Where are the scales"),
        ("Tuning", "too little"),
        ("State", "Those are the bytes of ZeRO 3"),
        ("Tokens", "86,400"),
        ("Choice: it is", "too much"),
        ("Choice: no size", "do not fit"),
    ):
        assert words in found(findings, law).words, as_text(findings)


def test_a_learner_gets_the_arguments_of_the_checks(own, solved):
    given = own.arguments("x")
    assert set(given) == set(own.NAMES)
    for name, calls in given.items():
        assert calls and all(getattr(solved, name)(*each) >= 0 for each in calls), name
    for budget, each in zip(sized_of(seed_of("x")), given["choose"], strict=True):
        assert solved.choose(*each) == best(budget)


def test_every_level_of_zero_is_checked(solved):
    def without(refused):
        def state(weights, devices, zero):
            return 0.0 if zero == refused else solved.state(weights, devices, zero)

        return state

    for zero in range(4):
        functions = solved.adapters, solved.bits, solved.tuning, without(zero)
        finding = tuning_laws.tuning_findings(*functions, tuned_of(seed_of("x")))[-1]
        assert finding.right is False and f"ZeRO {zero}" in finding.words


def test_a_choice_says_why_it_has_no_loss_and_all_that_it_looks_like(solved):
    tight, wide = sized_of(seed_of("x"))

    def said(own, place):
        return size_laws.size_findings(solved.tokens, lambda *_: place, [own])[-1].words

    assert "do not fit" in said(tight, len(tight.sizes) - 1)
    starved = wide._replace(served=wide.served * 3)
    assert not np.isfinite(losses(starved)[-1])
    assert "are not trained at all" in said(starved, len(wide.sizes) - 1)
    for seed in range(9):
        for own in sized_of(seed):
            wrong = [words for words, loss in size_laws._wrong(own) if np.isfinite(loss)]
            for words, loss in size_laws._wrong(own):
                if words in wrong:
                    assert words in said(own, losses(own).index(loss))


def test_bytes_are_those_of_the_ledger():
    for own in tuned_of(seed_of("x")):
        step = predict(experiment(own))
        terms = ("weights", "gradients", "optimizer state", "master weights")
        held = sum(float(step.memory[term]) for term in terms)
        assert held == pytest.approx(2 * whole(own) + 16 * trained(own), rel=1e-9)


@pytest.mark.parametrize("zero", range(4))
def test_shards_are_those_of_zero(zero):
    own = tuned_of(seed_of("x"))[0]
    many = {"strategy.nodes": 2, "strategy.devices_per_node": 8, "strategy.zero": zero}
    step = predict(experiment(own, lora=False).set({**many, "strategy.batch": 1}))
    terms = ("weights", "gradients", "optimizer state", "master weights")
    held = sum(float(step.memory[term]) for term in terms)
    assert held == pytest.approx(shard(whole(own), 16, zero), rel=1e-3)


def test_every_budget_has_one_best_size_that_no_mistake_finds():
    for seed in range(3):
        for hidden in (False, True):
            tight, wide = sized_of(seed, hidden)
            for own in (tight, wide):
                found = losses(own)
                others = np.delete(found, best(own))
                assert np.isfinite(min(found)) and min(others) > min(found)
                assert all(loss > min(found) + CLEAR for _, loss in size_laws._wrong(own))
            everything = losses(tight, everything=True)
            assert min(everything) < min(losses(tight)), (
                "The best in every budget, even where memory rules out the best size overall"
            )


def test_losses_are_those_of_the_planner():
    own = sized_of(seed_of("x"))[1]
    family = [Size(0, int(each["weights"]), 0.0, each["rate"], 0.0, 1.0, "") for each in own.sizes]
    planned = plan(family, own.days * size_laws.DAY, served=own.served, law=size_laws.LAW)
    assert losses(own) == pytest.approx([float(each) for each in planned.loss], rel=1e-9)


def test_learners_have_different_networks():
    words = {own.words for seed in range(20) for own in tuning_laws.tuned_of(seed)}
    assert len(words) >= 30
