"""The lesson on serving: every control moves something, numbers are the engines', a run reports its outcome."""

from typing import Any

import numpy as np
import pytest
from experiment_page import Now, button, result_text

from lib_dlhpc.errors import SpecError
from lib_dlhpc.explore.serving import (
    drawings,
    here,
    lengths,
    load,
    memory,
    phases,
    pools,
    prefixes,
    replicas,
)
from lib_dlhpc.explore.serving.here import Setting as Here
from lib_dlhpc.explore.serving.here import Times
from lib_dlhpc.explore.serving.load import (
    BATCHINGS,
    CHUNKED,
    CONTINUOUS,
    EACH,
    FIRST,
    PAUSE,
    STATIC,
    felt,
    simulated,
)
from lib_dlhpc.explore.serving.load import Setting as Busy
from lib_dlhpc.explore.serving.memory import MEMORY, Fit, fit, heads_of, kinds
from lib_dlhpc.explore.serving.memory import Setting as Room
from lib_dlhpc.explore.serving.phases import Setting as Phases
from lib_dlhpc.explore.serving.pools import APART, MIXED
from lib_dlhpc.explore.serving.pools import CHUNKED as MIXED_CHUNKS
from lib_dlhpc.explore.serving.pools import Setting as Two
from lib_dlhpc.explore.serving.prefixes import Setting as Alike
from lib_dlhpc.explore.serving.questions import lesson, own_cache
from lib_dlhpc.explore.serving.replicas import SHAPES, cheapest, chosen, paths
from lib_dlhpc.explore.serving.replicas import Setting as Eight
from lib_dlhpc.explore.serving.served import COLORS, TERMS
from lib_dlhpc.serving import simulate_service
from lib_dlhpc.serving.price import StepTime

FOUND = {
    1: Times((0.01, 0.012), (0.002, 0.0021), (0.04, 0.05)),
    8: Times((0.01, 0.011), (0.008, 0.007), (0.14, 0.13)),
}


def test_every_way_and_term_has_a_look():
    assert set(drawings.WAYS) == set(BATCHINGS) and set(drawings.REPLICAS) == set(SHAPES.values())
    assert set(TERMS) == set(StepTime().terms) and len(COLORS) == len(TERMS)


# lengths --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shown", [lengths.PROMPT, lengths.TOKEN])
def test_windows_and_states_never_take_longer_than_full_attention_on_long_sequences(shown):
    for tokens in lengths.LENGTHS[4:]:
        setting = lengths.Setting(shown, tokens)
        full = lengths.time_of(setting, lengths.FULL)
        for name in lengths.NAMES[1:]:
            assert lengths.time_of(setting, name) < full


def test_in_the_end_full_attention_grows_with_the_square_and_windows_in_proportion():
    def growth(name: str) -> float:
        now, half = (lengths.time_of(lengths.Setting(tokens=n), name) for n in (2**20, 2**19))
        return now / half

    assert 3.8 < growth(lengths.FULL) < 4
    assert growth(lengths.WINDOWED) == pytest.approx(2, abs=0.01)
    for name in (lengths.MIXED, lengths.HYBRID):
        assert growth(lengths.WINDOWED) < growth(name) < growth(lengths.FULL)


def test_what_a_sequence_leaves_is_counted_by_hand():
    setting = lengths.Setting(tokens=2**17, window=1024, every=8)
    token = 2 * 8 * 128 * 2  # B of a layer
    full = 32 * token * 2**17
    assert lengths.bytes_of(setting, lengths.FULL) == full
    assert lengths.bytes_of(setting, lengths.WINDOWED) == 32 * token * 1024
    assert lengths.bytes_of(setting, lengths.MIXED) == full / 8 + 28 * token * 1024
    states = lengths.bytes_of(setting, lengths.HYBRID) - full / 8
    longer = setting._replace(tokens=2**18)
    assert lengths.bytes_of(longer, lengths.HYBRID) - full / 4 == states > 0


def test_networks_have_about_as_many_weights():
    weights = [lengths.of(lengths.Setting(), name)[0].shard.weights for name in lengths.NAMES]
    assert weights[:3] == [weights[0]] * 3
    assert weights[3] == pytest.approx(weights[0], rel=0.07)


def test_the_wall_names_what_does_not_fit():
    assert lengths.wall(lengths.Setting()) == ""
    over = lengths.wall(lengths.Setting(tokens=2**20))
    assert over.startswith("Memory: full attention does not fit; ") and "262,144 tokens fit" in over
    longest = lengths.longest(lengths.FULL, lengths.Setting())
    assert lengths.wall(lengths.Setting(tokens=longest)) == ""
    assert lengths.wall(lengths.Setting(tokens=2 * longest))


# phases ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("weights", ["bf16", "fp8"])
def test_no_point_is_above_the_roof(weights):
    setting = Phases(weights=weights)
    own, _ = phases.served(setting)
    peak = own.machine.device.peak[weights]
    slope = float(own.machine.device.memory_bandwidth)
    for path in phases.points(setting).values():
        for _, point in path:
            assert point.rate <= 1.01 * min(peak, slope * point.intensity)


def test_the_terms_of_a_bar_are_the_time_of_its_phase():
    bars, totals = (phases.answer_state(Phases())[0][name] for name in ("parts", "sums"))
    for order, step in enumerate(phases.parts(Phases())):
        length = sum(
            stop - start
            for start, stop, at in zip(bars["start"], bars["stop"], bars["order"], strict=True)
            if at == order
        )
        assert length == pytest.approx(step.total) == pytest.approx(totals["stop"][order])


def test_a_network_or_a_batch_that_does_not_fit_says_so():
    with pytest.raises(SpecError, match="the weights of llama3-70b"):
        phases.two_phases.view(Phases("llama3-70b"))
    assert phases.two_phases.view(Phases(batch=256)).wall.startswith("Memory: the cache of")
    assert "waits for the weights" in phases.two_phases.view(Phases()).wall
    assert "waits for the cache" in phases.two_phases.view(Phases(batch=128)).wall


# memory ---------------------------------------------------------------------------------------------


def used(own: Fit) -> float:
    return sum(own.memory.values())


@pytest.mark.parametrize("setting", [Room(), Room("llama2-13b"), Room("llama3-70b", 4)])
def test_one_sequence_more_would_not_fit(setting):
    own = fit(setting, heads_of(setting))
    capacity = 81559 * 2**20  # of an H100
    assert used(own) <= capacity < used(own) + own.sequence
    assert set(own.memory) == set(MEMORY)


def test_fewer_heads_fewer_bytes_or_shorter_sequences_let_more_in():
    heads = [fit(Room(), each).fitting for each in kinds(Room()).values()]
    assert heads == sorted(heads)
    for more in (Room(cache="fp8"), Room(weights="int4"), Room(tokens=2048), Room(gpus=2)):
        assert fit(more, 8).fitting > fit(Room(), 8).fitting


def test_few_sequences_are_a_wall_and_none_is_refused():
    assert memory.sequences_fit.view(Room(tokens=131072)).wall.startswith("Memory: 3 sequences")
    with pytest.raises(SpecError, match="Not one sequence"):
        memory.sequences_fit.view(Room("llama3-70b", 2, tokens=131072))


# load -----------------------------------------------------------------------------------------------


def test_all_ways_of_batching_answer_the_same_requests():
    answers = {
        tuple(
            (each.arrival, each.prompt, each.answer)
            for each in simulated(Busy(batching=name)).requests
        )
        for name in BATCHINGS
    }
    assert len(answers) == 1


@pytest.mark.parametrize("rate", load.RATES)
def test_a_first_token_comes_sooner_with_continuous_batching(rate):
    waits = {name: felt(Busy(rate=rate, batching=name)).first for name in (STATIC, CONTINUOUS)}
    assert waits[CONTINUOUS] < waits[STATIC]


def test_a_pause_is_a_step_of_prompts_or_a_step_of_chunks():
    whole, pieces = (felt(Busy(batching=name)).pause for name in (CONTINUOUS, CHUNKED))
    steps = simulated(Busy(batching=CHUNKED)).steps
    assert max(step.prompt_tokens for step in steps) <= load.CHUNK
    assert pieces <= max(step.end - step.start for step in steps) + 1e-9 < whole


def test_the_batch_never_exceeds_its_limit_and_the_chart_ends_with_the_last_answer():
    columns, _ = load.batch_state(Busy())
    assert max(columns["running"]["y"]) <= Busy().batch
    assert columns["running"]["x"][-1] == pytest.approx(simulated(Busy()).end)
    assert columns["running"]["y"][-1] == columns["queued"]["y"][-1] == 0


def test_what_is_shown_is_the_latency_that_was_asked_for():
    own = felt(Busy())
    assert (own.of(FIRST), own.of(EACH), own.of(PAUSE)) == tuple(own)
    assert load.busy_service.view(Busy()).wall.startswith("Queue:")
    assert not load.busy_service.view(Busy(batching=CONTINUOUS)).wall


# replicas -------------------------------------------------------------------------------------------


def test_the_price_is_in_proportion_and_joules_do_not_know_it():
    one, two = (chosen(Eight(price=price)) for price in (4.0, 8.0))
    assert two.cost == pytest.approx(2 * one.cost) and two.joules == one.joules
    assert one.cost == pytest.approx(1e6 / one.tokens_per_second * 8 * 4.0 / 3600)


def test_the_cheapest_within_a_latency_is_on_a_path_and_no_other_is_cheaper():
    ranks, point = cheapest(Eight(), 0.02)
    assert point in paths(Eight())[ranks] and point.tpot <= 0.02
    others = [p.cost for points in paths(Eight()).values() for p in points if p.tpot <= 0.02]
    assert point.cost == min(others)


def test_a_batch_that_does_not_fit_waits_in_the_queue():
    assert "wait in the queue" in replicas.one_or_eight.view(Eight(ranks=2, batch=1024)).wall
    assert not replicas.one_or_eight.view(Eight()).wall
    with pytest.raises(SpecError, match="the weights"):
        replicas.one_or_eight.view(Eight(ranks=1))


# prefixes -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("setting", [Alike(), Alike(prefixes=256), Alike(memory="H200")])
def test_the_point_is_simulated_and_near_its_line(setting):
    data, _ = prefixes.hits_state(setting)
    assert abs(data["now"]["y"][0] - prefixes.stored(setting).hit) < 0.1


def test_the_mean_first_token_lies_between_a_hit_and_a_miss():
    first = {name: step.total for name, step in prefixes.means(Alike()).items()}
    assert first[prefixes.HIT] < first[prefixes.MEAN] < first[prefixes.FULL]
    assert prefixes.gain(Alike()) == pytest.approx(first[prefixes.FULL] / first[prefixes.MEAN])
    assert not prefixes.begin_alike.view(Alike()).wall
    assert "are evicted" in prefixes.begin_alike.view(Alike(prefixes=256)).wall


# pools ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("way", [MIXED, MIXED_CHUNKS, APART])
def test_the_parts_of_an_answer_are_its_latencies(way):
    own, parts = pools.load(Two(), way), pools.parts(Two(), way)
    assert sum(parts.values()) == pytest.approx(own.ttft + 63 * own.tpot, rel=0.01)
    assert (parts[pools.SENT] > 0) == (way == APART)
    assert (parts[pools.OTHERS] > 0) == (way != APART)


def test_each_way_has_a_line_and_a_symbol_of_its_own():
    data, _ = pools.pools_state(Two())
    assert set(data["lines"]["line"]) == set(data["now"]["line"]) == set(drawings.POOLS)


def test_more_than_a_sustained_rate_is_beyond_a_limit():
    for way in (MIXED, MIXED_CHUNKS, APART):
        rate = pools.sustained(Two(), way)
        after = pools.load(Two(), way, next(each for each in pools.LINE if each > rate))
        assert 1e3 * pools.load(Two(), way, rate).tpot <= Two().limit
        assert after.saturated or 1e3 * after.tpot > Two().limit or after.ttft > pools.PATIENCE
    pool, most = pools.best(Two())
    assert most == pools.sustained(Two(pool=pool), APART) >= pools.sustained(Two(), APART)


@pytest.mark.parametrize("way", [MIXED, MIXED_CHUNKS, APART])
def test_what_is_called_simulated_is_the_mean_of_the_simulated_requests(way):
    setting = Two(rate=8, pool=5, link=tuple(pools.LINKS)[1], limit=20, shown=pools.FIRST)
    trace = simulate_service(pools.served(setting, way, 8.0))
    means = float(trace.ttft.mean()), float(trace.tpot.mean())
    assert pools.simulated(setting, way) == means
    data, _ = pools.pools_state(setting)
    assert dict(zip(data["now"]["line"], data["now"]["y"], strict=True))[way] == means[0]


def test_a_pool_a_path_or_a_limit_is_named():
    assert not pools.two_pools.view(Two()).wall
    assert "replicas that read prompts would" in pools.two_pools.view(Two(pool=2)).wall
    slow = Two(prompt=8192, rate=8, pool=6, link=tuple(pools.LINKS)[2])
    assert "network between" in pools.two_pools.view(slow._replace(rate=16)).wall
    assert "the limit is 15 ms" in pools.two_pools.view(slow._replace(rate=4)).wall


# here -----------------------------------------------------------------------------------------------


def test_both_cases_are_reported_with_their_predictions():
    said, html = here.words_of(Here(), FOUND), here.result_html(Here(), FOUND)
    assert "gets 2.4 times the tokens/s" in said and "prediction is 2 times" in said
    assert html.count("<tr>") == 7 and "Why they differ" in html


def test_a_decoder_is_calibrated_and_run():
    page = here.decode_here(lambda own: own, thread=Now)
    for name, value in {"width": 128, "batch": 2, "prompt": 8, "answer": 8}.items():
        page.controls[name].value = value
    button(page, "Decode").click()
    assert "A batch of 2 gets" in result_text(page) and "Why they differ" in result_text(page)


def test_an_error_of_a_run_takes_its_place():
    def fails(_: Any) -> Any:
        raise SpecError("No decoder here.")

    page = here.decode_here(fails, thread=Now)
    button(page, "Decode").click()
    assert "No decoder here." in result_text(page) and not button(page, "Decode").disabled


# questions ------------------------------------------------------------------------------------------


def test_the_check_is_room_over_the_bytes_of_a_sequence_rounded_down():
    draw = np.random.default_rng(7)
    for _ in range(2000):
        own, answer, _ = own_cache(draw)
        token = 2 * own["layers"] * own["heads"] * own["size"] * 2
        assert answer == own["room"] * 1e9 // (token * own["tokens"])


@pytest.mark.parametrize("seed", range(5))
def test_a_mistake_of_the_check_gets_its_sentence(seed):
    asked = lesson.ask("own_cache", seed=seed).question
    asked.answer("1000000")
    assert "keys and values" in asked.answer("2000000")["words"]
