"""Experts spread over replicas: what a device holds and computes, its exchanges, and what overlaps."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from services import large

from lib_dlhpc.errors import SpecError
from lib_dlhpc.serving import predict_service, simulate_service
from lib_dlhpc.serving.price import Chunk, Prices
from lib_dlhpc.serving.wide_experts import Exchanges

# DeepEP, docs/legacy.md at dd758ca, on H800: EP, us of dispatch and combine of 128 tokens of 7,168 to 8 experts each.
LOW_LATENCY = [(32, 155, 273), (64, 173, 314), (128, 192, 369), (256, 194, 360)]
# EP, and GB/s of all copies to nodes, for 4,096 tokens.
NORMAL = [(32, 58, 57), (64, 51, 50)]
# Parameters of DeepSeek-V3 without its routed experts.
REST = 671_026_404_352 - 58 * 256 * 44_040_192


def deepseek(group, machine="h800-pod", **changes):
    """Return the prices of DeepSeek-V3 in fp8 on a group of replicas of one device."""
    changes = {"replicas": group, "experts": group, "precision": "fp8", **changes}
    return Prices(large("deepseek-v3", machine, **changes))


def exchange(group):
    """Return the exchanges of one layer."""
    prices = deepseek(group)
    found = Exchanges(
        large("deepseek-v3", "h800-pod", replicas=group, experts=group, precision="fp8"),
        prices.shard.model.layers,
        "bf16",
    )
    found.layers = found.layers[:1]
    return found


@pytest.mark.parametrize("group", [32, 64, 128, 256])
def test_exchanges_are_those_that_deepep_measured(group):
    """Up to 20% shorter for decoding; within 5% for prompts."""
    found = exchange(group)
    for ranks, *measured in LOW_LATENCY:
        if ranks == group:
            for seconds, us in zip(found.seconds(128, False), measured, strict=True):
                assert 0.8 * us < 1e6 * seconds < us
    for ranks, *rates in NORMAL:
        if ranks == group:
            copies = found._copies(found.layers[0], True)[0]
            for seconds, size, rate in zip(
                found.seconds(4096, True), found.sizes, rates, strict=True
            ):
                assert seconds == pytest.approx(
                    4096 * 7168 * size * copies / (1e9 * rate), rel=0.05
                )


@pytest.mark.parametrize(("group", "redundant"), [(32, 32), (128, 0), (144, 32), (320, 64)])
def test_a_device_holds_its_part_of_the_experts_and_all_else(group, redundant):
    prices = deepseek(group, redundant=redundant)
    experts = (256 + redundant) // group
    assert prices.shard.weights == REST + 58 * experts * 44_040_192
    whole = Prices(large("deepseek-v3", "h800-pod", precision="fp8"))
    assert prices.kv_cache_bytes(1000) == whole.kv_cache_bytes(1000)
    # With many tokens all of them are read.
    assert prices.decode(512, 100).weights < whole.decode(512, 100).weights / 4


def test_a_group_of_one_has_no_exchange_and_a_wider_one_reads_less():
    assert deepseek(1).exchanges is None and deepseek(1).decode(8, 100).communication == 0
    steps = [deepseek(group).decode(128, 1000) for group in (8, 16, 32, 64)]
    for wide, wider in pairwise(steps):
        assert wider.weights < wide.weights and wider.communication > wide.communication


def test_the_busiest_device_makes_all_wait():
    even, uneven = (deepseek(32, imbalance=i).step([Chunk(4096)] * 4) for i in (1.0, 1.5))
    assert uneven.communication == pytest.approx(1.5 * even.communication, rel=0.01)
    assert uneven.arithmetic > even.arithmetic and uneven.attention == even.attention


@given(*(st.floats(0.001, 10.0) for _ in range(2)), st.integers(1, 4096), st.booleans())
def test_two_microbatches_hide_at_most_the_shorter_of_work_and_exchanges(
    rest, experts, tokens, prompts
):
    found = exchange(32)
    work, moved = rest + experts, sum(found.seconds(tokens, prompts))
    whole = found.alternating(work, experts, tokens, prompts)
    assert 2 * max(work, moved) <= whole * (1 + 1e-12) <= 2 * (work + moved) * (1 + 2e-12)


def test_microbatches_pay_with_many_sequences_and_cost_with_few():
    """SGLang team 2025: 27% slower with 32 tokens of a device, 25% faster with 256; weights are read twice."""
    one, two = (deepseek(72, "h100-pod", redundant=32, microbatches=many) for many in (1, 2))
    times = {
        batch: two.decode(batch, 2000).total / one.decode(batch, 2000).total
        for batch in (1, 16, 256)
    }
    assert times[1] == 1 and times[16] > 1 > times[256]


@pytest.mark.parametrize(
    ("model", "changes", "words"),
    [
        ("llama3-8b", {"replicas": 8, "experts": 8}, "has no experts; legal: 1"),
        ("deepseek-v3", {"replicas": 12, "experts": 8}, "must divide service.replicas = 12"),
        (
            "deepseek-v3",
            {"replicas": 8, "experts": 8, "devices": 2},
            "service.devices = 2: legal with it: 1",
        ),
        (
            "deepseek-v3",
            {"replicas": 144, "experts": 144, "redundant": 4},
            "legal: service.redundant = 32",
        ),
        ("deepseek-v3", {"microbatches": 2}, "legal with service.experts = 1: 1"),
        ("deepseek-v3", {"imbalance": 1.2}, "legal with service.experts = 1: 1.0"),
    ],
)
def test_what_cannot_be_spread_is_refused(model, changes, words):
    with pytest.raises(SpecError, match=words):
        large(model, "h800-pod", **changes)


def test_one_request_is_simulated_as_predicted():
    service = large("mixtral-8x7b", replicas=8, experts=8, count=1, rate=0.0, prompt=100, answer=5)
    found, trace = predict_service(service), simulate_service(service)
    assert trace.ttft[0] == pytest.approx(found.alone.ttft)
    assert trace.tpot[0] == pytest.approx(found.alone.tpot)


def test_a_group_is_predicted_with_all_that_its_devices_hold():
    changes = {"replicas": 144, "experts": 144, "redundant": 32, "precision": "fp8", "rate": 0.0}
    service = large("deepseek-v3", "h800-pod", **changes, microbatches=2, batch=128, prompt=5000)
    found, device = predict_service(service), service.machine.device
    assert found.weights == deepseek(144, redundant=32).shard.weights
    full = found.weights + found.activations + found.sequences * found.cache_sequence
    assert full <= device.memory - device.reserved_memory < full + found.cache_sequence
    alone = predict_service(service.set(microbatches=1)).curve
    assert found.full.tokens_per_second > alone[-1].tokens_per_second
    assert found.alone.tpot == pytest.approx(alone[0].tpot, rel=1e-3)  # one sequence has no half
