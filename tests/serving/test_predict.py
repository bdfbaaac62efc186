"""Closed forms of a service: what fits, the curve, the load, energy and price."""

from dataclasses import replace

import numpy as np
import pytest
from services import large

from lib_dlhpc.errors import SpecError
from lib_dlhpc.serving import predict_service
from lib_dlhpc.serving.price import Prices


def test_what_fits_fills_the_memory():
    found = predict_service(large(prompt=2000, answer=500))
    device = found.service.machine.device
    full = found.weights + found.activations + found.sequences * found.cache_sequence
    assert full <= device.memory - device.reserved_memory < full + found.cache_sequence


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"model": "llama3-70b"}, "weights of llama3-70b in bf16 take 141 GB per device"),
        ({"prompt": 2_000_000}, "16.1 GB per device, activations of a step .* chunks of prompts"),
        ({"prompt": 2_000_000, "chunk": 512}, "cache of a sequence of 2000128 tokens"),
    ],
)
def test_what_does_not_fit_is_told_with_its_bytes(changes, words):
    with pytest.raises(SpecError, match=words):
        predict_service(large(**changes))


def test_70_billion_parameters_in_16_bits_fit_on_one_h200():
    found = predict_service(large("llama3-70b", machine="h200-pod", prompt=1000, answer=200))
    assert found.weights > 141e9 and found.sequences >= 1


def test_the_curve_trades_latency_for_throughput():
    curve = predict_service(large(batch=200)).curve
    assert [point.batch for point in curve] == [1, 2, 4, 8, 16, 32, 64, 128, 200]
    for name, sign in (("ttft", 1), ("tpot", 1), ("tokens_per_second", 1), ("joules", -1)):
        assert (np.diff([sign * getattr(point, name) for point in curve]) >= 0).all(), name


def test_prefill_has_two_flop_a_parameter_and_token():
    service = large(prompt=1000)
    found, parameters = predict_service(service), service.model.parameters
    tables = 2 * 128256 * 4096  # looked up, and computed for one token
    pairs = 32 * 4 * 4096 * 1000 * 1001 / 2
    flop = 2 * 1000 * (parameters - tables) + 2 * tables / 2 + pairs
    assert found.prefill_flop == pytest.approx(flop, rel=1e-3)


def test_replicas_multiply_throughput_alone():
    one, four = (predict_service(large(replicas=n, rate=3.0 * n)) for n in (1, 4))
    assert four.full.tokens_per_second == pytest.approx(4 * one.full.tokens_per_second)
    assert (four.full.tpot, four.full.joules) == pytest.approx((one.full.tpot, one.full.joules))
    assert 0.98 < four.load.ttft / one.load.ttft < 1  # the least busy replica takes a request


def test_a_price_an_hour_is_one_of_a_million_tokens():
    service = large(batch=1)
    assert np.isnan(predict_service(service).full.cost)
    priced = replace(service, machine=replace(service.machine, device_price=3.6))
    point = predict_service(priced).full
    assert point.cost == pytest.approx(1e6 * 3.6 / 3600 / point.tokens_per_second)


def test_one_server_waits_as_m_d_1():
    prices = Prices(large())
    hold = prices.prefill(512).total + prices.answers(1, 512, 128).total
    for busy in (0.1, 0.5, 0.9):
        load = predict_service(large(batch=1, rate=busy / hold)).load
        assert load.utilization == pytest.approx(busy, rel=1e-3)
        assert load.wait == pytest.approx(busy * hold / (2 * (1 - busy)), rel=1e-2)


def test_answers_that_scatter_wait_as_m_g_1():
    """Pollaczek and Khinchine: the wait of M/D/1 times 1 + squared coefficient of variation of the service time."""
    prices = Prices(large())
    first, rest = prices.prefill(512).total, prices.answers(1, 512, 128).total
    hold, alike = first + rest, large(batch=1, rate=0.6 / (first + rest))
    wait = predict_service(alike).load.wait
    for prompts, answers in ((0.0, 1.5), (3.0, 0.0), (2.0, 1.0)):
        found = predict_service(alike.set(prompt_spread=prompts, answer_spread=answers)).load.wait
        squared = ((prompts * first) ** 2 + (answers * rest) ** 2) / hold**2
        assert found == pytest.approx(wait * (1 + squared), rel=1e-3)


def test_too_many_requests_saturate():
    found = predict_service(large(batch=8, rate=1000.0))
    assert found.load.saturated
    assert found.load.tokens_per_second == found.full.tokens_per_second
    assert found.load.ttft == np.inf
