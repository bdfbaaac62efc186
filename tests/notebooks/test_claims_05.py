"""What module 05 and its notes say is what the library computes."""

import pytest
from published_rows import scored_of

from lib_dlhpc.explore.hybrid_parallel import cosmos, deep, domain
from lib_dlhpc.explore.hybrid_parallel import map as ways
from lib_dlhpc.explore.hybrid_parallel.charts import TERMS, Way
from lib_dlhpc.explore.hybrid_parallel.cosmos import Cubes, finer, step_of
from lib_dlhpc.explore.hybrid_parallel.live import Setting, times_as_fast
from lib_dlhpc.explore.hybrid_parallel.published import comparisons
from lib_dlhpc.prediction import predict
from lib_dlhpc.prediction.validation.validate import results
from lib_dlhpc.spec.experiment import Experiment


def part(way: Way, name: str) -> float:
    return dict(zip(TERMS, way.parts, strict=True))[name]


def deep_ways(**changes) -> dict[str, Way]:
    return {deep.name_of(way): way for way in deep.ways_of(deep.Deep(**changes))}


def column(setting: ways.Ways, tensor: int, stages: tuple[int, ...]) -> list[Way]:
    return [ways.predicted(setting, tensor, p) for p in stages]


# the published table --------------------------------------------------------------------------------


def test_the_published_figures_are_those_of_the_catalog():
    row = results()["oyama19-512"]
    assert (row["count"], row["batch_global"], row["value"]) == ("512", "128", "1.42")
    there = results()["megatron21-ptd-174-384"]
    assert int(there["count"]) == 8 * 12 * 4 and "tp=8, pp=12" in there["notes"]


def test_a_prediction_from_nothing_is_far_off_and_one_that_is_calibrated_is_near():
    errors = [found / published - 1 for _, _, published, found, _ in comparisons()]
    assert errors[0] > 1 and abs(errors[1]) < 0.1
    assert all(-0.55 < error < -0.4 for error in errors[2:])  # "about twice as much"
    assert 1 / cosmos.slowness() == pytest.approx(1 / 3, abs=0.05)  # "a third"


# the cubes ------------------------------------------------------------------------------------------


def test_a_cube_is_two_gigabytes_and_training_on_it_ten_times_as_much():
    shape = cosmos.cosmos().dataset.sample_shape
    assert 4 * shape[0] * shape[1] ** 3 / 1e9 == pytest.approx(2.1, abs=0.06)
    assert 8 < cosmos.memory_alone() / 2.1 < 12
    assert step_of(Cubes(slabs=1)).memory["activations"] > 0.5e9 * cosmos.memory_alone()


def test_four_gpus_a_sample_are_the_fewest_that_fit_and_replicas_do_not_help():
    assert next(s for s in cosmos.SLABS if step_of(Cubes(slabs=s)).fits) == 4
    assert not step_of(Cubes(slabs=2, gpus=2048)).fits


def strong_gain() -> float:
    return float(step_of(Cubes()).step_time / step_of(finer(Cubes(), 8)).step_time)


def test_finer_cuts_shorten_the_step_and_more_samples_do_not():
    yours = float(step_of(Cubes()).step_time)
    assert float(step_of(finer(Cubes())).step_time) < 0.6 * yours
    assert float(step_of(Cubes(gpus=1024)).step_time) == pytest.approx(yours, rel=0.02)
    assert 4 < strong_gain() < 6  # of the eight that 32 GPUs per sample might be


def test_cubes_of_256_on_many_slabs_are_mostly_not_computing_for_long():
    step = step_of(Cubes(256, 32))
    assert float(step.compute / step.step_time) < 0.6
    assert float(step.exposed["data"]) > float(step.exposed["halo"])


def test_the_shared_file_system_is_too_slow_and_the_drives_of_the_nodes_are_not():
    assert float(step_of(Cubes(tier="gpfs")).input_stall) > 0.8 * cosmos.published_step()
    assert float(step_of(Cubes(tier="nvme")).input_stall) == 0


def test_halos_do_not_shrink_while_slabs_get_thinner():
    inside = [step_of(Cubes(slabs=s, gpus=2048)).messages["halo"] for s in (8, 16, 32)]
    cost = [float(halo.bandwidth) for halo in inside]
    assert cost[0] <= cost[1] <= cost[2]
    computing = [float(step_of(Cubes(slabs=s)).compute) for s in (8, 16, 32)]
    assert computing[0] > 1.7 * computing[1] > 2.5 * computing[2]


# the map --------------------------------------------------------------------------------------------


def test_tensor_groups_across_nodes_double_the_step():
    assert ways.tensor_across() == pytest.approx(2, abs=0.3)


def test_less_tensor_with_as_many_stages_is_predicted_to_be_quicker_than_what_was_published():
    there, less = (ways.predicted(ways.Ways(), t, 12) for t in (8, 4))
    assert less.fits and less.seconds < 0.95 * there.seconds
    assert part(less, "tensor allreduces") < 0.5 * part(there, "tensor allreduces")
    assert less.memory > 1.5 * there.memory
    words = ways.map_words(ways.Ways(), [there, less])
    assert "8 × 12 × 4 would take" in words and ways.FEW in words  # the lead is within the error
    assert 1 - less.seconds / there.seconds < 0.4
    assert ways.FEW not in ways.map_words(ways.Ways(), [there])


def test_larger_microbatches_cost_the_rows_with_little_tensor_most_and_all_columns_alike():
    def longer(tensor: int, stages: int) -> float:
        small, large = (ways.predicted(ways.Ways(microbatch=n), tensor, stages) for n in (1, 8))
        assert part(large, "compute") < part(small, "compute")
        return part(large, "pipeline bubble") - part(small, "pipeline bubble")

    assert longer(4, 12) > 1.5 * longer(8, 12)
    assert longer(8, 48) == pytest.approx(longer(8, 12), rel=0.1)


def test_in_nodes_of_two_less_tensor_is_best():
    at = ways.Ways(node=2)
    ranked = [ways.predicted(at, t, p) for t, p in ((8, 12), (4, 12), (2, 24), (1, 48))]
    best = ways.best_of(ranked)
    assert best is not None and best.tensor <= 2


def test_gpipe_keeps_too_much_whatever_the_way():
    for t, p in ((8, 12), (4, 24), (1, 48), (16, 12)):
        assert not ways.predicted(ways.Ways(schedule="gpipe"), t, p).fits


def test_the_edge_of_memory_runs_from_many_stages_to_much_tensor():
    fits = {t: [way.fits for way in column(ways.Ways(), t, (1, 12, 48))] for t in (1, 4, 8)}
    assert fits == {1: [False, False, True], 4: [False, True, True], 8: [False, True, True]}


# the deep network -----------------------------------------------------------------------------------


def test_on_v100_neither_stages_alone_nor_slabs_alone_are_best_for_images_of_720():
    found = deep_ways()
    best = deep.best_of(list(found.values()))
    assert best is not None and best.pipeline > 1 and best.spatial > 1
    assert not found["data alone"].fits and not found["16 stages"].fits and found["16 slabs"].fits
    assert part(found["16 slabs"], "halos") < 0.05 * found["16 slabs"].seconds
    assert part(found["16 slabs"], "compute") > 2 * part(found["data alone"], "compute")


def test_small_images_and_large_memories_want_data_alone():
    for changes in ({"side": 224}, {"machine": "frontera"}):
        found = deep_ways(**changes)
        assert deep.best_of(list(found.values())) == found["data alone"]
        assert all(way.fits for way in found.values())


# the formula ----------------------------------------------------------------------------------------


def test_six_sums_a_layer_and_microbatch_where_activations_are_made_again():
    run, setting = ways.RUNS[ways.CALIBRATES], ways.as_published(ways.CALIBRATES)
    for recompute, sums in (("none", 4), ("full", 6)):
        there = ways.experiment_of(setting._replace(recompute=recompute), run.tensor, run.pipeline)
        link = there.machine.intra_node
        size = 2 * setting.microbatch * 2048 * run.hidden  # B of the activations of a microbatch
        one = 2 * (run.tensor - 1) / run.tensor * size / (link.bandwidth * link.efficiency)
        many = int(there.strategy.microbatches) * run.layers / run.pipeline
        predicted = float(predict(there).messages["tensor"].bandwidth)
        assert predicted == pytest.approx(sums * many * one, rel=0.06)  # beside it the two ends


@pytest.mark.parametrize("tensor", [2, 4, 8])
def test_tensor_ranks_divide_all_activations_only_with_sequence_parallelism(tensor):
    """Korthikanti et al. 2022, equations 2 and 4, by the ledger: what eight more layers keep."""
    q, h, a, b = 1024, 2048, 16, 1

    def kept(layers: int, t: int, **strategy) -> float:
        network = {"family": "gpt", "layers": layers, "hidden": h, "heads": a, "sequence": q}
        shared = {"nodes": 1, "devices_per_node": t, "tensor": t, "batch": b, "precision": "bf16"}
        run = Experiment(
            model={**network, "vocabulary": 64, "dropout": 0.1},
            dataset="webtext",
            machine="selene",
            storage={"tier": ""},
            strategy={**shared, **strategy},
        )
        return float(predict(run).memory["activations"])

    def each_layer(**strategy) -> float:
        return (kept(16, tensor, **strategy) - kept(8, tensor, **strategy)) / 8

    plain = q * b * h * (10 + 24 / tensor + 5 * a * q / (h * tensor))
    assert each_layer() == pytest.approx(plain, rel=0.02)
    split = q * b * h * (34 + 5 * a * q / h) / tensor
    assert each_layer(sequence_parallel=True) == pytest.approx(split, rel=0.02)
    assert each_layer(recompute="full") == pytest.approx(2 * q * b * h, rel=0.02)


def test_past_the_critical_batch_only_a_finer_cut_shortens_the_step(repository):
    now, cut, more = (
        float(step_of(each).step_time) for each in (Cubes(), finer(Cubes()), Cubes(gpus=1024))
    )
    assert 0.99 < more / now < 1.05
    notes = (repository / "instructor_notes" / "05_hybrid_parallel.md").read_text("utf-8")
    assert f"split more finely, take {cut / now:.2f} times as long" in notes
    assert 1 / strong_gain() == pytest.approx(1 / 5, abs=0.02)  # "about a fifth"
    assert float(step_of(finer(Cubes(), 8)).throughput) > float(
        step_of(finer(Cubes(), 4)).throughput
    )


def test_eight_ranks_of_a_small_gpt_are_three_times_as_fast_by_the_formula():
    assert times_as_fast(Setting("words", 2, 2, 2, 4)) == pytest.approx(3.1, abs=0.1)
    assert times_as_fast(Setting("words", 1)) == 1


def test_the_bubble_is_p_minus_1_over_m_and_what_uneven_stages_add():
    there = ways.predicted(ways.Ways(), 8, 12)
    passes = sum(part(there, name) for name in ("compute", "recomputation", "tensor allreduces"))
    assert 11 / 384 < part(there, "pipeline bubble") / passes < 3 * 11 / 384


# a domain of NVLink ---------------------------------------------------------------------------------


def test_published_rates_on_nodes_and_racks_are_those_of_the_catalog(repository):
    text = (repository / "modules" / "05_hybrid_parallel.ipynb").read_text("utf-8")
    for row, ranks in (("b200-mxfp8-256", 32), ("gb200-mxfp8-256-mtp", 64)):
        own = results()[f"bridge-deepseek-v3-{row}"]
        assert f"{int(own['value']):,}" in text and own["count"] == "256"
        assert "NeMo 26.04.01" in own["notes"] and f"experts over {ranks}" in own["notes"]


def test_in_a_rack_the_wait_for_experts_is_less_than_a_quarter(repository):
    node, rack = (
        domain.predicted(domain.Setting(), where).waits for where in (domain.NODES, domain.RACK)
    )
    assert rack < node / 4
    assert 0.45 < domain.exposed(domain.Setting(), domain.NODES) < 0.5  # slides: "nearly half"
    notes = (repository / "instructor_notes" / "05_hybrid_parallel.md").read_text("utf-8")
    assert f"{domain.exposed(domain.Setting(), domain.RACK):.1%} in a rack" in notes


# context parallelism --------------------------------------------------------------------------------


def test_a_long_sequence_fits_over_context_ranks():
    run = Experiment(
        model={"name": "llama3-8b", "sequence": 131072},
        machine="h100-pod",
        strategy={
            "nodes": 4,
            "batch": 1,
            "precision": "bf16",
            "optimizer": "adam",
            "zero": 3,
            "recompute": "full",
        },
    )
    alone, two, eight = (
        predict(run.set({"strategy.context": ranks, "strategy.context_exchange": "ring"}))
        for ranks in (1, 2, 8)
    )
    memory = [round(float(each.memory_total) / 1e9) for each in (alone, two, eight)]
    assert memory == [147, 78, 26] and not alone.fits and two.fits
    assert (alone.step_time, eight.step_time) == pytest.approx((74, 9.3), rel=0.01)
    assert alone.experiment.global_batch == 8 * eight.experiment.global_batch


def test_predictions_with_experts_are_as_far_off_as_the_page_says(repository):
    text = (repository / "modules" / "05_hybrid_parallel.ipynb").read_text("utf-8")
    found = {}
    for machine in ("b200", "gb200"):
        for row in scored_of(f"nemo-{machine}"):
            found.setdefault((machine, "experts" in row.group), []).append(row)
    off = {key: [abs(row.error) for row in rows] for key, rows in found.items()}
    mean = {key: f"{sum(each) / len(each):.0%}" for key, each in off.items()}
    experts = found["b200", True]
    assert len(experts) == 8 and len(found["b200", False]) == 3
    b200, gb200 = ((mean[machine, True], mean[machine, False]) for machine in ("b200", "gb200"))
    assert f"*B200:* {b200[0]} for eight runs with experts" in text
    assert f"{b200[1]} for three dense networks" in text
    assert f"*GB200:* {gb200[0]} with experts, {gb200[1]} without." in text
    own = sorted(round(100 * abs(row.error), 1) for row in experts if "deepseek" in row.id)
    worst = max(experts, key=lambda row: abs(row.error))
    assert (
        f"{own[0]:.1f} and {own[1]:.0f}% for DeepSeek-V3" in text
        and "nemotron3-nano" in worst.id
        and f"up to {worst.error:.0%} for Nemotron 3 Nano" in text
    )
    with_experts = [*experts, *found["gb200", True]]
    fast = sum(row.error > 0 for row in with_experts)
    assert f"Of the {len(with_experts)} predictions with experts, {fast} are too fast" in text


def test_a_gb200_is_hardly_faster_than_a_b200(repository):
    text = (repository / "modules" / "05_hybrid_parallel.ipynb").read_text("utf-8")
    node, rack = (
        domain.experiment(domain.Setting(), where).machine.device
        for where in (domain.NODES, domain.RACK)
    )
    peaks = [each.peak["bf16"] / 1e12 for each in (rack, node)]
    rates = [each.efficiency * peak for each, peak in zip((rack, node), peaks, strict=True)]
    assert f"{rates[0] / rates[1] - 1:.0%} faster on a GB200" in text
    numbers = [f"{each:,.0f}" for each in (*rates, *peaks)]
    assert "({} and {} of {} and {} TFLOP/s in bf16)".format(*numbers) in text
    memories = [f"{each.memory / 1e9:.0f} GB" for each in (rack, node)]
    assert "it has {} instead of {}".format(*memories) in text


def test_a_token_reaches_at_most_four_of_eight_nodes(repository):
    run = domain.experiment(domain.Setting(), domain.NODES)
    layer = next(each for each in run.model.layers if each.traits.tensor == "experts")
    assert (layer.attributes["groups"], layer.attributes["chosen_groups"]) == (8, 4)


def test_the_notes_say_how_much_faster_links_and_exchange_of_a_rack_are(repository):
    text = (repository / "instructor_notes" / "05_hybrid_parallel.md").read_text("utf-8")
    node, rack = (domain.experiment(domain.Setting(), each) for each in (domain.NODES, domain.RACK))
    near, far = rack.machine.intra_node, node.machine.inter_node
    links = near.bandwidth * near.efficiency / (far.bandwidth * far.efficiency)
    waits = [domain.predicted(domain.Setting(), each).waits for each in (domain.NODES, domain.RACK)]
    said = " ".join(text.split())
    assert f"NVLink is {links:.0f} times as fast as a NIC" in said
    assert (
        f"exposed all-to-all of 64 expert ranks gets only {waits[0] / waits[1]:.1f} times as fast"
        in said
    )
