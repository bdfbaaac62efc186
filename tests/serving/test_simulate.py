"""The simulation agrees with the closed forms where they are exact, and loses no token elsewhere."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from services import cramped, large, tiny

from lib_dlhpc.errors import SpecError
from lib_dlhpc.serving import predict_service, simulate_service
from lib_dlhpc.serving.price import Prices
from lib_dlhpc.serving.scheduler import Request, Scheduler
from lib_dlhpc.serving.service import arrivals

SHORT = {"prompt": 40, "answer": 6}


def test_one_request_at_a_time_is_the_prediction():
    service = large(batch=1, rate=1e-5, count=5)
    trace, alone = simulate_service(service), predict_service(service).alone
    assert trace.ttft == pytest.approx([alone.ttft] * 5, rel=1e-9)
    assert trace.tpot == pytest.approx([alone.tpot] * 5, rel=1e-9)


@pytest.mark.parametrize("batching", ["continuous", "static"])
def test_equal_requests_at_once_are_the_curve(batching):
    service = large(batch=16, batching=batching, rate=0.0, count=48, prompt=1000, answer=20)
    point = predict_service(service).full
    assert simulate_service(service).tokens_per_second == pytest.approx(point.tokens_per_second)


def test_one_server_is_lindleys_queue():
    service = large(batch=1, rate=1.0, count=200, prompt=512, answer=8)
    prices = Prices(service)
    hold = prices.prefill(512).total + prices.answers(1, 512, 8).total
    service = service.set(rate=0.7 / hold)
    wait, expected = 0.0, []
    for gap in np.diff(arrivals(service), append=np.inf):
        expected.append(wait + prices.prefill(512).total)
        wait = max(0.0, wait + hold - gap)
    assert simulate_service(service).ttft == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize(("rate", "chunk"), [(12.0, 0), (30.0, 0), (12.0, 256)])
def test_littles_law_gives_the_batch(rate, chunk):
    service = large(rate=rate, count=400, answer=64, chunk=chunk)
    trace = simulate_service(service)
    seen = len(trace.requests) / max(each.arrival for each in trace.requests)
    load = predict_service(service.set(rate=seen)).load  # the rate that the seed drew
    assert load.batch == pytest.approx(trace.inside, rel=0.1)
    assert load.tpot == pytest.approx(trace.tpot.mean(), rel=0.08)
    assert load.ttft == pytest.approx(trace.ttft.mean(), rel=0.2)


def test_answers_that_scatter_wait_as_the_simulation_does():
    """Just below saturation, where most of the time to the first token is the wait."""
    service = large(batch=16, rate=20.0, count=4000, prompt=1024, answer=64, answer_spread=1.0)
    load, seen = predict_service(service).load, simulate_service(service).ttft.mean()
    assert 0.75 < load.ttft / seen < 1.25
    assert predict_service(service.set(answer_spread=0.0)).load.ttft < load.ttft


def test_saturation_is_where_the_queue_grows():
    service = large(batch=8, rate=30.0, count=3000, answer=64)
    for spread in (0.0, 1.0):
        service = service.set(answer_spread=spread)
        trace, load = simulate_service(service), predict_service(service).load
        assert load.saturated
        assert load.tokens_per_second == pytest.approx(trace.tokens_per_second, rel=0.05)
        assert load.tpot == pytest.approx(trace.tpot.mean(), rel=0.05)


@pytest.mark.parametrize("rate", [0.5, 1.0, 1.4])
def test_long_prompts_keep_few_sequences_waiting(rate):
    """Most of the time is that of other prompts, also where the mean batch is below one."""
    service = large(rate=rate, count=4000, prompt=16000, answer=32)
    trace, load = simulate_service(service), predict_service(service).load
    assert load.tpot > 1.5 * predict_service(service).alone.tpot
    assert load.tpot == pytest.approx(trace.tpot.mean(), rel=0.1)
    assert load.ttft == pytest.approx(trace.ttft.mean(), rel=0.1)
    assert load.batch == pytest.approx(trace.inside, rel=0.1)


def test_the_part_of_capacity_grows_with_the_rate():
    """Up to where full batches are reached, and tokens come no faster than at a lower rate."""
    service = large(batch=16, prompt=1024, answer=64)
    full = predict_service(service).full.tokens_per_second / 64
    loads = [predict_service(service.set(rate=part * full)).load for part in (0.2, 0.5, 0.9, 0.99)]
    assert [load.utilization for load in loads] == pytest.approx([0.2, 0.5, 0.9, 0.99])
    last = predict_service(service.set(rate=1.01 * full)).load
    assert last.saturated and not any(load.saturated for load in loads)
    times = [load.tpot for load in (*loads, last)]
    assert times == sorted(times)


@settings(max_examples=15, deadline=None)
@given(st.integers(0, 99), st.sampled_from([0, 7, 64]), st.sampled_from(["continuous", "static"]))
def test_no_token_is_lost_or_made_twice(seed, chunk, batching):
    changes = {"seed": seed, "chunk": chunk, "batching": batching, "count": 20, "rate": 300.0}
    service = large(batch=5, prompt_spread=0.8, answer_spread=0.8, **SHORT, **changes)
    trace = simulate_service(service)
    assert all(each.made == each.answer for each in trace.requests)
    assert sum(each.prompt_tokens for each in trace.steps) == sum(r.prompt for r in trace.requests)
    assert sum(each.sequences for each in trace.steps) == sum(r.answer - 1 for r in trace.requests)
    assert all(each.sequences <= 5 for each in trace.steps)
    assert all(r.arrival < r.first <= r.end for r in trace.requests)
    ends = [each.end for each in trace.steps]
    assert all(a <= b.start for a, b in zip(ends, trace.steps[1:], strict=False))


def test_a_full_cache_preempts_and_all_answers_end():
    service = cramped(tiny(batch=8, answer=30, count=10), 3)
    trace, room = simulate_service(service), predict_service(service).room
    assert trace.preemptions
    assert all(each.made == each.answer for each in trace.requests)
    assert max(each.cache for each in trace.steps) <= room
    computed = sum(each.prompt_tokens for each in trace.steps)
    assert computed > sum(each.prompt for each in trace.requests)  # some of them again


def test_a_request_that_never_fits_is_refused():
    service = cramped(tiny(answer=30, answer_spread=1.5, count=40), 1)
    with pytest.raises(SpecError, match=r"tokens needs .* of cache per device"):
        simulate_service(service)


@settings(max_examples=40, deadline=None)
@given(st.lists(st.integers(1, 30), min_size=1, max_size=30), st.integers(1, 6))
def test_static_batching_never_needs_fewer_steps_that_decode(answers, batch):
    steps = {how: decoding(answers, batch, how) for how in ("continuous", "static")}
    assert steps["continuous"] <= steps["static"]
    longest = [max(answers[at : at + batch]) - 1 for at in range(0, len(answers), batch)]
    assert steps["static"] == sum(longest)


def decoding(answers, batch, batching):
    """Return how many steps decode, of requests that are all there, without any limit of the cache."""
    serving = large(batch=batch, batching=batching).service
    scheduler = Scheduler(serving, lambda tokens: 0.0, 1.0)
    for number, answer in enumerate(answers):
        scheduler.add(Request(number, 0.0, 4, answer))
    count = 0
    while (step := scheduler.next_step()) is not None:
        scheduler.done(step, 0.0)
        count += bool(step.decoded)
    return count


@pytest.mark.parametrize("spread", [0.5, 1.0])
def test_continuous_batching_serves_more_where_lengths_differ(spread):
    service = large(batch=16, rate=0.0, count=80, answer_spread=spread)
    rates = [
        simulate_service(service.set(batching=how)).tokens_per_second
        for how in ("static", "continuous")
    ]
    assert rates[1] > 1.2 * rates[0]


def test_chunks_shorten_the_longest_pause():
    service = large("llama3-70b", devices=8, prompt=8000, rate=4.0, count=40, answer=40)
    pauses = []
    for chunk in (0, 512):
        steps = simulate_service(service.set(chunk=chunk)).steps
        pauses.append(max(each.end - each.start for each in steps))
    assert pauses[1] < pauses[0] / 4


def test_replicas_share_the_requests():
    one = simulate_service(large(rate=0.0, count=64, batch=8))
    four = simulate_service(large(rate=0.0, count=64, batch=8, replicas=4))
    assert {each.replica for each in four.steps} == set(range(4))
    assert four.tokens_per_second == pytest.approx(4 * one.tokens_per_second)
