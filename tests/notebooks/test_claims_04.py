"""What module 04 and its notes say is what the library computes."""

import math

import pytest

from lib_dlhpc.explore.model_parallel.cuts import NETWORKS, WAYS, Cut, cut_wall, seconds, stages
from lib_dlhpc.explore.model_parallel.cuts import unevenness as uneven
from lib_dlhpc.explore.model_parallel.live import QUICKEST, quickest
from lib_dlhpc.explore.model_parallel.live import Setting as Live
from lib_dlhpc.explore.model_parallel.pipeline import (
    Pipe,
    bubble_of,
    formula,
    kept,
    pipeline_wall,
    pipeline_words,
    predicted,
    simulated_bubble,
    simulated_step,
    speed_up,
)
from lib_dlhpc.explore.model_parallel.products import (
    Products,
    bytes_sent,
    exchanges,
    gain,
    products,
    products_wall,
)
from lib_dlhpc.explore.model_parallel.products import predicted as split
from lib_dlhpc.explore.model_parallel.products import seconds as lasts
from lib_dlhpc.explore.model_parallel.published import nodes_gain
from lib_dlhpc.prediction.validation.validate import results, validate
from lib_dlhpc.spec import catalog
from lib_dlhpc.timeline import breakdown

HERE = Products()


def share_of_messages(setting: Products) -> float:
    return float(split(setting).exposed_communication) / lasts(setting)


def test_the_published_figures_are_those_of_the_text():
    assert float(results()["gpipe19-tpu-tr-k8-m32"]["value"]) == 6.3
    assert float(results()["hypar20-512"]["value"]) == 481


def test_many_microbatches_meet_gpipe_and_few_are_predicted_too_low():
    error = {row.id: row.error for row in validate(["gpipe"])}
    assert abs(error["gpipe19-tpu-tr-k8-m32"]) < 0.1
    assert error["gpipe19-tpu-tr-k8-m4"] < -0.2 and error["gpipe19-tpu-tr-k8-m1"] < -0.1


def test_hypar_flow_with_two_stages_a_node_is_met_within_3_percent():
    assert nodes_gain(512) == pytest.approx(481, rel=0.03)


# through the layers ---------------------------------------------------------------------------------


def test_a_second_node_makes_the_products_slower_and_eight_cards_only_just_pay():
    assert gain(8, 16) < 0.6
    assert "bandwidth-starved" in products_wall(HERE)
    cards = HERE._replace(nic=1.6e12)
    assert 1 < lasts(HERE._replace(gpus=8)) / lasts(cards) < 1.2


def test_width_makes_messages_matter_less_and_rows_do_not():
    here = HERE._replace(gpus=8)
    assert share_of_messages(here._replace(width=16384)) < 0.4 * share_of_messages(here)
    assert share_of_messages(here._replace(tokens=8192)) > 0.85 * share_of_messages(here)


def test_even_in_one_node_it_ends():
    def gain_of_doubling(gpus: int, width: int) -> float:
        last, more = (HERE._replace(gpus=n, node=64, width=width) for n in (gpus // 2, gpus))
        return lasts(last) / lasts(more)

    assert gain_of_doubling(64, HERE.width) == pytest.approx(1.1, abs=0.05)
    assert gain_of_doubling(16, 1024) > 1 > gain_of_doubling(32, 1024)


def test_column_then_row_needs_two_sums_and_sends_least():
    assert exchanges(HERE) == 2
    sent = {name: bytes_sent(HERE._replace(split=name)) for name in ("paired", "column", "row")}
    assert sent["paired"] < 0.4 * sent["column"] < sent["row"]


@pytest.mark.parametrize("gpus", [2, 8, 64])
def test_the_formula_of_the_text_is_that_of_the_library(gpus):
    setting = HERE._replace(gpus=gpus, node=64)
    step, link = split(setting), products(setting).machine.intra_node
    n, rate = 2 * setting.tokens * setting.width, link.bandwidth * link.efficiency
    cost = step.communication
    assert cost.latency == pytest.approx(4 * math.log2(gpus) * link.latency)
    assert cost.bandwidth == pytest.approx(4 * (gpus - 1) / gpus * n / rate)
    device = products(setting).machine.device
    expected = (
        48 * setting.tokens * setting.width**2 / gpus / (device.peak["bf16"] * device.efficiency)
    )
    # Launches and what is whole.
    assert expected < float(step.forward + step.backward) < expected + 0.3e-3


# between the layers ---------------------------------------------------------------------------------


def test_the_question_is_about_the_pipeline_that_the_page_opens_with():
    opens = Pipe()
    assert (opens.ranks, opens.microbatches, opens.batch, opens.recompute) == (4, 8, 16, "none")
    assert speed_up(opens) == pytest.approx(2.8, abs=0.05)


def test_gpipe_as_published_makes_activations_again_and_so_does_its_prediction():
    for row in catalog.read("published", "gpipe")["rows"]:
        if row["id"].startswith("gpipe19-tpu"):
            assert "strategy.recompute" not in row["set"]
    assert catalog.read("published", "gpipe")["experiment"]["strategy"]["recompute"] == "full"


@pytest.mark.parametrize("ranks", [2, 4])
def test_which_split_is_the_quickest_here_depends_on_the_microbatches(ranks):
    found = [quickest(Live(ranks=ranks, microbatches=m)) for m in (4, 8)]
    assert found == ["every layer (tensor)", "the sequence of layers (pipeline)"]
    assert set(found) < set(QUICKEST)


def test_inside_a_node_a_split_is_several_times_as_fast():
    assert 4 < gain(1, 8) < 8


def test_8_stages_and_8_microbatches_are_about_4_times_as_fast_and_56_would_be_7():
    assert speed_up(Pipe(8)) == pytest.approx(4.1, abs=0.15)
    full = [8 / (1 + formula(Pipe(8, microbatches))) for microbatches in (8, 56)]
    assert full == pytest.approx([4.3, 7.1], abs=0.05)


def test_more_microbatches_shrink_the_bubble_and_leave_gpipes_memory():
    few, many = Pipe(batch=32, microbatches=8), Pipe(batch=32, microbatches=32)
    assert bubble_of(many) < 0.3 * bubble_of(few)
    assert predicted(many).memory_total == pytest.approx(
        float(predicted(few).memory_total), rel=0.02
    )
    assert "Memory" in pipeline_wall(few) and "Memory" in pipeline_wall(many)


def test_1f1b_fits_the_batch_that_gpipe_does_not_with_16_microbatches_and_no_bubble_wall():
    setting = Pipe(batch=32, schedule="1F1B", microbatches=16)
    assert pipeline_wall(setting) == ""
    assert predicted(setting).memory_total < 0.4 * predicted(Pipe(batch=32)).memory_total
    assert kept(setting) == [4, 3, 2, 1]
    assert bubble_of(setting) == pytest.approx(simulated_bubble(setting), rel=1e-9)
    assert bubble_of(setting) == pytest.approx(
        bubble_of(setting._replace(schedule="GPipe")), rel=5e-3
    )
    assert kept(Pipe(microbatches=2, schedule="1F1B"))[0] == 2  # no help with fewer than p


def test_making_activations_again_costs_a_third_and_saves_most_of_the_memory():
    once, again = predicted(Pipe()), predicted(Pipe(recompute="full"))
    assert again.step_time / once.step_time == pytest.approx(4 / 3, abs=0.03)
    assert again.memory_total < 0.3 * once.memory_total


def test_chunks_shrink_the_bubble_and_keep_more():
    plain, chunks = Pipe(schedule="1F1B"), Pipe(schedule="interleaved, 2 chunks")
    assert bubble_of(chunks) == pytest.approx(bubble_of(plain) / 2, rel=0.02)
    assert predicted(chunks).memory_total > predicted(plain).memory_total


def test_48_layers_are_no_32_equal_stages():
    setting = Pipe(16, 16, "interleaved, 2 chunks", batch=64)
    terms = breakdown(simulated_step(setting)).terms
    simulated = terms["pipeline bubble"] / (terms["forward"] + terms["backward"])
    assert simulated > 1.1 * formula(setting)
    assert "48 layers cannot form 32 equal stages" in pipeline_words(setting)


# where to cut ---------------------------------------------------------------------------------------


def test_resnet_50_in_equally_many_layers_is_uneven_but_the_even_cut_sends_more_and_is_slower():
    layers, time = Cut(way="equal numbers of layers"), Cut(way="equal time")
    assert uneven(layers) == pytest.approx(39, abs=4)
    assert uneven(time) == min(uneven(Cut(way=way)) for way in WAYS) < 10
    assert stages(time).sends[0] == 2 * stages(layers).sends[0]
    assert seconds(time)[0] > seconds(layers)[0]


def test_over_a_link_twice_as_fast_the_even_cut_wins():
    layers, time = (Cut(way=way, link=400e9) for way in ("equal numbers of layers", "equal time"))
    assert max(seconds(time)) < min(seconds(layers))


def test_equal_work_forgets_launches_of_many_small_layers():
    work, time = (Cut("ResNet-1001", way=way) for way in ("equal work", "equal time"))
    assert uneven(work) > 25 > 2 > uneven(time)


def test_all_cuts_of_gpt_2_send_the_same_and_equal_weights_are_uneven():
    for way in WAYS:
        assert len(set(stages(Cut("GPT-2, 1.5 billion", way=way)).sends)) == 1
    weights, layers = (
        Cut("GPT-2, 1.5 billion", way=w) for w in ("equal weights", "equal numbers of layers")
    )
    assert uneven(weights) > 1.5 * uneven(layers)
    assert set(NETWORKS) >= {"ResNet-50", "ResNet-1001", "GPT-2, 1.5 billion"}


def test_a_slow_link_makes_the_message_the_bottleneck():
    assert cut_wall(Cut(link=10e9)).startswith("The message")
    assert cut_wall(Cut()).startswith("Stage 0 is the slowest")
