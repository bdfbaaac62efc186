"""Laws of a split network's step: one replica of one rank is plain; terms add up; physics has a direction."""

import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lib_dlhpc import Experiment, SpecError, loads
from lib_dlhpc.parallel import KINDS
from lib_dlhpc.prediction import predict, sweep
from lib_dlhpc.prediction.memory.rank_memory import moments, peak
from lib_dlhpc.prediction.reports.report import as_text
from lib_dlhpc.prediction.split_step import split_step
from lib_dlhpc.spec.strategy import ALLREDUCES, SCHEDULES, SPLIT_BACKWARD

PLAIN = Experiment(
    model="resnet50",
    dataset="imagenet",
    machine={"name": "summit", "jitter": 0.1},
    strategy={"nodes": 4},
)
GPT = Experiment(
    model={
        "family": "gpt",
        "layers": 12,
        "hidden": 768,
        "heads": 12,
        "sequence": 512,
        "vocabulary": 4096,
    },
    dataset="webtext",
    machine={"name": "selene", "jitter": 0.0},
    strategy={"nodes": 3, "batch": 24, "precision": "fp16", "optimizer": "adam"},
)
SPLITS = {
    "tensor": {"strategy.tensor": 4},
    "sequence": {"strategy.tensor": 4, "strategy.sequence_parallel": True},
    "pipeline": {"strategy.pipeline": 6, "strategy.microbatches": 12},
    "gpipe": {"strategy.pipeline": 3, "strategy.microbatches": 8, "strategy.schedule": "gpipe"},
    "interleaved": {
        "strategy.pipeline": 3,
        "strategy.microbatches": 6,
        "strategy.schedule": "interleaved",
        "strategy.chunks": 2,
    },
    "three ways": {"strategy.tensor": 2, "strategy.pipeline": 3, "strategy.microbatches": 8},
    "accumulated": {"strategy.microbatches": 4},
    "zero 1": {"strategy.zero": 1},
    "zero 2": {"strategy.zero": 2, "strategy.microbatches": 2},
    "zero 3": {"strategy.zero": 3},
    "full": {"strategy.recompute": "full"},
    "selective": {"strategy.recompute": "selective", "strategy.tensor": 2},
}


@pytest.mark.parametrize("overlap", [True, False])
@pytest.mark.parametrize("allreduce", ALLREDUCES)
@pytest.mark.parametrize("nodes", [1, 4, 64])
def test_a_network_in_one_piece_is_plain_data_parallelism(allreduce, nodes, overlap):
    run = PLAIN.set(
        {"strategy.nodes": nodes, "strategy.allreduce": allreduce, "strategy.overlap": overlap}
    )
    plain, step = predict(run), split_step(run, 1.0)
    assert step.total == pytest.approx(plain.step_time, rel=1e-12)
    assert step.exposed["data"] == pytest.approx(plain.exposed_communication, rel=1e-9, abs=1e-15)
    assert step.bubble == pytest.approx(0.0, abs=1e-12)
    found = peak(run).terms
    assert found == pytest.approx({name: float(size) for name, size in plain.memory.items()})


@pytest.mark.parametrize("name", SPLITS)
def test_terms_add_up_and_the_step_lies_in_its_bounds(name):
    prediction = predict(GPT.set(SPLITS[name]))
    low, high = prediction.step_time_bounds
    step = prediction.step_time
    assert sum(prediction.terms.values()) == pytest.approx(step, rel=1e-12)
    assert all(seconds >= -1e-12 for seconds in prediction.terms.values())
    assert low <= step * (1 + 1e-9) and step <= high * (1 + 1e-9)
    assert set(prediction.messages) == set(prediction.exposed) == set(KINDS)
    assert sum(prediction.exposed.values()) == pytest.approx(prediction.exposed_communication)
    total = sum(cost.total for cost in prediction.messages.values())
    assert total == pytest.approx(prediction.communication.total)
    assert sum(peak(prediction.experiment).terms.values()) == prediction.memory_total


@st.composite
def splits(draw):
    """Stages, groups, microbatches and links, of which many are so slow that messages are all there is."""
    changes = {
        "strategy.tensor": draw(st.sampled_from([1, 2, 4])),
        "strategy.pipeline": draw(st.sampled_from([1, 2, 3, 6])),
        "strategy.microbatches": draw(st.sampled_from([1, 6, 12, 24])),
        "strategy.schedule": draw(st.sampled_from(SCHEDULES)),
        "strategy.recompute": draw(st.sampled_from(["none", "full"])),
        "strategy.offload": draw(st.sampled_from(["none", "activations", "all"])),
        "strategy.overlap": draw(st.booleans()),
        "machine.jitter": draw(st.sampled_from([0.0, 0.1])),
    }
    if changes["strategy.pipeline"] == 1:
        changes["strategy.zero"] = draw(st.integers(0, 3))
    if changes["strategy.schedule"] == "interleaved":
        changes["strategy.microbatches"] = 12
        changes["strategy.chunks"] = draw(st.sampled_from([1, 2]))
    if changes["strategy.schedule"] in SPLIT_BACKWARD:
        changes["strategy.offload"] = "none"
    if changes["strategy.schedule"] == "dualpipe":
        changes["strategy.pipeline"] = draw(st.sampled_from([1, 2, 6]))
        changes["strategy.microbatches"] = draw(st.sampled_from([12, 24]))
    for link in ("intra_node", "inter_node", "host_link"):
        changes[f"machine.{link}.bandwidth"] = 10.0 ** draw(st.integers(7, 12))
        changes[f"machine.{link}.latency"] = 10.0 ** draw(st.integers(-7, -2))
    return changes


@settings(max_examples=60)
@given(splits())
def test_no_split_is_outside_of_its_bounds_or_hides_less_than_nothing(changes):
    run = GPT.set(changes)
    found = predict(run)
    low, high = found.step_time_bounds
    assert low <= found.step_time * (1 + 1e-9) and found.step_time <= high * (1 + 1e-9)
    assert 0 <= found.hidden <= 1
    assert all(seconds >= 0 for seconds in found.exposed.values())
    assert found.pipeline_bubble >= 0 and (found.pipeline_bubble == 0 or run.strategy.pipeline > 1)
    assert found.efficiency > 0


def test_a_message_that_holds_up_several_stages_counts_as_not_hidden_and_no_more():
    slow = {**SPLITS["pipeline"], "strategy.microbatches": 1, "machine.intra_node.latency": 1e-3}
    found = predict(GPT.set({**slow, "strategy.nodes": 3, "strategy.overlap": False}))
    assert found.exposed["pipeline"] > 2 * found.messages["pipeline"].total
    assert found.hidden == 0
    assert "makes other stages wait" in as_text(found)


def test_what_nobody_sends_leaves_no_dust():
    alone = {"strategy.nodes": 1, "strategy.devices_per_node": 4, "strategy.tensor": 4}
    found = predict(GPT.set({**alone, "strategy.microbatches": 3}))
    assert found.pipeline_bubble == found.exposed["data"] == found.exposed["pipeline"] == 0
    assert found.hidden == pytest.approx(0, abs=1e-12) and "-0" not in as_text(found)


@pytest.mark.parametrize("name", SPLITS)
def test_speedup_is_over_one_device_with_the_whole_network(name):
    run = GPT.set(SPLITS[name])
    batch = int(run.strategy.batch)
    one = GPT.set({"strategy.nodes": 1, "strategy.devices_per_node": 1, "strategy.batch": batch})
    found, lone = predict(run), predict(one)
    assert found.speedup == pytest.approx(found.throughput / lone.throughput, rel=1e-12)
    assert found.efficiency == pytest.approx(found.speedup / found.experiment.devices)
    assert lone.speedup == pytest.approx(1.0) and lone.step_time == pytest.approx(
        found.single_device
    )


def test_each_way_to_split_talks_for_its_own_reason():
    talks = {
        name: {kind for kind, cost in predict(GPT.set(split)).messages.items() if cost.total > 0}
        for name, split in SPLITS.items()
    }
    for name in ("accumulated", "zero 1", "zero 2", "zero 3", "full"):
        assert talks[name] == {"data"}, name
    for name in ("tensor", "sequence", "selective"):
        assert talks[name] == {"data", "tensor"}, name
    for name in ("pipeline", "gpipe", "interleaved"):
        assert talks[name] == {"data", "pipeline"}, name
    assert talks["three ways"] == {"data", "tensor", "pipeline"}
    image = PLAIN.set({"strategy.spatial": 2, "strategy.allreduce": "ring"})
    found = predict(image).messages
    assert found["halo"].total > 0 and found["tensor"].total == found["pipeline"].total == 0


def test_messages_are_as_many_bytes_as_the_papers_count():
    """Megatron: 4 allreduces of b s h a layer, forward and backward together (Shoeybi et al. 2019)."""
    run = GPT.set({"strategy.tensor": 8, "strategy.batch": 3})
    net = run.machine.intra_node
    beta = 1 / (net.bandwidth * net.efficiency)
    size = 3 * 512 * 768 * 2
    own = 4 * 12  # of the blocks; the word embedding has one more, as have the logits
    # The largest logit of each position, and the sum of exponentials, by recursive doubling over 8 ranks.
    loss = 2 * 3 * 512 * 2
    found = predict(run).messages["tensor"].bandwidth
    expected = (own + 2) * 2 * 7 / 8 * size * beta
    assert found == pytest.approx(expected + 3 * loss * beta, rel=1e-9)


def test_zero_moves_what_its_authors_say():
    """2 n a step as an allreduce does, up to level 2; 3 n at level 3 (Rajbhandari et al. 2020, section 7).

    The last layer is tied to the embedding, whose weights it gathers once more in both passes.
    """
    moved = [
        predict(GPT.set({"strategy.zero": level, "strategy.microbatches": 1 + (level == 0)}))
        .messages["data"]
        .bandwidth
        for level in range(4)
    ]
    assert moved[1] == pytest.approx(moved[0]) and moved[2] == pytest.approx(moved[0])
    words = 4096 * 768 / GPT.model.parameters
    assert moved[3] == pytest.approx((3 + 2 * words) / 2 * moved[0])


def test_more_microbatches_shrink_the_bubble_and_recomputation_costs_a_forward_pass():
    device = GPT.set({"machine.device.dispatch": 0.0})  # a host takes as long for a small one
    bubbles = [
        predict(device.set({**SPLITS["pipeline"], "strategy.microbatches": m})).pipeline_bubble
        for m in (1, 2, 4, 8, 24)
    ]
    assert bubbles == sorted(bubbles, reverse=True)
    plain, full = (
        predict(GPT.set({**SPLITS["tensor"], "strategy.recompute": word}))
        for word in ("none", "full")
    )
    assert full.backward - plain.backward == pytest.approx(full.recomputation)
    assert 0.8 * plain.forward < full.recomputation < plain.forward
    assert full.memory["activations"] < 0.2 * plain.memory["activations"]


@pytest.mark.parametrize("name", SPLITS)
@pytest.mark.parametrize(
    ("key", "factor"),
    [
        ("machine.inter_node.bandwidth", 0.5),
        ("machine.intra_node.bandwidth", 0.5),
        ("machine.inter_node.latency", 10.0),
        ("machine.intra_node.latency", 10.0),
        ("machine.device.memory_bandwidth", 0.5),
        ("machine.device.efficiency", 0.5),
    ],
)
def test_a_slower_machine_is_never_quicker(name, key, factor):
    run = GPT.set(SPLITS[name])
    noun = run
    for part in key.split("."):
        noun = getattr(noun, part)
    assert predict(run.set({key: noun * factor})).step_time >= predict(run).step_time * (1 - 1e-12)


def test_a_group_that_leaves_its_node_talks_slower():
    """Eight ranks a node: a tensor group of 8 stays inside, one of 24 does not."""
    run = GPT.set({"strategy.batch": 24, "model.heads": 24})
    inside, outside = (predict(run.set({"strategy.tensor": t})) for t in (8, 24))
    assert outside.messages["tensor"].total > inside.messages["tensor"].total


def test_a_measured_rate_is_met_exactly():
    for split in SPLITS.values():
        run = GPT.set(split)
        rate = 0.3 * float(predict(run).throughput)
        devices, replica = int(run.devices), int(run.strategy.replica)
        batch = int(run.strategy.batch) // replica
        if batch * replica != run.strategy.batch:
            continue
        again = run.set({"calibration.rate": rate, "calibration.devices": devices})
        assert predict(again).throughput == pytest.approx(rate, rel=1e-9)


def test_a_rate_of_one_device_is_that_of_the_whole_network_on_it():
    measured = {"calibration.rate": 5.0, "calibration.batch": 2}
    one = {"strategy.nodes": 1, "strategy.devices_per_node": 1, "strategy.batch": 2}
    alone = predict(GPT.set({**one, **measured}))
    assert alone.throughput == pytest.approx(5.0)
    for name in ("three ways", "accumulated", "zero 3"):
        split = predict(GPT.set({**SPLITS[name], **measured}))
        assert split.compute_scale == pytest.approx(alone.compute_scale) != 1.0


def test_a_rate_that_cannot_be_is_reported():
    run = GPT.set(SPLITS["three ways"])
    with pytest.raises(SpecError, match="messages alone"):
        predict(run.set({"calibration.rate": 1e9, "calibration.devices": 24}))
    with pytest.raises(SpecError, match="multiple of the 6 devices"):
        predict(run.set({"calibration.rate": 10.0, "calibration.devices": 8}))


def test_a_sweep_goes_over_splits():
    found = sweep(GPT, {"strategy.pipeline": [1, 2, 6], "strategy.batch": [24, 48]})
    for i, p in enumerate([1, 2, 6]):
        for j, b in enumerate([24, 48]):
            one = predict(GPT.set({"strategy.pipeline": p, "strategy.batch": b}))
            assert found.step_time[i, j] == pytest.approx(one.step_time, rel=1e-12)


def test_a_large_network_is_predicted_at_once():
    run = loads(
        '[model]\nname = "gpt3-175b"\n[dataset]\nname = "webtext"\n[machine]\nname = "selene"\n'
        "[strategy]\nnodes = 48\ntensor = 8\npipeline = 12\nbatch = 384\nmicrobatches = 384\n"
        'precision = "fp16"\noptimizer = "adam"\nrecompute = "full"\n'
    )
    predict(run)
    before = time.process_time()
    predict(run)
    assert time.process_time() - before < 1.0  # some milliseconds


# --- memory ---


def test_the_first_rank_of_1f1b_keeps_the_most_and_gpipe_keeps_all():
    runs = [
        GPT.set({**SPLITS["pipeline"], "strategy.schedule": word}) for word in ("1f1b", "gpipe")
    ]
    for run, kept in zip(runs, ([6, 5, 4, 3, 2, 1], [12] * 6), strict=True):
        backward = [moment for moment in moments(run) if "backward" in moment.when]
        assert [moment.rank for moment in backward] == list(range(6))
        middle = [m.terms["activations"] / n for m, n in zip(backward, kept, strict=True)][1:-1]
        assert np.ptp(middle) < 0.05 * middle[0]
    assert peak(runs[1]).total > peak(runs[0]).total


@pytest.mark.parametrize("pipeline", [{}, {"strategy.microbatches": 4}, {"strategy.pipeline": 12}])
@pytest.mark.parametrize(
    ("schedule", "offload"),
    [*((each, "none") for each in SCHEDULES), ("1f1b", "activations"), ("interleaved", "all")],
)
def test_the_peak_is_the_highest_moment_of_any_rank(schedule, pipeline, offload):
    chunks = 2 if schedule == "interleaved" else 1
    changes = {"strategy.pipeline": 4, "strategy.microbatches": 12, **pipeline}
    changes |= {"strategy.schedule": schedule, "strategy.chunks": chunks, "strategy.nodes": 6}
    if schedule == "dualpipe" and pipeline:  # an even number, at least twice the stages
        changes |= {"strategy.microbatches": 24}
    run = GPT.set({**changes, "strategy.offload": offload})
    assert peak(run).total == max(moment.total for moment in moments(run))


def test_zero_splits_state_over_replicas():
    whole = predict(GPT.set({"strategy.microbatches": 2})).memory
    held = [predict(GPT.set({"strategy.zero": level})).memory for level in (1, 2, 3)]
    for name, first in (
        ("optimizer state", 0),
        ("master weights", 0),
        ("gradients", 1),
        ("weights", 2),
    ):
        for level, memory in enumerate(held):
            part = 24 if level >= first else 1
            assert memory[name] == pytest.approx(whole[name] / part), (name, level)


@pytest.mark.parametrize(("tensor", "sequence"), [(1, False), (2, False), (4, True), (8, True)])
@pytest.mark.parametrize("recompute", ["none", "selective", "full"])
def test_activations_are_what_korthikanti_count(tensor, sequence, recompute):
    """Table 2 of Korthikanti et al. 2022: bytes a layer, in fp16 with dropout."""
    from lib_dlhpc.costs.stored_activations import stored_bytes
    from lib_dlhpc.layout import parts

    s, h, a, t = 512, 768, 12, tensor
    a = 16
    base = GPT.set({"model.heads": a, "strategy.tensor": t, "strategy.recompute": recompute})
    base = base.set({"strategy.sequence_parallel": sequence})
    found = [
        stored_bytes(parts(base.set({"model.layers": layers}), 0)[0], 2, recompute)
        for layers in (3, 4)
    ]
    scores = 5 * a * s / h / t if recompute == "none" else 0.0
    each = 34 / t + scores if sequence else 10 + 24 / t + scores
    if recompute == "full":
        each = 2 / t if sequence else 2
    assert found[1] - found[0] == pytest.approx(s * h * each, rel=0.03)


def test_one_segment_at_a_time_is_made_again():
    """What backward needs beside what is kept does not grow with the number of blocks."""

    def extra(layers):
        run = GPT.set({"model.layers": layers, "strategy.recompute": "full"})
        return peak(run).terms["working set"]

    assert extra(24) == pytest.approx(extra(6), rel=1e-12)
