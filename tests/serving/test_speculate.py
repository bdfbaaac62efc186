"""Speculative decoding: the closed form is a mean of draws, its price a roofline, and its text that of the target."""

from functools import cache
from itertools import product

import numpy as np
import pytest
from services import TINY, large

from lib_dlhpc.errors import SpecError
from lib_dlhpc.serving import Decoder, decode, decode_with_draft, predict_service, read_service
from lib_dlhpc.serving.price import Prices
from lib_dlhpc.serving.run import check_run
from lib_dlhpc.serving.simulate import simulate_service
from lib_dlhpc.serving.speculate import drawn_tokens, expected_steps, expected_tokens, improvement
from lib_dlhpc.serving.speculative_decoder import probabilities
from lib_dlhpc.spec.experiment import read_model

SMALL = {**TINY, "layers": 1, "hidden": 16, "feed_forward": 32}


def drafted(drafts: int = 4, acceptance: float = 0.7, **changes: object):
    """Return Llama 3 70B on eight GPUs, drafted for by Llama 3 8B."""
    draft = {"name": "llama3-8b", "tokens": drafts, "acceptance": acceptance}
    tables = {"model": "llama3-70b", "machine": "h100-pod", "draft": draft}
    return read_service(tables).set(**{"devices": 8, "prompt": 1000, "answer": 200, **changes})


@cache
def plain(model: str = "llama3-70b"):
    """Return the prices of a model on the same GPUs, without drafts."""
    return Prices(large(model, devices=8))


# closed form ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("acceptance", [0.0, 0.3, 0.8, 1.0])
@pytest.mark.parametrize("drafts", [1, 4])
def test_the_tokens_of_a_step_are_the_mean_of_all_ways_to_accept(acceptance, drafts):
    class Fixed:
        def random(self, count):
            return np.array([0.0 if each else 1.0 for each in way])

    mean = 0.0
    for way in product((True, False), repeat=drafts):
        odds = np.prod([acceptance if each else 1 - acceptance for each in way])
        mean += odds * drawn_tokens(Fixed(), 0.5, drafts)
    assert expected_tokens(acceptance, drafts) == pytest.approx(mean)
    if acceptance < 1:
        paper = (1 - acceptance ** (drafts + 1)) / (1 - acceptance)  # equation 1
        assert mean == pytest.approx(paper)


@pytest.mark.parametrize("acceptance", [0.0, 0.7, 1.0])
@pytest.mark.parametrize("drafts", [1, 4])
def test_the_steps_of_an_answer_are_the_mean_of_all_ways_to_reach_its_end(acceptance, drafts):
    def mean(tokens):
        if tokens <= 0:
            return 0.0
        odds = [(1 - acceptance) * acceptance**at for at in range(drafts)] + [acceptance**drafts]
        return 1 + sum(p * mean(tokens - 1 - at) for at, p in enumerate(odds) if p)

    for tokens in range(10):
        assert expected_steps(tokens, acceptance, drafts) == pytest.approx(mean(tokens))
    assert expected_steps(1, acceptance, drafts) == 1  # a step is whole
    many = expected_steps(4000, acceptance, drafts) / 4000
    assert many == pytest.approx(1 / expected_tokens(acceptance, drafts), rel=1e-3)


def test_steps_without_rejections_are_rounded_up():
    assert [expected_steps(n, 1.0, 4) for n in (0, 1, 5, 6, 10, 11)] == [0, 1, 1, 2, 2, 3]
    assert expected_steps(1_000_001, 1.0, 4) == pytest.approx(200_001)
    assert [expected_steps(n, 0.7, 0) for n in (0, 1, 9)] == [0, 1, 9]  # no drafts


def test_the_improvement_is_theorem_3_8_and_its_corollary_3_9():
    assert improvement(0.8, 5, 0.1) == pytest.approx((1 - 0.8**6) / (0.2 * 1.5))
    for acceptance, cost in ((0.5, 0.4), (0.9, 0.1)):  # a > c: some number of drafts pays
        assert improvement(acceptance, 1, cost) >= (1 + acceptance) / (1 + cost) - 1e-12 > 1
    assert all(improvement(0.2, drafts, 0.3) < 1 for drafts in range(1, 9))


# price --------------------------------------------------------------------------------------------


def test_a_step_reads_weights_once_and_computes_for_every_draft():
    own = Prices(drafted(7))
    verified = own.verify((), [1000.0] * 64)
    one, eight = plain().decode(64, 1000), plain().decode(8 * 64, 1000)
    assert verified.weights <= one.weights * (1 + 1e-9)
    assert verified.cache == pytest.approx(one.cache, rel=0.01)
    assert verified.arithmetic == pytest.approx(eight.arithmetic)
    step = own.decode(64, 1000)
    small = plain("llama3-8b").decode(64, 1000)
    assert step.total == pytest.approx(verified.total + 7 * small.total)


def test_drafts_help_few_sequences_and_not_many():
    gains, own = [], Prices(drafted())
    for batch in (1, 16, 256):
        once = plain().decode(batch, 1000).total
        gains.append(expected_tokens(0.7, 4) * once / own.decode(batch, 1000).total)
    assert gains[0] > 1.2 and gains[0] > gains[1] > gains[2] and gains[2] < 1


def test_a_draft_model_takes_room_for_its_weights_and_its_cache():
    with_draft = predict_service(drafted())
    without = predict_service(large("llama3-70b", devices=8, prompt=1000, answer=200))
    assert with_draft.weights > without.weights and with_draft.sequences < without.sequences
    draft = plain("llama3-8b").shard
    assert with_draft.cache_sequence == pytest.approx(
        plain().shard.kv_cache_bytes(1203) + draft.kv_cache_bytes(1203)
    )
    short = predict_service(drafted(prompt=5, answer=2))  # room for drafts is of tokens, too
    assert short.cache_token == pytest.approx(
        plain().shard.kv_cache_bytes(1) + draft.kv_cache_bytes(1)
    )


def test_both_models_read_the_prompt_and_the_larger_has_the_most_activations():
    large_one, small_one = (
        predict_service(large(name, devices=8)) for name in ("llama3-70b", "llama3-8b")
    )
    tables = {"machine": "h100-pod", "service": {"devices": 8}}
    for names in (("llama3-70b", "llama3-8b"), ("llama3-8b", "llama3-70b")):
        draft = {"name": names[1], "tokens": 1}
        both = predict_service(read_service({"model": names[0], "draft": draft, **tables}))
        assert both.prefill_flop == pytest.approx(large_one.prefill_flop + small_one.prefill_flop)
        assert both.activations >= large_one.activations > small_one.activations


def test_simulation_and_closed_form_agree():
    """One after another, the last step of an answer included, whose drafts may be too many; and in a busy batch."""
    service = tiny_drafted(batch=1, answer=200, count=30)
    point, trace = predict_service(service).full, simulate_service(service)
    assert all(each.made == each.answer for each in trace.requests)
    assert trace.tpot.mean() == pytest.approx(point.tpot, rel=0.03)
    busy = service.set(batch=8, rate=2 * point.tokens_per_second / 200, count=80)
    load, trace = predict_service(busy).load, simulate_service(busy)
    assert load.tpot == pytest.approx(trace.tpot.mean(), rel=0.1)


@pytest.mark.parametrize(
    ("drafts", "acceptance", "answer", "band"),
    [(4, 0.7, 10, 0.05), (4, 0.7, 3, 0.05), (4, 0.7, 2, 1e-3), (64, 1.0, 20, 1e-2)],
)
def test_a_short_answer_has_whole_steps(drafts, acceptance, answer, band):
    service = tiny_drafted(batch=1, answer=answer, count=400, acceptance=acceptance, tokens=drafts)
    point, trace = predict_service(service).full, simulate_service(service)
    assert trace.tpot.mean() == pytest.approx(point.tpot, rel=band)
    assert predict_service(service.set(rate=1e-6)).load.tpot == pytest.approx(point.tpot)


def test_drafts_that_are_never_accepted_are_steps_of_one_token():
    trace = simulate_service(tiny_drafted(acceptance=0.0, batch=1))
    assert sum(each.sequences for each in trace.steps) == sum(r.answer - 1 for r in trace.requests)
    every = simulate_service(tiny_drafted(acceptance=1.0, batch=1, answer=11))
    assert sum(each.sequences for each in every.steps) == 2 * len(every.requests)  # of 5 tokens


def tiny_drafted(**changes: object):
    tables = {"model": TINY, "machine": "laptop", "draft": SMALL, "requests": {"count": 5}}
    return read_service(tables).set(**{"rate": 0.0, "precision": "fp64", **changes})


@pytest.mark.parametrize(
    ("draft", "words"),
    [
        ("llama3-8b", "has a vocabulary of 128,256; legal: models with that of the model, 32"),
        ("resnet50", "draft = 'resnet50': does not generate text"),
        ({**SMALL, "tokens": 0}, r"draft.tokens = 0: legal: a whole number of at least 1"),
        ({**SMALL, "acceptance": 1.5}, r"draft.acceptance = 1.5"),
    ],
)
def test_a_wrong_draft_is_named(draft, words):
    with pytest.raises(SpecError, match=words):
        read_service({"model": TINY, "machine": "laptop", "draft": draft})


def test_a_real_service_has_no_draft():
    with pytest.raises(SpecError, match="decode_with_draft decodes one sequence with a draft"):
        check_run(tiny_drafted())


def test_decoders_that_cannot_work_together_are_named():
    own, other = (Decoder(read_model({**TINY, "vocabulary": n}), longest=8) for n in (17, 11))
    with pytest.raises(SpecError, match=r"vocabulary of 11; legal: that of the target .*, 17"):
        decode_with_draft(own, other, [1], 2, 1)
    with pytest.raises(SpecError, match=r"target and draft are one Decoder of .*; legal: two"):
        decode_with_draft(own, own, [1], 2, 1)


# text ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("drafts", [1, 4])
@pytest.mark.parametrize("same", [True, False])
def test_greedy_text_is_that_of_the_target_token_by_token(drafts, same):
    model = read_model(TINY)
    (alone,) = decode(model, [[3, 1, 4]], 20, 5, np.float64)
    target = Decoder(model, 5, np.float64, 32)
    draft = Decoder(model if same else read_model(SMALL), 5, np.float64, 32)
    for _ in range(2):  # decoders may be used again
        found = decode_with_draft(target, draft, [3, 1, 4], 20, drafts)
        assert found.answer == alone
        if same:  # all are accepted
            assert (found.steps, found.accepted) == (-(-20 // (drafts + 1)), found.drafted)
        else:
            assert found.accepted < found.drafted


def enumerated(draw):
    """Return each outcome of draw(choose) with its probability: all ways that `choose` can decide, one by one."""
    found: dict[tuple[int, ...], float] = {}
    ways: list[tuple[list[int], float]] = [([], 1.0)]
    while ways:
        decisions = Decisions(*ways.pop())
        outcome = tuple(draw(decisions.choose))
        found[outcome] = found.get(outcome, 0.0) + decisions.odds
        ways += decisions.others
    return found


class Decisions:
    """A way through a random program: given decisions first, then the first that is possible; others: the rest."""

    def __init__(self, way, odds):
        self.given, self.made, self.odds, self.others = list(way), [], odds, []

    def choose(self, weights):
        if len(self.made) < len(self.given):
            self.made.append(self.given[len(self.made)])
            return self.made[-1]
        first, *rest = np.flatnonzero(weights).tolist()
        self.others += [([*self.made, each], self.odds * weights[each]) for each in rest]
        self.made.append(first)
        self.odds *= weights[first]
        return first


def test_sampled_text_has_the_distribution_of_the_target_exactly():
    """Three words, answers of three tokens, two drafts: every way that drafts are drawn, accepted and replaced."""
    words = {"vocabulary": 3, "layers": 1, "hidden": 8, "heads": 2, "kv_heads": 1}
    large_model = read_model({**TINY, **words, "feed_forward": 16})
    small_model = read_model({**TINY, **words, "feed_forward": 8})
    target, draft = (
        Decoder(model, seed, np.float64, 8) for model, seed in ((large_model, 1), (small_model, 2))
    )
    heat = 0.3
    found = enumerated(
        lambda choose: decode_with_draft(target, draft, [2, 0], 3, 2, heat, choose).answer
    )
    assert sum(found.values()) == pytest.approx(1.0)
    differ = 0.0
    for text in product(range(3), repeat=3):
        (p, q) = (
            np.prod([law[token] for law, token in zip(laws(each, text), text, strict=True)])
            for each in (target, draft)
        )
        assert found.get(text, 0.0) == pytest.approx(p, abs=1e-12)
        differ = max(differ, abs(p - q))
    assert differ > 0.01  # a draft with another distribution


def laws(decoder, text):
    """Return the probabilities of each token of an answer, decoded alone."""
    decoder.keep("alone", 0)
    logits = decoder.step([("alone", [2, 0, *text[:-1]])], every=True)[1:]
    return [probabilities(each, 0.3) for each in logits]


# multi-token prediction --------------------------------------------------------------------------------


def own_drafts(acceptance=0.85, **changes):
    """Return DeepSeek-V3 on sixteen GPUs, drafted for by its own module."""
    model = {"name": "deepseek-v3", "mtp": 1}
    draft = {"tokens": 1, "acceptance": acceptance}
    tables = {"model": model, "machine": "h200-pod", "draft": draft}
    return read_service(tables).set(**{"devices": 16, "prompt": 1000, "answer": 201, **changes})


def test_a_model_drafts_with_its_own_module_which_shares_its_tables():
    service, alone = own_drafts(), large("deepseek-v3", "h200-pod", devices=16)
    prices, plain = Prices(service), Prices(alone)
    assert prices.shard.weights == plain.shard.weights
    # Of 671B, a layer; what joins the words, and norms.
    block = 11_507_288_064 + 2 * 7168**2 + 3 * 7168
    assert 2 * block / 16 < prices.draft.shard.weights < 1.05 * 2 * block / 16
    assert prices.kv_cache_bytes(99) == 62 / 61 * plain.kv_cache_bytes(100)
    assert 0.01 < prices.draft.decode(1, 1000).total / plain.decode(1, 1000).total < 0.1


@pytest.mark.parametrize("service", [own_drafts, drafted])
def test_rejected_drafts_cost_time_and_accepted_ones_divide_the_steps(service):
    none, every = (service(acceptance=accepted) for accepted in (0.0, 1.0))
    prices, tokens = Prices(every), 1 + every.drafts
    alone = Prices(large(every.model.name, every.machine.name, devices=every.service.devices))
    answer = every.requests.answer
    assert prices.steps(answer) == -(-(answer - 1) // tokens)
    assert Prices(none).steps(answer) == answer - 1
    slow, plain, fast = (
        each.answers(1, 1000, answer).total for each in (Prices(none), alone, prices)
    )
    assert fast < plain < slow < 2 * plain


def test_a_module_that_no_step_would_use_is_refused():
    with pytest.raises(
        SpecError, match=r"model.mtp = 1: its modules draft if \[draft\] names no model"
    ):
        read_service({"model": {"name": "deepseek-v3", "mtp": 1}, "machine": "h200-pod"})
    with pytest.raises(SpecError, match="draft"):
        read_service({"model": "llama3-8b", "machine": "h200-pod", "draft": {"tokens": 1}})
