"""The lesson on input: every control moves something, walls stand where they say, figures are the library's."""

import json

import numpy as np
import pytest
from experiment_page import controls, result_text

from lib_dlhpc.explore.io_bottleneck import batch, cache, nodes, writes
from lib_dlhpc.explore.io_bottleneck.charts import LINES, WORDS, limits_state, spread_labels
from lib_dlhpc.explore.io_bottleneck.limits import (
    IMAGENET,
    SIZES,
    Setting,
    bandwidth,
    demand,
    demand_table,
    experiment,
    found,
    hours_words,
    profile_table,
    the_hours,
)
from lib_dlhpc.explore.io_bottleneck.questions import ask
from lib_dlhpc.prediction import predict
from lib_dlhpc.prediction.storage.caching import best, least_recently_used
from lib_dlhpc.prediction.validation.validate import results

V100, IMAGES = "four V100 (what if)", "neural images, 455 GB"


def test_lines_of_a_chart_differ_in_dash_and_symbol():
    ways = ("never waiting", "FanStore", "shared file system")
    for names in (ways, ("cached fraction", "hit rate"), ("read", "sent")):
        assert len({json.dumps(LINES[name][1]) for name in names}) == len(names)
        assert len({LINES[name][2] for name in names}) == len(names)


def test_labels_of_lines_that_end_together_are_apart():
    assert spread_labels([0.9, 0.91, 0.2], 0.09) == pytest.approx([0.82, 0.91, 0.2])
    assert spread_labels([1.0, 1.0, 1.0], 0.1) == pytest.approx([1.0, 0.9, 0.8])


# hours ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", SIZES)
def test_the_bar_that_holds_is_the_limit_of_the_library(size):
    setting = Setting(size=size)
    data, summary = the_hours.view(setting).charts["io_limits"]
    bars = data["bars"]
    held = [name for name, holds in zip(bars["limit"], bars["holds"], strict=True) if holds]
    assert held == [WORDS[found(setting).limit]]
    assert f"limited by {held[0]}" in summary
    assert predict(experiment(setting)).throughput == pytest.approx(found(setting).rate, rel=0.01)


def test_where_nothing_holds_the_gpus_are_the_limit():
    data, summary = limits_state({"metadata servers": np.inf, "readers": 2000.0}, 1000.0)
    assert not any(data["bars"]["holds"]) and "the GPUs themselves are the limit" in summary
    assert data["bars"]["words"][0] == "not used"
    data, _ = limits_state({"readers": np.inf}, 1000.0)
    assert data["bars"]["rate"] == data["bars"]["start"]


def test_a_reader_that_waits_for_a_share_has_all_shares_reported():
    data, _ = the_hours.view(Setting()).charts["io_reader"]
    parts = dict(zip(data["bars"]["part"], data["bars"]["seconds"], strict=True))
    assert sum(parts.values()) == pytest.approx(sum(found(Setting()).reader.values()))


def test_words_say_what_is_asked_of_whom_and_what_does_not_fit():
    assert "351 million metadata operations of the shared file system" in hours_words(Setting())
    assert "no metadata operation" in hours_words(Setting(format="packed"))
    assert "no metadata operation" in hours_words(Setting(access="cooperative"))
    staged = hours_words(Setting(access="stage"))
    assert staged.startswith("<b>It does not fit</b>; if it did") and "the nodes' own" in staged
    assert "before the first step" in staged


def test_who_is_fed_is_reported_so():
    page = the_hours()
    assert "metadata servers of lustre cannot handle more" in result_text(page)
    controls(page)["Read from"].value = "cooperative"
    assert "Input keeps up with the GPUs." in result_text(page)
    controls(page)["Read from"].value = "stage"
    assert "133% too much" in result_text(page)


def test_demand_does_not_depend_on_storage():
    assert demand(Setting(size=30e6, access="stage")) == demand(Setting())
    assert demand(Setting(device="h100-sxm-80gb")) > 3 * demand(Setting())


def test_the_tables_have_the_published_figures():
    table = profile_table().value
    for text in (
        "128 K, 64 at a time",
        "117 M, 256 at a time",
        "about 180 M",
        "about 8 h",
        "12 k operations/s",
        "7.8 to 9.5%",
        "over 90%",
    ):
        assert text in table
    assert "105 MB/s" in demand_table().value and "3.18 GB/s" in demand_table().value
    step = float(results()["mlps-cosmoflow-h100"]["value"])
    assert bandwidth(2828486, 1, step) == pytest.approx(808.1e6, rel=1e-3)


def test_the_check_asks_for_three_operations_a_file():
    asked = ask("own_crossing", seed=3).question
    text = asked.question
    thousands, gigabytes = (
        float(text.split(word)[0].split()[-1]) for word in (" thousand metadata", " GB/s.")
    )
    wrong = asked.answer(f"{gigabytes * 1e6 / (thousands * 1e3):.6g}")
    assert "looked up, opened and closed" in wrong["words"] and not wrong["right"]
    assert asked.answer(f"{3 * gigabytes * 1e6 / (thousands * 1e3):.6g}")["right"]


# writes -----------------------------------------------------------------------------------------------


def test_a_checkpoint_is_as_fast_as_its_targets_or_as_those_who_write():
    for count in (1, 4, 16):
        for transfer in (4e3, 1e6):
            own = writes.Setting(stripe_count=count, transfer=transfer)
            times, limits = writes.seconds(own), writes.limits_of(own)
            on = writes.targets()
            targets = writes.CHECKPOINT / (count * on.bandwidth)
            ranks = writes.CHECKPOINT / (own.ranks * on.rank_rate(transfer))
            name = writes.WAYS[0]
            assert times[name] == pytest.approx(max(targets, ranks))
            assert limits[name] == ("targets" if targets > ranks else "ranks")


def test_a_wall_stands_where_targets_are_idle_or_ranks_are_slow():
    assert "1 of 16 targets: the others are idle" in result_text(writes.the_checkpoint())
    page = writes.the_checkpoint()
    controls(page)["Stripe count"].value = 16
    assert "All targets are busy." in result_text(page)
    controls(page)["A request"].value = 4e3
    assert "ranks limit the shared file" in result_text(page)


def test_the_wall_names_ranks_first_where_they_are_the_limit_and_targets_are_idle():
    own = writes.Setting(stripe_count=8, ranks=8, transfer=4e3)
    assert writes.limits_of(own)[writes.WAYS[0]] == "ranks"
    wall = writes.the_checkpoint.view(own).wall
    assert wall.startswith("The ranks limit") and "8 of 16 targets" in wall and "idle" not in wall


def test_a_write_request_has_the_latency_of_data_not_of_metadata():
    tier = experiment(Setting()).machine.storage["lustre"]
    assert writes.targets().latency == float(tier.read_latency) != float(tier.operation_latency)


def test_no_more_aggregators_write_than_there_are_ranks():
    few, all_of_them = (
        writes.Setting(stripe_count=16, ranks=8, transfer=4e6, aggregators=n) for n in (32, 8)
    )
    assert writes.seconds(few) == writes.seconds(all_of_them)
    assert writes.limits_of(few)[writes.WAYS[2]] == "aggregators"
    own = 8 * writes.targets().rank_rate(writes.STRIPE)
    assert writes.seconds(few)[writes.WAYS[2]] == pytest.approx(writes.CHECKPOINT / own)
    assert "all 8 (no more ranks) at" in writes.the_checkpoint.view(few).words
    assert "no more ranks" not in writes.the_checkpoint.view(all_of_them).words


# cache ------------------------------------------------------------------------------------------------


def test_one_reader_finds_what_the_formulas_say():
    for share in (0.2, 0.5, 0.8):
        assert cache.hit_rate("lru", share) == pytest.approx(least_recently_used(share), abs=0.03)
        assert cache.hit_rate("keep", share) == pytest.approx(best(share), abs=0.01)
        assert cache.hit_rate("lru", share, fresh=False) == 0


def test_on_many_nodes_policies_that_do_not_know_the_order_tie():
    for rule in ("keep", "lru", "fifo", "clock", "random"):
        assert cache.hit_rate(rule, 0.5, True, 16) == pytest.approx(0.5, abs=0.06)
    assert cache.hit_rate("belady", 0.5, True, 16) > 0.7


@pytest.mark.parametrize("rule", cache.POLICIES)
def test_a_cache_of_all_finds_all_and_of_nothing_nothing(rule):
    assert cache.hit_rate(rule, 0.0) == 0
    assert cache.hit_rate(rule, 1.0) == 1


def test_the_wall_says_why_a_cache_finds_little():
    assert "no cache" in cache.cache_wall(cache.Setting(0.0))
    assert "evicts what it needs" in cache.cache_wall(cache.Setting())
    assert "a cycle longer" in cache.cache_wall(cache.Setting(fresh=False))
    assert cache.cache_wall(cache.Setting(nodes=16)) == ""
    knows = cache.Setting(policy="belady", nodes=8)
    assert "this policy knows it" in cache.cache_fine(knows)
    same = cache.Setting(fresh=False, nodes=8)
    assert "the same part" in cache.cache_fine(same)
    assert "All of it fits" in cache.cache_fine(cache.Setting(1.0))
    assert "no limit at all" in cache.the_cache.view(cache.Setting(1.0)).words


# nodes ------------------------------------------------------------------------------------------------


def test_fanstore_is_drawn_from_the_node_on_that_its_data_fits():
    setting = nodes.Setting(8, IMAGES, ssd=60e9)
    assert nodes.curves(setting)["FanStore"][0][0] == 8
    assert nodes.node_wall(setting) == ""
    assert "8 nodes are needed" in nodes.node_wall(setting._replace(nodes=4))
    assert "at least 16 nodes" in nodes.fanstore.view(setting._replace(nodes=16, copies=2)).words
    assert "4 copies need 4 nodes" in nodes.node_wall(setting._replace(nodes=2, copies=4))


def test_no_way_is_better_than_never_waiting():
    for setting in (
        nodes.Setting(),
        nodes.Setting(device=V100),
        nodes.Setting(64, IMAGES, V100, 2),
    ):
        top = nodes.rates(setting, "never waiting")
        for way in ("FanStore", "shared file system"):
            assert np.all(nodes.rates(setting, way) <= top * (1 + 1e-9))


def test_the_picture_of_capacity_has_the_wall_of_the_ssd():
    data, summary = nodes.fanstore.view(nodes.Setting(4, IMAGES, ssd=60e9)).charts["io_capacity"]
    assert data["wall"]["y"] == [60e9] and "does not fit" in summary
    assert data["now"]["y"] == [pytest.approx(455e9 / 4)]


# batch ------------------------------------------------------------------------------------------------


def test_an_epoch_reads_as_much_at_any_batch_and_a_step_sends_as_much():
    read, sent = batch.each_device(batch.Setting(per="step"))
    assert read == pytest.approx(read[0] * 2.0 ** np.arange(len(read)))
    assert sent == pytest.approx(np.full(len(sent), sent[0]))
    read, sent = batch.each_device(batch.Setting(per="epoch"))
    assert read == pytest.approx(np.full(len(read), read[0]), rel=0.06)
    assert sent[1] == pytest.approx(sent[0] / 2, rel=0.01)
    assert batch.grows() == "as much read, half sent"


def test_a_batch_that_does_not_fit_is_reported():
    page = batch.the_batch()
    assert "The batch fits" in result_text(page)
    controls(page)["Batch"].value = 1024
    assert "the largest batch per device that fits" in result_text(page)


def test_the_mean_file_is_that_of_the_slides():
    assert pytest.approx(108e3, rel=0.01) == IMAGENET
