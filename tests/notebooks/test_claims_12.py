"""What module 12 and its notes say is what the library computes."""

import re

import pytest
from published_rows import shown_in

from lib_dlhpc import load
from lib_dlhpc.costs.groups import shard_network
from lib_dlhpc.errors import SpecError
from lib_dlhpc.explore.language_model import experts, layout, rollouts, sequences
from lib_dlhpc.explore.language_model.bubbles import (
    ALL,
    SCHEDULES,
    TWO,
    bubble,
    closed_forms,
    experiment,
    fullest,
)
from lib_dlhpc.explore.language_model.bubbles import Setting as Pipe
from lib_dlhpc.explore.language_model.charts import causes
from lib_dlhpc.explore.language_model.diagrams import copies_sent, four_bits
from lib_dlhpc.explore.language_model.experts import Setting as Mixture
from lib_dlhpc.explore.language_model.layout import Setting as Layout
from lib_dlhpc.explore.language_model.layout import predicted
from lib_dlhpc.explore.language_model.questions import (
    FAR,
    FULL,
    MIXED,
    alone,
    computed,
    dense_fp8,
    hops,
    lesson,
    logarithmic,
    longest,
    near,
    saved_fp8,
    sent,
    zb_part,
)
from lib_dlhpc.explore.language_model.rollouts import Setting as Learned
from lib_dlhpc.explore.language_model.sequences import Setting as Long
from lib_dlhpc.layout.groups import stride
from lib_dlhpc.prediction import predict
from lib_dlhpc.prediction.validation.published import row_of
from lib_dlhpc.prediction.validation.replays import replay
from lib_dlhpc.prediction.validation.validate import experiment_of, results, validate
from lib_dlhpc.schedules.choice import chosen
from lib_dlhpc.spec import catalog
from lib_dlhpc.spec.experiment import read_experiment

SHARDED = Layout(pipeline=8, zero=2)


def exposed(setting):
    """Return the share of a step that waits for keys and values."""
    return sequences.predicted(setting).exposed


def test_the_published_rates_are_predicted_within_5_percent():
    assert all(abs(row.error) < 0.05 for row in shown_in(lesson, "published_rates").values())


def said(repository, pattern):
    """Return the numbers that the module's text gives where it matches."""
    text = (repository / "modules" / "12_train_a_language_model.ipynb").read_text("utf-8")
    return [float(number) for number in re.search(pattern, text).groups()]


def test_deepseeks_step_is_what_its_replay_predicts(repository):
    replay = catalog.read("replays", "deepseek-v3-2048-h800")
    own = predict(read_experiment(replay["experiment"]))
    texts = said(repository, r"predicts ([\d.]+) s per step, 24% less than the ([\d.]+) s")
    assert round(100 * (1 - texts[0] / texts[1])) == 24
    assert texts == [round(float(own.step_time), 1), round(experts.published_step(), 1)]
    assert MIXED["replayed"]() == f"{texts[0]:g} s"


def test_fsdp_hides_from_8000_tokens_and_with_gradients_in_fp32_from_10700(repository):
    peak, link = 400e12, 50e9
    found = [width * peak / (6 * link) for width in (2 + 2 + 2, 2 + 2 + 4)]  # B a weight, FLOP
    assert [round(each, -2) for each in found] == [8_000, 10_700]
    text = (repository / "modules" / "12_train_a_language_model.ipynb").read_text("utf-8")
    assert f"hidden from {found[0]:,.0f} tokens on" in text and "from 10,700 tokens on." in text


def test_the_formula_of_mfu_gives_the_mfu_that_the_first_figure_shows(repository):
    """(6 N + 12 L h s) tokens/s over n F: N without the embedding table, attention without a mask."""
    own = predicted(Layout())
    run, of = own.experiment, own.experiment.model.options
    sequence, hidden = of["sequence"], of["hidden"]
    weights = 6 * (float(run.model.parameters) - of["vocabulary"] * hidden)
    attention = 12 * of["layers"] * hidden * sequence
    tokens = (
        float(own.throughput) * sequence / (layout.GPUS * float(run.machine.device.peak["bf16"]))
    )
    assert (weights + attention) * tokens == pytest.approx(float(own.utilization), rel=1e-3)
    shares = [round(100 * each * tokens) for each in (weights, weights + attention)]
    assert (
        said(repository, r"alone would give an MFU of (\d+)%; with attention it is the (\d+)%")
        == shares
    )


def test_one_gpu_would_take_three_thousand_years_and_hold_a_tenth():
    own = predicted(Layout())
    assert 3000 < float(own.device_hours) / 24 / 365 < 3500
    weights = 2 * float(own.experiment.model.parameters)
    assert 8 < weights / float(own.experiment.machine.device.memory) < 12


def test_llama_3s_layout_fits_in_the_published_band_and_fsdp_alone_is_twice_as_slow():
    own, alone = predicted(Layout()), predicted(layout.ALONE)
    assert own.fits and layout.BAND[0] < float(own.utilization) < layout.BAND[1]
    assert float(own.step_time) == pytest.approx(layout.published_step(), rel=0.02)
    assert alone.fits and 2 < float(alone.step_time) / float(own.step_time) < 2.3
    assert causes(alone)["gradients, weights"] > 0.6 * float(alone.step_time)


def test_latency_of_rings_makes_fsdp_alone_slow_and_a_pod_is_enough():
    own, layers = predicted(layout.ALONE), alone("strategy.zero_unit", "layer")
    blocks, matrices = own.messages["data"], layers.messages["data"]
    assert 0.5 < blocks.latency / blocks.total < 0.6
    times = [float(own.step_time), float(own.exposed["data"]), float(layers.step_time)]
    assert times == pytest.approx([14.8, 8.99, 37.2], abs=0.05)
    assert (float(blocks.total), float(matrices.total)) == pytest.approx((15, 37), abs=0.5)
    net = shard_network(own.experiment)
    block = 2 * float(own.experiment.model.parameters) / layout.LAYERS / 8
    gather = chosen("allgather", block, net)
    seconds = gather.priced(block, net)
    assert gather.name == "ring_allgather" and hops() == "20.5 ms"
    assert seconds.latency == pytest.approx(2047 * 10e-6) and seconds.latency > seconds.bandwidth
    bytes_alone, pod = (
        alone(*change) for change in (("machine.inter_node.latency", 0.0), ("strategy.shards", 128))
    )
    assert float(bytes_alone.step_time) < 7
    assert logarithmic() == "6.93 s" and int(own.experiment.strategy.nodes) == 2**11
    assert float(pod.step_time) == pytest.approx(6.99, abs=5e-3)
    doubled = float(alone("strategy.allreduce", "halving_doubling").step_time)
    assert doubled / times[0] == pytest.approx(2.9, abs=0.05)
    assert float(own.experiment.machine.oversubscription) == 7
    assert pod.fits and float(pod.memory_total) == pytest.approx(79.6e9, rel=1e-3)


def test_the_page_leaves_out_the_checkpoints_of_the_file(repository):
    assert predict(layout.base()).resilience.goodput < 1e-3
    own = predict(load("llama3-405b"))
    found = said(
        repository, r"llama3-405b` adds ([\d.]+) ms per step for them, and prints ([\d.]+) s\."
    )
    assert found == [round(1e3 * float(own.checkpoint), 1), round(float(own.step_time), 2)]
    assert float(own.step_time - own.checkpoint) == pytest.approx(
        float(predicted(Layout()).step_time), abs=5e-4
    )


def test_where_nvlink_joins_64_gpus_the_pipeline_may_shrink_and_context_may_grow():
    rack = {
        "machine.name": "gb200-nvl72",
        "machine.domain": 16,
        "machine.nodes": 4608,
        "strategy.nodes": 4096,
        "calibration.compute_scale": 1.0,
    }
    run = layout.base().set(rack)
    few = {"pipeline": 4, "batch": 4, "microbatches": 4, "chunks": 32}
    ring = {"context": 2, "pipeline": 8, "chunks": 16, "context_exchange": "ring"}
    whole = dict.fromkeys(("pipeline", "batch", "microbatches", "chunks"), 1)
    whole |= {"schedule": "1f1b", "zero": 3}
    layouts = [{}, few, ring, whole, whole | {"allreduce": "ring"}]
    found = [
        predict(run.set({f"strategy.{key}": value for key, value in each.items()}))
        for each in layouts
    ]
    times = [float(each.step_time) for each in found]
    assert times == pytest.approx([2.63, 2.53, 2.46, 2.25, 5.67], abs=5e-3)
    assert all(each.fits for each in found)
    assert float(found[1].memory_total) == pytest.approx(122e9, rel=5e-3)
    assert float(found[2].exposed["context"]) == pytest.approx(1.8e-3, abs=5e-5)
    with pytest.raises(SpecError, match="8 heads of keys and values"):
        predict(run.set({"strategy.tensor": 16}))


def test_tensor_collectives_send_the_most_bytes_and_gathered_blocks_are_larger():
    assert (sent("tensor"), sent("data")) == ("297 GB", "13 GB")
    block = 2 * float(layout.base().model.parameters) / layout.LAYERS / 8
    assert block > 2 * 8192 * 16_384


def test_eight_stages_halve_the_bubble_but_their_messages_cross_pods_and_they_fit_only_with_sharded_gradients():
    own, eight, sharded = (predicted(each) for each in (Layout(), Layout(pipeline=8), SHARDED))
    apart = [stride(each.experiment, "pipeline") / 8 for each in (own, eight)]  # nodes
    assert apart == [128, 256] and own.experiment.machine.nodes_per_switch == 384
    before, after = causes(own), causes(eight)
    assert after["pipeline bubble"] < 0.5 * before["pipeline bubble"]
    assert after["stage to stage"] > 1.8 * before["stage to stage"]
    assert after["gradients, weights"] > 1.9 * before["gradients, weights"]
    assert eight.step_time > own.step_time and not eight.fits and sharded.fits


def test_with_stages_side_by_side_eight_are_faster_and_fit_only_with_sharded_gradients(repository):
    own, eight, sharded = near(), near(pipeline=8), near(pipeline=8, zero=2)
    assert not eight.fits and sharded.fits
    assert eight.step_time < sharded.step_time < own.step_time < predicted(Layout()).step_time
    pod = own.experiment.machine.nodes_per_switch
    assert pod % 16 == pod % 8 == 0  # a replica has a node for each stage, so none spans pods
    assert pod > 7 * 16  # rings of replicas: a node of each stage sends out of a pod
    assert said(repository, "neighbors in rank order and stages far apart") == []  # here


def test_the_preset_is_scaled_by_the_published_rate_on_8192_gpus_as_the_published_row_is():
    (row,) = validate(["llama3"], [layout.PUBLISHED])
    assert float(predicted(Layout()).model_rate) / 1e12 == pytest.approx(row.predicted, rel=1e-4)


def test_context_ranks_halve_memory_of_activations_and_the_bubble():
    own, two = predicted(Layout()), predicted(Layout(context=2))
    assert two.memory["activations"] < 0.6 * own.memory["activations"]
    assert two.pipeline_bubble < 0.6 * own.pipeline_bubble and float(two.utilization) > float(
        own.utilization
    )


def test_the_closed_forms_of_the_second_chart_are_the_bubbles_of_the_first():
    """Idle time of equal stages in closed form; the first and the last stage are a layer shorter or have the words."""
    closed = closed_forms(Pipe())
    for schedule, name in ((SCHEDULES[0], "1F1B"), (SCHEDULES[-1], "ZB-H1")):
        own = float(predict(experiment(Pipe(schedule=schedule))).pipeline_bubble)
        assert closed[name].idle == pytest.approx(own, rel=0.1)
    assert 0.7 < closed["DualPipe"].idle / closed["ZB-H1"].idle < 1


def test_no_schedule_is_without_a_bubble():
    one, two, most, apart = (
        bubble(Pipe(schedule=s)) for s in (SCHEDULES[0], TWO, ALL, SCHEDULES[-1])
    )
    assert 0.05 < most < two < one and 0.25 < apart < 0.4
    assert zb_part() == "50%"
    full = fullest(Pipe(schedule=SCHEDULES[-1], recompute="full"))[1]
    assert full > 0.9 * fullest(Pipe(schedule=SCHEDULES[-1]))[1]


def test_a_ring_is_hidden_once_a_rank_has_some_thousand_tokens():
    assert exposed(FAR) > 0.5
    assert (
        exposed(FAR._replace(sequence=2**16)) > 0.2 > 0.02 > exposed(FAR._replace(sequence=2**17))
    )
    assert exposed(Long(exchange="heads")) > 5 * exposed(Long())


def test_half_of_a_step_is_the_experts_all_to_all_and_the_arithmetic_is_about_the_published_step():
    own = experts.predicted(Mixture())
    assert 0.4 < experts.share(Mixture()) < 0.6
    # The page calls it a coincidence.
    assert computed() == pytest.approx(experts.published_step(), rel=0.01)
    assert float(own.step_time) > 2 * experts.published_step()
    assert experts.predicted(Mixture(experts=8, pipeline=32)).fits
    assert saved_fp8() == "10%"


def test_nvfp4_is_half_as_fast_again_as_mxfp8_in_the_same_layout(repository):
    text = (repository / "modules" / "12_train_a_language_model.ipynb").read_text("utf-8")
    limits = (repository / "docs" / "limits.md").read_text("utf-8")
    wide, narrow = (
        results()[f"bridge-llama3-405b-gb200-{each}-256"] for each in ("mxfp8", "nvfp4")
    )
    assert wide["notes"] == narrow["notes"] and "NeMo 26.04.01" in wide["notes"]
    rates = [int(row["value"]) for row in (wide, narrow)]
    assert f"{rates[0]:,} tokens/s per GPU in MXFP8 and {rates[1]:,} in NVFP4" in text
    assert all(f"{rates[1] / rates[0]:.2f} times as" in each for each in (text, limits))
    assert 4 + 8 / 16 == 4.5  # bits: a value, and its part of a scale in e4m3


def test_what_nvfp4_is_predicted_to_gain_is_that_of_the_limits(repository):
    text = (repository / "modules" / "12_train_a_language_model.ipynb").read_text("utf-8")
    notes = (repository / "instructor_notes" / "12_train_a_language_model.md").read_text("utf-8")
    limits = (repository / "docs" / "limits.md").read_text("utf-8")
    run = experiment_of(*row_of("bridge-llama3-405b-gb200-mxfp8-256"))
    own = predict(run).step_time
    whole, some = (
        float(own / predict(run.set({"strategy.precision": each})).step_time)
        for each in ("nvfp4-all", "nvfp4")
    )
    steps = four_bits()
    alone = steps["MXFP8, published"]["step"] / steps["NVFP4, predicted"]["matmuls twice as fast"]
    assert f"predicts {whole:.2f} times for this run" in text
    assert f"would alone give {alone:.2f} times" in text
    assert f"{some:.2f} times is predicted, because the stages" in text
    assert f'is {whole:.2f} times with `"nvfp4-all"`' in limits and f"{some:.2f} times" in limits
    for each in (whole, alone, some):
        assert f"{each:.2f}" in notes


def test_fp8_saves_a_third_of_llama_3s_step_with_the_same_ratio_to_the_roofline(repository):
    own, narrow = predicted(Layout()), dense_fp8()
    scale = own.experiment.calibration.compute_scale
    assert narrow.experiment.calibration.compute_scale == scale > 1.2
    plain = own.experiment.set({"calibration.compute_scale": 0.0})
    rooflines = [predict(plain.set({"strategy.precision": each})) for each in ("bf16", "fp8")]
    gains = [float(a.step_time / b.step_time) for a, b in ((own, narrow), rooflines)]
    assert gains[0] == pytest.approx(gains[1], rel=0.03)  # messages are no part of the ratio
    assert float(narrow.step_time) == pytest.approx(4.73, abs=5e-3)
    assert float(own.step_time) == pytest.approx(6.84, abs=5e-3)
    assert 1 - 1 / gains[0] == pytest.approx(0.31, abs=5e-3)
    sizes = [float(each.memory_total) for each in (own, narrow)]
    assert sizes == pytest.approx([83.8e9, 74.7e9], rel=1e-3)
    texts = said(repository, r"take ([\d.]+) s per step instead of ([\d.]+) s, and hold ([\d.]+)")
    assert texts == pytest.approx([4.73, 6.84, 74.7])


def test_recomputation_repeats_the_all_to_all_and_zero_1_lets_experts_fit_in_a_node():
    own, kept = (experts.predicted(Mixture(recompute=each)) for each in ("full", "none"))
    assert float(own.exposed["experts"] / kept.exposed["experts"]) == pytest.approx(1.5, rel=5e-3)
    parts = causes(own)
    assert (parts["recomputation"], parts["experts' all-to-all"]) == pytest.approx(
        (4.4, 25.2), abs=0.05
    )
    node = Mixture(experts=8)
    assert experts.replicas(node) == 16 and not experts.predicted(node).fits
    device = experts.predicted(node).experiment.machine.device
    sharded = experts.with_zero1(node)
    assert sharded.fits and float(sharded.memory_total) < 0.6 * float(device.memory)
    assert float(sharded.memory_total) == pytest.approx(41.946e9, rel=1e-3)
    assert float(sharded.step_time) == pytest.approx(32.1, abs=0.05)


def test_experts_wide_enough_to_hide_their_exchange_would_be_wider_than_deepseeks():
    table = catalog.read("models", "deepseek-v3")
    hidden, width = table["hidden"], table["experts"]["features"]
    flop, size = 18 * hidden * width, 8 * hidden  # of a token and an expert that it meets
    wide = width * (size / 50e9) / (flop / 400e12)
    assert (width, round(wide, -2)) == (2048, 3600)


def test_interruptions_are_those_published_and_planned_ones_are_not_failures(repository):
    every, planned, unexpected = said(
        repository, r"(\d+) times in 54 days: (\d+) interruptions were planned and (\d+) unexp"
    )
    rows = results()
    assert every == float(rows["llama3-interruptions"]["value"])
    assert unexpected == float(rows["llama3-unexpected"]["value"]) == every - planned


def test_the_longest_answer_is_what_an_iteration_waits_for():
    own, even = rollouts.together(Learned()), rollouts.even(Learned())
    alone = rollouts.prices().answers(1, rollouts.PROMPT, longest()).total
    assert alone > 0.9 * own.generation.seconds and own.generation.seconds > 3 * even.seconds
    assert own.generation.seconds > 0.7 * own.seconds and own.generation.busy < 1 / 3
    few, many = (rollouts.apart(Learned(pool=each)).generation.seconds for each in (4, 12))
    assert few < 1.4 * many  # three times the GPUs
    parts = [rollouts.together(Learned(samples=each)).generation.busy for each in (8, 32)]
    assert parts == pytest.approx([0.30, 0.29], abs=0.01)


def test_the_best_pools_take_nearly_as_long_and_a_wrong_split_is_slower_than_in_turn():
    pool, seconds = rollouts.best(Learned())
    both = rollouts.behind(Learned(pool=pool))
    assert pool == 12 and both.training > 0.6 * both.generation.seconds
    assert seconds < 0.85 * rollouts.together(Learned()).seconds
    half = rollouts.behind(FULL)
    assert half.seconds > rollouts.together(FULL).seconds > rollouts.best(FULL)[1]


def test_the_formula_is_too_fast_for_the_published_iteration_one_step_behind():
    assert rollouts.published() == rollouts.VERL["pool"] == 458
    assert 0.85 < rollouts.published() / rollouts.VERL["behind"] < 0.9


def test_the_notes_count_the_copies_of_a_token_and_the_time_of_a_second_one(repository):
    text = (repository / "instructor_notes" / "12_train_a_language_model.md").read_text("utf-8")
    said = " ".join(text.split())
    copies = [f"{each:.2g}" for each in copies_sent().values()]
    assert f"that is {copies[0]}, {copies[1]} and {copies[2]} copies" in said
    assert f"(Hardly any: {copies[1]} of {copies[0]} copies" in said
    run = replay("deepseek-v3-2048-h800").experiment
    longer = float(predict(run.set({"model.mtp": 1})).step_time / predict(run).step_time)
    assert f"{longer - 1:.0%} longer" in said
