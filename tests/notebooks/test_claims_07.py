"""Every figure and every claim in the text of module 07, held against the library."""

import inspect

import numpy as np
import pytest

from lib_dlhpc.explore.io_bottleneck import batch, cache, loader, nodes, writes
from lib_dlhpc.explore.io_bottleneck import limits as input_
from lib_dlhpc.explore.io_bottleneck.limits import Setting, demand, experiment, found, hours
from lib_dlhpc.explore.io_bottleneck.live import requests
from lib_dlhpc.prediction import predict
from lib_dlhpc.prediction.storage.caching import best, least_recently_used
from lib_dlhpc.prediction.storage.io import nodes_needed
from lib_dlhpc.prediction.storage.profile import HOURS, READ_CALLS, profile, skylake_run, slides_run
from lib_dlhpc.prediction.validation.validate import results
from lib_dlhpc.simulation.caching import orders

V100, IMAGES = "four V100 (what if)", "neural images, 455 GB"
QUICK, THOROUGH = "2 : 1, fast (1 GB/s a reader)", "3 : 1, slow (40 MB/s a reader)"


def waits(setting):
    """The share of a step that waits for input."""
    own = predict(experiment(setting))
    return float(own.input_stall / own.step_time)


def test_the_published_figures_are_those_of_the_text():
    assert float(results()["fanstore18-open"]["value"]) == 117e6 == profile(slides_run()).opened
    assert READ_CALLS == 180e6 and HOURS == 8
    assert float(results()["fanstore18-eff"]["value"]) == 0.9
    assert slides_run().devices == 64
    assert 3 * hours(Setting()).opened == 351e6
    assert float(hours(Setting()).bytes) == pytest.approx(12.6e12)


def test_metadata_holds_the_run_up_and_the_bandwidth_is_far_from_it():
    rates = found(Setting()).rates
    assert found(Setting()).limit == "metadata servers" and 0.45 < waits(Setting()) < 0.55
    assert rates["storage bandwidth"] > 20 * rates["metadata servers"]
    assert found(Setting()).reader["transfer"] / sum(found(Setting()).reader.values()) < 0.015


def test_a_check_has_a_file_system_of_20_gb_that_feeds_700_mb():
    lustre = experiment(Setting()).machine.storage["lustre"]
    assert lustre.bandwidth == 20e9
    sample = experiment(Setting()).dataset.sample_bytes
    assert found(Setting()).rate * sample == pytest.approx(0.73e9, rel=0.02)


def test_more_readers_are_no_faster_where_they_are_not_the_limit():
    four, sixteen = (float(hours(Setting(readers=n)).time) for n in (4, 16))
    assert sixteen == pytest.approx(four)
    few, many = (found(Setting(readers=n)).rates["readers"] for n in (4, 16))
    assert many == pytest.approx(4 * few)


def test_half_of_the_nodes_take_next_to_no_longer():
    assert float(hours(Setting(nodes=8)).time) < 1.05 * float(hours(Setting()).time)


def test_bytes_are_the_limit_from_3_mb_on():
    assert found(Setting(size=1e6)).limit == "metadata servers"
    assert found(Setting(size=10e6)).limit == "storage bandwidth"
    lustre = experiment(Setting()).machine.storage["lustre"]
    assert 3 * lustre.bandwidth / lustre.metadata_rate == pytest.approx(3e6)


def test_packed_files_feed_the_gpus_with_four_readers_and_not_quite_with_one():
    assert waits(Setting(format="packed")) == 0
    one = Setting(format="packed", readers=1)
    assert found(one).limit == "readers" and found(one).rate < demand(one)


def test_a_copy_on_each_ssd_does_not_fit_and_fanstore_does():
    (wall,) = predict(experiment(Setting(access="stage"))).walls
    assert "60 GB" in wall and "140 GB" in wall
    assert predict(experiment(Setting(access="cooperative"))).walls == []


def test_h100_are_just_fed_by_packed_files_or_by_the_ssds_and_not_as_it_stands():
    fast = Setting(device="h100-sxm-80gb")
    assert waits(fast) > 0.8
    packed = fast._replace(format="packed")
    assert found(packed).rate == pytest.approx(demand(fast), rel=0.01)
    assert found(packed._replace(readers=1)).rate < demand(fast)
    for one in (packed, fast._replace(access="cooperative")):
        assert found(one).rate > demand(fast)


def test_half_a_cache_finds_15_percent_by_the_usual_rule_and_half_by_the_simplest():
    assert least_recently_used(0.5) == pytest.approx(0.153, abs=0.001)
    assert cache.hit_rate("lru", 0.5) == pytest.approx(0.153, abs=0.03)
    assert cache.hit_rate("keep", 0.5) == pytest.approx(0.5)
    online = [cache.hit_rate(rule, 0.5) for rule in cache.POLICIES if rule != "belady"]
    assert max(online) <= 0.51


def test_early_reads_of_an_epoch_hit_best_and_none_after_the_cached_share():
    """Least recently used, half cached: (c - v) / (1 - v) at v of an epoch, as the text and the notes have it."""
    samples, share, parts = 400, 0.5, 10
    read = orders(samples, 200)
    hits = np.zeros((len(read), samples))
    stack = list[int]()  # distances of reuse: how many others were read since
    for epoch, order in enumerate(read):
        for at, sample in enumerate(order):
            if sample in stack:
                hits[epoch, at] = len(stack) - 1 - stack.index(sample) < share * samples
                stack.remove(sample)
            stack.append(sample)
    by_part = hits[4:].reshape(-1, parts, samples // parts).mean(axis=(0, 2))
    v = (np.arange(samples) + 0.5) / samples
    expected = np.maximum(0, (share - v) / (1 - v)).reshape(parts, -1).mean(axis=1)
    np.testing.assert_allclose(by_part, expected, atol=0.01)
    assert [round(100 * each) for each in expected[:5]] == [47, 41, 33, 23, 9] and not by_part[
        5:
    ].any()
    assert by_part.mean() == pytest.approx(least_recently_used(share), abs=0.005)


def test_one_reader_finds_no_more_than_the_cached_share_even_if_it_knows_the_order():
    rates = {rule: cache.hit_rate(rule, 0.5) for rule in cache.POLICIES}
    assert max(rates.values()) == pytest.approx(best(0.5), abs=0.005)
    assert rates["belady"] == pytest.approx(rates["keep"], abs=0.005)


def test_the_first_question_has_a_small_part_of_the_bandwidth_for_an_answer():
    assert input_.bytes_read(Setting()) == pytest.approx(0.73e9, rel=0.01)
    assert input_.bytes_read(Setting()) < 0.05 * 20e9
    fed = Setting(access="cooperative")  # nothing waits: what the GPUs train
    assert input_.bytes_read(fed) == pytest.approx(
        demand(fed) * float(experiment(fed).dataset.sample_bytes)
    )


def test_on_16_nodes_policies_differ_little_and_knowing_the_order_hits_more():
    hits = [cache.hit_rate(rule, 0.5, True, 16) for rule in cache.POLICIES if rule != "belady"]
    assert max(hits) - min(hits) < 0.06
    assert cache.hit_rate("belady", 0.5, True, 16) > max(hits) + 0.2


def test_the_same_order_needs_all_of_the_data_set_in_the_cache():
    assert (
        cache.hit_rate("lru", 0.9, fresh=False) == 0
        and cache.hit_rate("lru", 1.0, fresh=False) == 1
    )


def test_on_512_nodes_nearly_all_is_remote_and_costs_nothing():
    assert nodes.remote(nodes.Setting()) == pytest.approx(0.998, abs=0.0005)
    assert nodes.cost_of_remote(nodes.Setting()) == "nothing"
    run = skylake_run(512)
    each = float(predict(run).throughput) / 512 * run.dataset.sample_bytes
    assert each < 10e6 and run.machine.inter_node.bandwidth > 2000e6


def behind(setting):
    """The nodes from which on the shared file system is more than 5% behind."""
    found = nodes.curves(setting)
    left = found["shared file system"][1] / found["never waiting"][1]
    return next(n for n, share in zip(nodes.NODES, left, strict=True) if share < 0.95)


def test_where_the_shared_file_system_falls_behind():
    assert behind(nodes.Setting()) == 512
    assert behind(nodes.Setting(device=V100)) == 32


def test_eight_nodes_hold_the_images_and_sixteen_two_copies():
    small = nodes.Setting(data=IMAGES, ssd=60e9)
    assert nodes_needed(nodes.experiment(small)) == 8
    assert nodes_needed(nodes.experiment(small._replace(copies=2))) == 16


def test_fast_compression_feeds_four_v100_and_a_slow_one_does_less():
    plain = nodes.Setting(64, IMAGES, V100, ssd=60e9)
    at = nodes.NODES.index(64)
    none, quick, thorough = (
        nodes.rates(plain._replace(stored=stored), "FanStore")[at]
        for stored in ("as it is", QUICK, THOROUGH)
    )
    assert none < thorough < quick
    assert "decompression" in nodes.node_wall(plain._replace(stored=THOROUGH))
    assert nodes.node_wall(plain._replace(stored=QUICK)) == ""


def test_alexnet_sends_more_than_resnet_and_reads_as_much():
    read, sent = batch.each_device(batch.Setting(model="alexnet"))
    read_, sent_ = batch.each_device(batch.Setting())
    assert np.array_equal(read, read_) and np.all(sent > 2 * sent_)
    assert batch.grows() == "as much read, half sent"


def test_one_after_another_500_requests_and_16_for_64_at_once():
    assert (requests(1), requests(64)) == (500, 16)


def test_the_loader_is_short_and_knows_nothing_of_this_package():
    text = inspect.getsource(loader)
    code = [
        line for line in text.split('"""', 2)[2].splitlines() if line.strip() and '"""' not in line
    ]
    assert 15 <= len(code) <= 27
    assert "lib_dlhpc" not in text and "store" not in "".join(code)


def test_the_table_above_experiment_2_has_what_accelerators_are_fed():
    assert "205 MB/s" in input_.demand_table().value


def test_the_answers_of_the_instructors_notes():
    eight, sixteen = (float(hours(Setting(nodes=n)).time) / 3600 for n in (8, 16))
    assert (round(eight, 1), round(sixteen, 1)) == (5.0, 4.8)
    assert float(found(Setting(format="packed", readers=1)).rate) == pytest.approx(12_526, abs=1)
    own = predict(experiment(Setting(access="stage")))
    assert 45 * 60 < float(own.start_time) < 60 * 60  # most of an hour
    eight_readers = Setting(device="h100-sxm-80gb", format="packed", readers=8)
    assert found(eight_readers).rate > demand(eight_readers)
    at = nodes.NODES.index(512)
    left = {name: y[at] for name, (_, y) in nodes.curves(nodes.Setting()).items()}
    assert (round(left["shared file system"], 2), round(left["FanStore"], 2)) == (0.76, 0.92)
    assert nodes.curves(nodes.Setting(device=V100))["shared file system"][1][at] < 0.06
    at = nodes.NODES.index(64)
    for stored, thousands in (("as it is", 42), (QUICK, 72), (THOROUGH, 52)):
        setting = nodes.Setting(64, IMAGES, V100, stored=stored, ssd=60e9)
        assert nodes.rates(setting, "FanStore")[at] == pytest.approx(1e3 * thousands, rel=0.01)
    at = batch.BATCHES.index(64)
    sent = [batch.each_device(batch.Setting(model=m))[1][at] for m in ("alexnet", "resnet50")]
    assert sent == pytest.approx([480e6, 201e6], rel=0.01)


def test_a_checkpoint_over_one_target_and_through_aggregators():
    """Numbers of the questions on writing: 20 GB/s over 16 targets, and what requests of 4 kB cost."""
    assert writes.COUNT == 16 and writes.CHECKPOINT == 1e12 and writes.STRIPE == 4 * 2**20
    assert writes.COUNT * writes.targets().bandwidth == 20e9
    default = writes.Setting()
    assert (default.stripe_count, default.ranks) == (1, 256)
    assert writes.shared_rate(default) == pytest.approx(1.25e9)
    shared, _, few = writes.WAYS
    at_16 = writes.Setting(stripe_count=16)
    assert writes.seconds(at_16)[shared] == pytest.approx(50)
    small = at_16._replace(transfer=4e3)
    assert writes.limits_of(small)[shared] == "ranks"
    assert writes.seconds(small)[shared] == pytest.approx(81.4 * 60, abs=3)
    by = {n: small._replace(aggregators=n) for n in (16, 32, 43, 44, 64)}
    times = {n: writes.seconds(own)[few] for n, own in by.items()}
    assert (round(times[16]), round(times[32], 1)) == (137, 68.5)
    assert times[43] > times[44] == times[64] == pytest.approx(50)
    limits = [writes.limits_of(own)[few] for own in by.values()]
    assert limits == ["aggregators"] * 3 + ["targets"] * 2


def test_40_files_are_slower_than_64_since_eight_targets_have_three():
    own = writes.WAYS[1]
    by = {n: writes.Setting(ranks=n, transfer=4e6) for n in (40, 64)}
    files = {n: writes.seconds(each)[own] for n, each in by.items()}
    assert files == pytest.approx({40: 60, 64: 50}) and divmod(40, writes.COUNT) == (2, 8)
    assert {writes.limits_of(each)[own] for each in by.values()} == {"targets"}
    by_ranks = writes.seconds(writes.Setting(ranks=64))[own]  # with the default requests of 1 MB
    assert round(by_ranks, 1) == 93.8 and writes.limits_of(writes.Setting(ranks=64))[own] == "ranks"
