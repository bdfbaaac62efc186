"""What module 13 and its notes say is what the library computes."""

import numpy as np
import pytest

from lib_dlhpc.costs.energy import drawn
from lib_dlhpc.explore.serving import drafts, lengths, pools, prefixes
from lib_dlhpc.explore.serving.drafts import Setting as Drafted
from lib_dlhpc.explore.serving.drafts import gain
from lib_dlhpc.explore.serving.load import CHUNKED, CONTINUOUS, RATES, STATIC, felt, simulated
from lib_dlhpc.explore.serving.load import Setting as Busy
from lib_dlhpc.explore.serving.memory import Setting as Room
from lib_dlhpc.explore.serving.memory import fit, heads_of
from lib_dlhpc.explore.serving.phases import (
    ANSWER,
    PREFILL,
    decode_point,
    fits,
    parts,
    points,
    served,
)
from lib_dlhpc.explore.serving.phases import Setting as Phases
from lib_dlhpc.explore.serving.pools import APART, MIXED, sustained
from lib_dlhpc.explore.serving.pools import CHUNKED as MIXED_CHUNKS
from lib_dlhpc.explore.serving.pools import Setting as Two
from lib_dlhpc.explore.serving.prefixes import Setting as Alike
from lib_dlhpc.explore.serving.questions import (
    FULL,
    PUBLISHED,
    ceiling,
    dearer,
    lesson,
    network_share,
    ridge,
    room_for,
    row,
    shape,
    token,
)
from lib_dlhpc.explore.serving.replicas import JOULES, chosen, eight
from lib_dlhpc.explore.serving.replicas import Setting as Eight
from lib_dlhpc.explore.serving.served import service
from lib_dlhpc.serving import predict_service, simulate_service
from lib_dlhpc.serving.predict import room_of
from lib_dlhpc.serving.price import Prices
from lib_dlhpc.serving.published import published
from lib_dlhpc.serving.speculate import improvement
from lib_dlhpc.spec.experiment import read_model


def test_the_answer_takes_many_times_as_long_as_the_prompt_and_is_bound_by_weights():
    prompt, answer = parts(Phases())
    assert answer.total / prompt.total == pytest.approx(31, abs=0.5)
    assert 8 < ANSWER * prompt.total / answer.total < 9
    assert answer.bound == "weights" and prompt.bound == "arithmetic"
    assert Phases().prompt == 8 * ANSWER


def test_eight_sequences_take_little_longer_than_one_and_64_twice_as_long():
    assert token(batch=8) < 1.1 * token()
    assert 1.8 < token(batch=64) / token() < 2.5


def test_decode_stays_on_the_slope_and_prefill_reaches_the_roof_with_512_tokens():
    assert ceiling() < ridge() / 5
    path = dict(points(Phases())[PREFILL])
    assert path[256].intensity < ridge() < path[512].intensity


def test_bandwidth_and_bytes_make_decode_faster_and_not_prefill():
    faster, fewer = Phases(gpu="h200-pod"), Phases(weights="int4")
    assert token() / token(gpu="h200-pod") > 1.3 and token() / token(weights="int4") > 2.5
    prompt = parts(Phases())[0].total
    assert all(abs(parts(each)[0].total / prompt - 1) < 0.06 for each in (faster, fewer))
    assert (
        row("gptfast-a100-llama2-7b-1-int4").published
        < 2 * row("gptfast-a100-llama2-7b-1").published
    )


def test_a_grouped_cache_holds_more_than_twice_the_gpus_would():
    many = [fit(Room(), heads).fitting for heads in (32, 8, 1)]
    assert many == sorted(many) and fit(Room(gpus=2), 32).fitting < many[1]
    thirteen = Room("llama2-13b")
    assert fit(thirteen, heads_of(thirteen)).fitting == 17


def test_half_the_bytes_of_a_token_are_twice_the_sequences_at_any_length():
    for tokens in (4096, 131072):
        whole, half = (
            fit(Room(tokens=tokens, cache=cache), 8).fitting for cache in ("bf16", "fp8")
        )
        assert half in (2 * whole, 2 * whole + 1)
        assert half > fit(Room(tokens=tokens, weights="int4"), 8).fitting


def test_decode_passes_the_ridge_with_prompts_of_128_tokens_and_not_with_2048():
    short = Phases(prompt=128)
    most = decode_point(served(short)[1], fits(short), 128 + ANSWER // 2)
    assert ceiling() < ridge() < most.intensity


def test_sequences_grow_faster_than_the_gpus():
    held = [fit(Room("llama3-70b", gpus), 8).fitting for gpus in (2, 4, 8)]
    assert held[1] > 2 * held[0] and held[2] > 2 * held[1]


def test_the_first_token_comes_many_times_sooner_with_continuous_batching():
    static, continuous = (felt(Busy(batching=each)).first for each in (STATIC, CONTINUOUS))
    assert static > 1.0 and continuous < static / 15
    assert simulated(Busy(batching=STATIC)).mean_batch < 0.3 * Busy().batch


def test_the_knees_are_where_the_answers_say():
    with_16 = [felt(Busy(rate=rate, batching=CONTINUOUS)).first for rate in RATES]
    assert with_16[RATES.index(24)] < 0.1 and with_16[RATES.index(48)] > 3 * with_16[3]
    assert with_16[RATES.index(32)] > 2 * with_16[RATES.index(24)]
    with_4 = [felt(Busy(rate=rate, batching=CONTINUOUS, batch=4)).first for rate in RATES[:2]]
    assert with_4[1] > 0.5


def test_24_requests_a_second_are_more_than_a_largest_batch_of_16_sustains():
    load = {"prompt": 1024, "answer": 64, "answer_spread": 1.0}
    at = [service("llama3-8b", "h100-pod", {**load, "rate": r}, batch=16) for r in (22.0, 24.0)]
    assert [predict_service(own).load.saturated for own in at] == [False, True]


def test_a_first_token_waits_for_the_prompt_and_answers_for_those_of_others():
    """Half of what 9 of 10 users wait for is the own prompt; TPOT is longer than a step of the mean batch."""
    trace, prompt = simulated(FULL), Prices(service("llama3-8b", "h100-pod", {"prompt": 1024}))
    assert 0.5 < prompt.prefill(1024).total / felt(FULL).first < 0.6
    assert felt(FULL).each > 1.3 * prompt.decode(round(trace.mean_batch), 1024 + 64).total


def test_chunks_shorten_pauses_and_not_a_lone_first_token():
    whole, pieces = (felt(Busy(batching=each)) for each in (CONTINUOUS, CHUNKED))
    assert pieces.pause < whole.pause / 3 and pieces.first > whole.first
    few, busy = (
        [felt(Busy(rate=rate, batching=each)).first for each in (CONTINUOUS, CHUNKED)]
        for rate in (8, 48)
    )
    assert few[1] > few[0] and busy[1] < busy[0]


def test_the_shape_that_is_cheapest_depends_on_latency_and_bytes():
    assert shape() == "2 × 4 GPUs" and shape(weights="fp8") == "4 × 2 GPUs"
    assert shape(0.010) == "1 × 8 GPUs" and shape(0.020) == "2 × 4 GPUs"
    assert shape(shown=JOULES) == shape()
    assert room_for(2) < 100 and 0.2 < network_share() < 0.5


def test_one_replica_is_cheaper_at_few_sequences_and_dearer_at_many():
    assert dearer(8) < 1 < dearer(1024)


def test_a_token_pays_for_its_part_of_the_prompt():
    """The formula of the module: g p (prefill / a + decode / B), decode for all but the first of a tokens."""
    point, own = chosen(Eight()), eight("llama3-70b", "bf16", Eight().ranks)
    answer, prices = own.requests.answer, Prices(own)
    prompts = prices.prompts(point.batch, own.requests.prompt).total
    a_token = prompts / point.batch / answer + point.tpot * (answer - 1) / answer / point.batch
    assert point.cost == pytest.approx(1e6 * Eight().price / 3600 * Eight().ranks * a_token)


def test_drafts_help_until_arithmetic_is_what_a_step_waits_for():
    gains = [gain(Drafted(batch=batch)) for batch in (1, 64, 128, 256)]
    assert gains == sorted(gains, reverse=True) and 2 < gains[0] < 2.2 and gains[2] > 1 > gains[3]
    verify = drafts.step(Drafted())[1]
    assert verify.total < 1.02 * drafts.plain(1).total and verify.bound == "weights"
    assert drafts.step(Drafted(batch=256))[1].bound == "arithmetic"
    formula = [improvement(0.7, 4, drafts.cost(Drafted(batch=batch))) for batch in (1, 256)]
    assert formula == pytest.approx([2.15, 2.15], abs=0.03)  # it knows no batch
    assert [drafts.best(Drafted(batch=batch)) for batch in (1, 64)] == [4, 3]
    assert gain(Drafted("Llama 3 8B", acceptance=0.8)) < gain(Drafted())


def test_few_misses_take_most_of_the_time_and_more_memory_or_shorter_rests_find_more():
    first, share = prefixes.means(Alike()), prefixes.stored(Alike()).hit
    hit, miss = first[prefixes.HIT].total, first[prefixes.FULL].total
    assert (1 - share) * miss > 0.6 * first[prefixes.MEAN].total and miss > 12 * hit
    assert prefixes.gain(Alike()) == pytest.approx(4.7, abs=0.05)
    shares = [prefixes.stored(Alike(prefixes=each)).hit for each in (16, 64, 256)]
    assert shares == pytest.approx([1.0, 0.86, 0.23], abs=0.005)
    fp8 = prefixes.stored(Alike(prefixes=256, memory="H100 with an fp8 cache"))
    assert fp8.requests > 2 * prefixes.stored(Alike(prefixes=256)).requests
    assert prefixes.stored(Alike(own=2048)).hit < share


def test_two_pools_meet_a_tight_limit_and_mixed_replicas_a_loose_one():
    mixed, apart = (pools.load(Two(), way) for way in (MIXED, APART))
    assert apart.tpot < 0.0146 and 1.15 < mixed.tpot / apart.tpot < 1.25
    assert apart.ttft == pytest.approx(mixed.ttft, rel=0.06)
    assert pools.best(Two())[0] == 6
    rates = [round(sustained(Two(pool=6), each)) for each in (APART, MIXED, MIXED_CHUNKS)]
    assert rates == [38, 10, 10]
    for limit, better in ((15, True), (50, False)):  # at 50 ms they sustain the same
        own = Two(prompt=8192, limit=limit)
        assert (pools.best(own)[1] > sustained(own, MIXED_CHUNKS)) is better


def test_a_slow_network_delays_tokens_and_not_the_first():
    slow, quick = (
        pools.load(Two(prompt=8192, rate=4, link=link), APART)
        for link in ("Ethernet, 25 Gb/s a GPU", "InfiniBand, 400 Gb/s a GPU")
    )
    assert slow.ttft == quick.ttft and 1.2 < slow.tpot / quick.tpot < 1.4


def test_small_networks_have_the_weights_of_their_names():
    sizes = [read_model(drafts.MODELS[name]).parameters for name in drafts.MODELS]
    assert sizes == [1_235_814_400, 3_212_749_824, 8_030_261_248]


def test_few_users_get_two_thirds_of_the_time_from_ranks_and_not_from_replicas():
    one, two = (
        Prices(service("llama3-8b", "h100-pod", {"prompt": 1000}, devices=g)) for g in (1, 2)
    )
    before = one.decode(8, 1000).total
    assert two.decode(8, 1000).total < 2 / 3 * before < 0.8 * before < one.decode(4, 1000).total
    full = one.decode(120, 4096).total
    assert one.decode(60, 4096).total < 2 / 3 * full  # where caches are read, both would do


def test_a_gpu_draws_two_thirds_waiting_for_memory_and_over_a_third_for_others():
    device = served(Phases())[0].machine.device
    memory, others = (float(drawn(device, 0.0, 0.0, *of)) for of in ((1.0, 0.0), (0.0, 1.0)))
    assert memory / device.busy_power == pytest.approx(2 / 3, abs=0.04)
    assert 1 / 3 < others / device.busy_power < 0.4


def test_the_notes_and_the_guide_have_the_errors_of_the_published_rows(repository):
    rows = [each for each in published() if each.scored]
    median = 100 * np.median([abs(each.error) for each in rows])
    notes = (repository / "instructor_notes" / "13_serving.md").read_text("utf-8")
    fast = sum(each.error > 0 for each in rows)
    assert (
        f"{len(rows)} scored published rows are predicted with a median error of {median:.0f}%, {fast} of"
        in notes
    )
    page = (repository / "modules" / "13_serving.ipynb").read_text("utf-8")
    every, apart = len(published()), len(published()) - len(rows)
    assert f"after seeing the {every} rows" in page
    assert apart == 13 and "set apart thirteen rows that are only illustrative" in page
    guide = (repository / "docs" / "guide" / "serve.md").read_text("utf-8")
    assert f"{len(rows)} are scored: the median error is {median:.0f}%" in guide
    assert lesson.numbers["int4_row"]() == pytest.approx(3.5, abs=0.05)


def test_published_rows_are_predicted_within_half_and_most_too_fast():
    rows = [row(name) for name in PUBLISHED]
    assert all(abs(each.error) < 0.5 for each in rows)
    assert sum(each.error > 0 for each in rows) > len(rows) / 2


def test_weights_of_70b_fit_one_h200_in_bf16_and_one_h100_in_int4():
    assert served(Phases("llama3-70b", weights="int4"))[1].shard.weights < 80e9
    assert token(network="llama3-70b", gpu="h200-pod") < 0.04  # in bf16 it fits there


def test_a_latent_vector_is_smaller_than_grouped_heads_and_each_rank_has_it():
    def token(name: str, devices: int) -> float:
        return Prices(service(name, "h200-pod", {}, devices=devices)).kv_cache_bytes(1)

    assert token("deepseek-v3", 8) == token("deepseek-v3", 1) == 576 * 61 * 2
    assert token("llama3-405b", 1) == 8 * token("llama3-405b", 8) == 516_096
    layers = [each for each in read_model("deepseek-v3").layers if "values" in each.attributes]
    own = layers[0].attributes
    numbers = own["heads"] * (own["size"] + own["values"])
    assert (len(layers), numbers) == (61, 128 * 320)
    assert 2 * len(layers) * numbers == pytest.approx(5.0e6, rel=1e-3)
    (kind,) = Prices(service("deepseek-v3", "h200-pod", {})).shard.attention
    assert kind.flop == 2 * 128 * 1088  # of a token with one in the cache


def test_windows_and_hybrids_are_as_the_notes_say():
    shares = []
    for tokens in (131072, 16384):
        setting = lengths.Setting(tokens=tokens)
        windows = 28 / 32 * lengths.bytes_of(setting, lengths.WINDOWED)
        shares.append(windows / lengths.bytes_of(setting, lengths.MIXED))
    assert shares == pytest.approx([0.18, 0.64], abs=0.005)
    full, hybrid = (
        lengths.time_of(lengths.Setting(), name) for name in (lengths.FULL, lengths.HYBRID)
    )
    assert full / hybrid == pytest.approx(3.5, abs=0.05)
    short = lengths.Setting(tokens=2048)
    assert [lengths.time_of(short, name) for name in lengths.NAMES] == pytest.approx(
        [0.0465] * 4, abs=5e-4
    )


def test_near_the_largest_rate_a_fifth_more_requests_wait_several_times_as_long():
    """80% and 96% of the largest rate, 600 requests: for 9 of 10 the first token takes about five times as long."""

    def last_and_first(rate: float) -> tuple[float, float]:
        load = {"prompt": 1024, "answer": 64, "answer_spread": 1.0, "count": 600, "seed": 1}
        own = service("llama3-8b", "h100-pod", {**load, "rate": rate}, batch=4)
        trace = simulate_service(own)
        return trace.requests[-1].end, float(np.percentile(trace.ttft, 90))

    largest = 600 / last_and_first(0.0)[0]
    (_, before), (_, after) = (last_and_first(share * largest) for share in (0.8, 0.96))
    assert 4 < after / before < 6


def test_sparse_attention_is_slower_for_short_contexts_and_faster_for_long_ones(repository):
    """Eight sequences fit with 131,072 tokens of each."""
    fp8 = {"precision": "fp8", "cache_precision": "fp8"}
    steps = {}
    for name in ("deepseek-v3", "deepseek-v3.2"):
        own = service(name, "h200-pod", {"prompt": 131_072, "answer": 1}, devices=8, **fp8)
        prices = Prices(own)
        assert room_of(own, prices) >= 8 * prices.kv_cache_bytes(131_072)
        steps[name] = [f"{1e3 * prices.decode(8, n).total:.1f}" for n in (1024, 131_072)]
    (few, many), (sparse_few, sparse_many) = steps.values()
    page = (repository / "modules" / "13_serving.ipynb").read_text("utf-8")
    assert f"takes {sparse_few} ms instead of {few} at 1,024 tokens" in page
    assert f"but {sparse_many} instead of {many} at 131,072" in page
