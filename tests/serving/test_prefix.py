"""Stored prefixes: the closed form is the simulation, no token differs, and the oldest blocks go first."""

from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from services import TINY, cramped, large, tiny

from lib_dlhpc.errors import SpecError
from lib_dlhpc.serving import (
    Decoder,
    PrefixCache,
    predict_service,
    read_service,
    run_service,
    simulate_service,
)
from lib_dlhpc.serving.price import Prices
from lib_dlhpc.spec.experiment import read_model

LONG = {"prompt": 8704, "shared": 8192, "answer": 8, "rate": 2.0}


@pytest.mark.parametrize("tokens", [1, 5, 8])
def test_logits_after_stored_keys_and_values_are_those_of_the_whole_prompt(tokens):
    model, text = read_model(TINY), np.random.default_rng(0).integers(0, 32, 12).tolist()
    whole, again = (Decoder(model, 3, np.float64, 16) for _ in range(2))
    expected = whole.step([("a", text)], every=True)
    again.step([("first", [*text[:tokens], 7, 7])])
    again.store("block", "first", 0, tokens)
    again.free("first")
    again.reuse("b", ["block"])
    found = again.step([("b", text[tokens:])], every=True)
    np.testing.assert_allclose(found, expected[tokens:], rtol=0, atol=1e-10)


@pytest.mark.parametrize(
    "changes", [{}, {"chunk": 3}, {"prompt_spread": 0.6}, {"sharing": 0.5, "answer_spread": 0.5}]
)
def test_answers_do_not_depend_on_what_is_stored(changes):
    service = tiny(prompt=12, shared=9, prefixes=2, count=16, **changes)
    real = run_service(service.set(prefix_block=2))
    assert real.answers == run_service(service).answers
    assert real.reused.max() > 0.5


def test_answers_survive_eviction_and_preemption():
    service = tiny(batch=5, prompt=12, shared=8, prefixes=3, answer=16, count=15)
    small = cramped(service, 3).set(prefix_block=4)
    real, simulated = run_service(small), simulate_service(small)
    assert real.answers == run_service(service).answers
    assert real.preemptions and 0 < real.reused.mean() < 0.6
    assert (real.reused == simulated.reused).all()


@settings(max_examples=15, deadline=None)
@given(st.integers(0, 99), st.sampled_from([0, 7]), st.integers(1, 9), st.sampled_from([1, 4, 16]))
def test_each_token_is_computed_or_was_stored(seed, chunk, prefixes, block):
    changes = {"seed": seed, "chunk": chunk, "prefixes": prefixes, "prefix_block": block}
    load = {"prompt": 40, "shared": 30, "prompt_spread": 0.5, "answer": 6, "sharing": 0.7}
    trace = simulate_service(large(batch=5, count=20, rate=300.0, **load, **changes))
    reused, prompts = (
        sum(getattr(r, name) for r in trace.requests) for name in ("reused", "prompt")
    )
    assert sum(each.prompt_tokens for each in trace.steps) == prompts - reused
    assert all(each.made == each.answer for each in trace.requests)
    assert all(r.reused <= min(30, r.prompt - 1) and r.reused % block == 0 for r in trace.requests)


@pytest.mark.parametrize(
    ("prefixes", "sharing"), [(8, 1.0), (64, 1.0), (128, 1.0), (256, 1.0), (32, 0.5)]
)
def test_the_simulation_finds_the_share_of_hits_that_the_closed_form_has(prefixes, sharing):
    service = large(prefixes=prefixes, sharing=sharing, prefix_block=16, count=600, **LONG)
    reuse, trace = predict_service(service).reuse, simulate_service(service)
    seen = [each.reused for each in trace.requests[200:]]  # the memory is full by then
    assert np.mean(np.array(seen) > 0) == pytest.approx(reuse.hit, abs=0.05)
    assert np.mean(seen) == pytest.approx(reuse.hit * reuse.tokens, abs=0.05 * reuse.tokens)


def test_the_rate_of_requests_changes_no_hit_and_memory_does():
    own = large(prefixes=64, prefix_block=16, **LONG)
    hits = [predict_service(own.set(rate=rate)).reuse.hit for rate in (0.5, 2.0, 4.0)]
    assert len(set(hits)) == 1
    fewer = [own.set(prefixes=each) for each in (1, 16, 64, 256)]
    every = [predict_service(each).reuse.hit for each in fewer]
    assert every == sorted(every, reverse=True)
    assert predict_service(own.set(cache_precision="fp8")).reuse.hit > hits[0]


def test_more_sequences_fit_where_they_share_their_prefix():
    own = large(prefixes=1, prefix_block=16, rate=0.0, prompt=8704, shared=8192, answer=100)
    found, alone = predict_service(own), predict_service(own.set(prefix_block=0))
    prices = Prices(own)
    rest = (found.room - prices.kv_cache_bytes(8192)) // (
        prices.kv_cache_bytes(8803) - prices.kv_cache_bytes(8192)
    )
    assert found.sequences == rest > 10 * alone.sequences


def test_a_hit_computes_only_the_rest_of_the_prompt():
    own = large(prefixes=1, prefix_block=16, **LONG)
    found, prices = predict_service(own), Prices(own)
    assert found.reuse.hit == pytest.approx(1.0)
    assert found.prefill.total == pytest.approx(prices.prefill(8704, 8192).total)
    assert found.prefill.total < prices.prefill(8704).total / 10
    trace = simulate_service(own.set(count=200))
    assert found.load.ttft == pytest.approx(trace.ttft[20:].mean(), rel=0.1)


def test_nothing_shared_or_nothing_stored_is_a_service_without_prefixes():
    plain = str(predict_service(large()).as_dict())  # its price is no number
    for changes in ({"prefix_block": 16}, {"shared": 500}, {"shared": 10, "prefix_block": 16}):
        assert str(predict_service(large(**changes)).as_dict()) == plain


def test_the_least_recently_used_block_goes_first_and_the_end_of_a_prefix_before_its_start():
    cache = PrefixCache(4, 1.0)
    for prefix in (0, 1):
        assert cache.find(prefix, 8) == 0
        assert cache.add(prefix, 8, 0) == 2
    cache.release(0, 2)
    cache.release(1, 2)
    assert cache.find(0, 8) == 2  # used again
    cache.release(0, 2)
    cache.shrink(3.0)
    assert (1, 1) not in cache and (1, 0) in cache
    cache.shrink(1.0)
    assert cache.find(0, 8) == 1 and cache.find(1, 8) == 0
    cache.shrink(0.0)
    assert (0, 0) in cache and cache.pinned == 1.0  # in use


def test_what_a_request_leaves_makes_room_in_its_turn():
    cache = PrefixCache(4, 1.0)
    cache.add(0, 4, 0)
    cache.release(0, 1, (7, 2.5))
    cache.shrink(2.0)
    assert (0, 0) in cache and cache.idle == 2.0
    cache.shrink(0.5)
    assert (0, 0) not in cache and cache.idle == 0.0


class Blocks:
    """What a PrefixCache must do, block by block. used: those stored, least recently used first."""

    def __init__(self):
        self.pins, self.used = Counter(), []

    def pin(self, prefix, blocks):
        for place in range(blocks):
            self.pins[prefix, place] += 1
        self.used = [each for each in self.used if each not in +self.pins]

    def release(self, prefix, blocks):
        for place in reversed(range(blocks)):
            self.pins[prefix, place] -= 1
            self.used += [(prefix, place)] * (not self.pins[prefix, place])

    def stored(self, prefix):
        return {place for of, place in {*+self.pins, *self.used} if of == prefix}


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 2), st.integers(0, 6)), max_size=60))
@settings(max_examples=200)
def test_runs_of_blocks_are_found_and_evicted_as_single_blocks_are(acts):
    cache, plain, running = PrefixCache(1, 1.0), Blocks(), []
    for act, prefix, blocks in acts:
        if act < 6:  # a request is admitted, and its prompt is computed
            found = cache.find(prefix, blocks)
            assert found == len(plain.stored(prefix) & {*range(blocks)})
            assert cache.add(prefix, blocks, found) == blocks
            plain.pin(prefix, blocks)
            running.append((prefix, blocks))
        elif act < 9 and running:
            one = running.pop(blocks % len(running))
            cache.release(*one)
            plain.release(*one)
        else:
            cache.shrink(float(blocks))
            plain.used = plain.used[max(0, len(plain.used) - blocks) :]
        assert (cache.pinned, cache.idle) == (len(+plain.pins), len(plain.used))
        for each in range(3):
            stored = {place for place in range(7) if (each, place) in cache}
            assert stored == plain.stored(each)


def test_a_prefix_cache_keeps_nothing_of_what_it_no_longer_stores():
    cache = PrefixCache(1, 1.0)
    for prefix in range(1000):
        for _ in range(3):  # the last run is used again
            found = cache.find(prefix, 4)
            cache.release(prefix, cache.add(prefix, 4, found), (prefix, 2.0))
        cache.shrink(6.0)
    assert cache.idle == 6.0 and cache.pinned == 0.0
    assert len(cache.left) <= 2 and not cache.pins and len(cache.order) <= 4


@pytest.mark.parametrize(
    ("tables", "words"),
    [
        ({"requests": {"prompt": 8, "shared": 8}}, "requests.shared = 8: legal: less than"),
        ({"requests": {"sharing": 1.5}}, "requests.sharing = 1.5"),
        ({"requests": {"prefixes": 0}}, "requests.prefixes = 0"),
        (
            {"model": {**TINY, "window": 4}, "service": {"prefix_block": 16}},
            "service.prefix_block = 16: llama network forgets tokens beyond its window",
        ),
    ],
)
def test_what_cannot_be_shared_is_named(tables, words):
    with pytest.raises(SpecError, match=words):
        read_service({"model": TINY, "machine": "laptop", **tables})
