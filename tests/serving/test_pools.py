"""Replicas that only read prompts: predicted beside simulated, bytes over links, no pause for a prompt."""

from dataclasses import replace

import pytest
from services import large

from lib_dlhpc.errors import SpecError
from lib_dlhpc.serving import predict_service, simulate_service
from lib_dlhpc.serving.pools import sending
from lib_dlhpc.serving.price import Prices

SLOW = "ethernet-25g"


def pools(machine="h100-pod", **changes):
    """Return Llama 3 70B on eight replicas of four devices, four of which only read prompts."""
    own = {"devices": 4, "replicas": 8, "prefill_replicas": 4, "prompt": 8192, "answer": 64}
    return large("llama3-70b", machine, **{**own, "count": 150, **changes})


def on(link, **changes):
    """Return the same between nodes that this link joins."""
    return pools({"name": "h100-pod", "inter_node": link}, **changes)


def test_a_cache_takes_its_bytes_over_the_link():
    service = on(SLOW)
    link, prices = service.machine.inter_node, Prices(service)
    # Keys and values of 80 layers, 2 of 8 heads a device, 2 bytes.
    own = 2 * 80 * 2 * 128 * 2 * 8192
    assert prices.kv_cache_bytes(8192) == own
    rate = link.bandwidth * link.efficiency  # a NIC for each device
    assert sending(service, prices)(8192) == pytest.approx(link.latency + own / rate)


def test_replicas_of_one_node_send_over_its_own_links():
    near, far = (pools(replicas=n, prefill_replicas=1) for n in (2, 3))
    link = near.machine.intra_node
    seconds = [sending(each, Prices(each))(8192) for each in (near, far)]
    expected = link.latency + Prices(near).kv_cache_bytes(8192) / (link.bandwidth * link.efficiency)
    assert seconds[0] == pytest.approx(expected) and seconds[0] < seconds[1] / 5


def test_one_request_at_a_time_is_the_sum_of_its_parts():
    service = on(SLOW, rate=1e-5, count=4)
    trace, prices = simulate_service(service), Prices(service)
    assert trace.ttft == pytest.approx([prices.prefill(8192).total] * 4, rel=1e-9)
    rest = sending(service, prices)(8192) + prices.answers(1, 8192, 64).total
    assert trace.tpot == pytest.approx([rest / 63] * 4, rel=1e-9)


@pytest.mark.parametrize(
    ("link", "rate", "pool"),
    [("ib-ndr", 2.0, 2), ("ib-ndr", 5.5, 4), ("ib-ndr", 8.0, 6), (SLOW, 4.0, 4), (SLOW, 5.0, 6)],
)
def test_the_simulation_has_the_latencies_of_the_closed_form(link, rate, pool):
    service = on(link, rate=rate, prefill_replicas=pool)
    load, trace = predict_service(service).load, simulate_service(service)
    assert not load.saturated
    assert load.ttft == pytest.approx(trace.ttft.mean(), rel=0.25)
    assert load.tpot == pytest.approx(trace.tpot.mean(), rel=0.05)


def test_a_pool_or_a_path_that_is_too_slow_saturates():
    reading = predict_service(pools(rate=8.0))
    assert reading.load.saturated and reading.pools.reading > 1 > reading.pools.decoding
    path = predict_service(on("ethernet-10g", rate=7.0, prefill_replicas=5))
    assert path.load.saturated and path.pools.sending > 1 > path.pools.reading
    decoding = predict_service(
        pools(prompt=512, answer=512, rate=40.0, prefill_replicas=7, batch=32)
    )
    assert decoding.load.saturated and decoding.pools.decoding > 1 > decoding.pools.reading


def test_no_step_has_prompts_and_answers_and_each_request_crosses_once():
    trace = simulate_service(pools(rate=5.0))
    for step in trace.steps:
        assert bool(step.prompt_tokens) == (step.replica < 4) and not (
            step.prompt_tokens and step.sequences
        )
    assert all(each.made == each.answer and each.moved > 0 for each in trace.requests)
    assert sum(each.sequences for each in trace.steps) == sum(r.answer - 1 for r in trace.requests)


def test_an_answer_of_one_token_stays_where_its_prompt_was_read():
    trace = simulate_service(pools(answer=1, rate=4.0))
    assert {each.replica for each in trace.steps} <= set(range(4))
    assert all(each.moved == 0 and each.end == each.first for each in trace.requests)


def test_no_answer_pauses_for_a_prompt():
    both = [simulate_service(pools(rate=6.0, prefill_replicas=pool)) for pool in (0, 6)]
    worst = [trace.tpot.max() for trace in both]
    assert worst[1] < 0.6 * worst[0]


def test_a_tight_limit_of_a_token_is_met_by_two_pools_and_a_loose_one_by_mixed_replicas():
    tight = [predict_service(pools(rate=8.0, prefill_replicas=pool)).load for pool in (0, 6)]
    assert tight[1].tpot < 0.015 < tight[0].tpot
    most = [predict_service(pools(rate=0.0, prefill_replicas=pool)).full for pool in (0, 4, 6)]
    assert most[0].tokens_per_second > max(each.tokens_per_second for each in most[1:])


def test_two_pools_at_work_have_the_rate_of_the_slower():
    point = predict_service(pools(rate=0.0, prefill_replicas=2)).full
    prices = Prices(pools())
    one = prices.prompts(point.batch, 8192).total / point.batch
    assert point.tokens_per_second == pytest.approx(2 / one * 64)


def test_a_price_is_of_all_devices():
    service = pools(rate=0.0)
    priced = replace(service, machine=replace(service.machine, device_price=3.6))
    point = predict_service(priced).full
    assert point.cost == pytest.approx(32 * 1e6 * 1e-3 / point.tokens_per_second)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"prefill_replicas": 8}, "service.prefill_replicas = 8: .* legal: 0 to 7"),
        ({"chunk": 512}, "service.chunk = 512 with service.prefill_replicas = 4: legal: 0"),
        ({"batching": "static"}, "service.batching = 'static' with .* legal: 'continuous'"),
        ({"prefix_block": 16}, "service.prefix_block = 16 with"),
    ],
)
def test_what_two_pools_cannot_do_is_named(changes, words):
    with pytest.raises(SpecError, match=words):
        pools(**changes)
