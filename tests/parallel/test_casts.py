"""Gradients in another format on the wire: fewer bytes, two casts a bucket, and nothing else changes."""

import numpy as np
import pytest
from same_terms import assert_same_terms
from split_runs import GPT, split

from lib_dlhpc import SpecError
from lib_dlhpc.costs.wire_format import cast_time
from lib_dlhpc.parallel import program
from lib_dlhpc.prediction import predict
from lib_dlhpc.prediction.changes.no_effect import without_effect
from lib_dlhpc.prediction.reports.explain import explain
from lib_dlhpc.program import Collective, Transfer, prove
from lib_dlhpc.simulation import simulate
from lib_dlhpc.timeline import breakdown

BYTES = {"fp64": 8, "fp32": 4, "fp16": 2, "bf16": 2}


def run_of(**strategy):
    return split(GPT, **{"data": 4, "bucket": 1e4, **strategy})


def instructions(run):
    step = program(run)
    last = step.stages[0][0].last.variants[0].instructions
    return [*last, *(row[0] for row in step.end)], step.stages[0][0].last.prices[0]


def sent(run, fidelity):
    """Bytes of the buckets of rank 0, by name."""
    table = simulate(run, fidelity)
    rows = [each for each in table if each.rank == 0 and each.kind == "communication"]
    return {each.name: each.bytes for each in rows}


@pytest.mark.parametrize("wire", ["same", "fp32"])
def test_a_format_that_gradients_have_changes_no_instruction(wire):
    found, _ = instructions(run_of(wire=wire))
    assert found == instructions(run_of())[0]
    assert not any(isinstance(each, Transfer) for each in found)


@pytest.mark.parametrize("overlap", [True, False])
@pytest.mark.parametrize("wire", ["fp16", "bf16"])
def test_each_bucket_is_cast_before_and_after(wire, overlap):
    run = run_of(wire=wire, overlap=overlap)
    found, prices = instructions(run)
    plain, _ = instructions(run_of(overlap=overlap))
    buckets = [at for at, each in enumerate(found) if isinstance(each, Collective) and each.layers]
    assert len(buckets) > 2
    for at in buckets:
        size = 4 * found[at].elements
        (before, after), seconds = (found[at - 1], found[at + 1]), 1.5 * size
        seconds /= run.machine.device.memory_bandwidth
        for cast in (before, after):
            assert isinstance(cast, Transfer) and cast.stream == found[at].stream
            assert cast.seconds == pytest.approx(seconds) and cast.bytes == 0
        assert prices.bytes(found[at]) == size / 2
    rest = [each for each in found if not isinstance(each, Transfer)]
    assert [
        each._replace(content="") if isinstance(each, Collective) else each for each in rest
    ] == [each._replace(content="") if isinstance(each, Collective) else each for each in plain]
    prove((program(run),))


@pytest.mark.parametrize("fidelity", ["rounds", "events"])
@pytest.mark.parametrize(("precision", "wire"), [("fp32", "fp16"), ("fp16", "fp32")])
def test_both_simulations_send_the_bytes_of_the_format(fidelity, precision, wire):
    plain, other = (
        sent(run_of(precision=precision, **more), fidelity) for more in ({}, {"wire": wire})
    )
    ratio = BYTES[wire] / BYTES[precision]
    assert {name: size * ratio for name, size in plain.items()} == {
        name: size for name, size in other.items() if not name.startswith("cast")
    }
    assert len(other) == 3 * len(plain) and not any(
        size for name, size in other.items() if name.startswith("cast")
    )


@pytest.mark.parametrize("overlap", [True, False])
def test_fp8_has_a_scale_before_each_bucket(overlap):
    run = run_of(wire="fp8", overlap=overlap)
    found, prices = instructions(run)
    buckets = [at for at, each in enumerate(found) if isinstance(each, Collective) and each.layers]
    assert len(buckets) > 2
    for at in buckets:
        search, scale, cast, bucket, back = found[at - 3 : at + 2]
        assert prices.bytes(scale) == 4 and not scale.layers
        size = 4 * bucket.elements
        memory = run.machine.device.memory_bandwidth
        seconds = [each.seconds * memory / size for each in (search, cast, back)]
        assert seconds == pytest.approx([1, 1.25, 1.25])
        assert prices.bytes(bucket) == size / 4
    _, played = assert_same_terms(run)
    events = breakdown(simulate(run, "events")).step_time
    assert events == pytest.approx(played.step_time, rel=1e-4)
    rows = [each.name for each in simulate(run) if each.rank == 0 and each.kind == "backward"]
    plain = [each.name for each in simulate(run_of(overlap=overlap)) if each.rank == 0]
    assert rows == [name for name in plain if name.startswith("backward")]


@pytest.mark.parametrize("wire", ["same", "bf16", "fp8"])
@pytest.mark.parametrize("overlap", [True, False])
def test_a_rate_measured_so_is_reproduced(wire, overlap):
    slow = {"machine.device.efficiency": 0.001}
    run = run_of(wire=wire, overlap=overlap).set(
        {**slow, "calibration.rate": 50.0, "calibration.devices": 4}
    )
    for step in (predict(run).step_time, breakdown(simulate(run)).step_time):
        assert run.global_batch / step == pytest.approx(50.0, rel=1e-9)


@pytest.mark.parametrize("ways", [{}, {"microbatches": 4}], ids=["plain", "split"])
def test_one_bucket_takes_half_the_bandwidth_and_two_casts(ways):
    run = run_of(bucket=1e12, overlap=False, allreduce="ring", **ways)
    plain, half = predict(run), predict(run.set({"strategy.wire": "bf16"}))
    casts = 2 * cast_time(run.set({"strategy.wire": "bf16"}), 4.0 * run.model.parameters)
    before, after = plain.communication, half.communication
    assert after.latency == before.latency
    assert after.reduction == pytest.approx(before.reduction / 2)
    assert after.bandwidth == pytest.approx(before.bandwidth / 2 + float(casts))
    assert half.forward == plain.forward and half.update == plain.update


def test_arrays_are_predicted_as_their_elements():
    run = run_of(wire="fp16")
    nodes = np.array([1, 2, 16, 64])
    swept = predict(run.set({"strategy.data": 0, "strategy.nodes": nodes})).step_time
    each = [
        predict(run.set({"strategy.data": 0, "strategy.nodes": int(n)})).step_time for n in nodes
    ]
    np.testing.assert_allclose(swept, each, rtol=1e-12)


def test_events_are_rounds_where_every_rank_has_a_node():
    steps = [
        breakdown(simulate(run_of(wire="bf16"), way)).step_time for way in ("rounds", "events")
    ]
    assert steps[1] == pytest.approx(steps[0], rel=1e-4)


@pytest.mark.parametrize(
    ("other", "message"),
    [
        ({"zero": 1}, "strategy.zero = 1"),
        ({"update": "local"}, "strategy.update = 'local'"),
        ({"update": "asynchronous"}, "'synchronous'"),
        ({"offload": "all"}, "'none', 'activations'"),
        ({"experts": 2}, "strategy.experts = 2"),
    ],
)
def test_what_is_no_allreduce_of_gradients_is_refused(other, message):
    with pytest.raises(SpecError, match=message):
        run_of(wire="fp16", **other)


def test_fp32_is_not_offered_where_it_is_refused():
    with pytest.raises(SpecError, match=r"strategy.zero = 1 is not legal, but 0\.$"):
        run_of(precision="fp64", wire="fp32", zero=1)


@pytest.mark.parametrize("overlap", [True, False])
@pytest.mark.parametrize("zero", [1, 2, 3])
@pytest.mark.parametrize("shards", [0, 2])
def test_sharded_sums_are_exchanged_and_kept_in_32_bits(shards, zero, overlap):
    """Each bucket is cast before its reduce-scatter, to twice the bytes; what arrives is not cast, here or back."""
    run = run_of(precision="bf16", wire="fp32", zero=zero, overlap=overlap, shards=shards)
    found, prices = instructions(run)
    sums = [at for at, each in enumerate(found) if getattr(each, "goal", "") == "reduce_scatter"]
    assert len(sums) > 2
    for at in sums:
        size = 2 * found[at].elements
        assert prices.bytes(found[at]) == 2 * size
        assert found[at - 1].seconds == pytest.approx(
            3 * size / run.machine.device.memory_bandwidth
        )
    assert sum(isinstance(each, Transfer) for each in found) == len(sums)
    whole = program(run)
    prove((whole,))
    predicted = float(predict(run).step_time)
    assert predicted > float(predict(run.set({"strategy.wire": "same"})).step_time)
    for fidelity in ("rounds", "events"):
        played = breakdown(simulate(run, fidelity)).step_time
        assert played == pytest.approx(predicted, rel=1e-6)


@pytest.mark.parametrize(
    ("ways", "each"),
    [
        ({"zero": 3}, 4 / 4),
        ({"zero": 2}, 4 / 4),
        ({"zero": 1}, 2),  # exchanged as soon as they are computed
        ({"zero": 1, "microbatches": 2}, 4),
        ({"zero": 3, "wire": "same"}, 2 / 4),
        ({"zero": 1, "microbatches": 2, "wire": "same"}, 2),
    ],
    ids=str,
)
def test_gradients_that_are_added_up_take_the_bytes_of_the_format_they_are_added_in(ways, each):
    run = run_of(**{"precision": "bf16", "wire": "fp32", **ways})
    found = float(predict(run).memory["gradients"])
    assert found == pytest.approx(each * run.model.parameters, rel=0.01)


@pytest.mark.parametrize("schedule", ["1f1b", "gpipe", "zb-h1"])
@pytest.mark.parametrize("overlap", [True, False])
@pytest.mark.parametrize("pipeline", [1, 2])
def test_what_microbatches_added_in_32_bits_leaves_without_a_cast(pipeline, overlap, schedule):
    """Megatron-LM with grad_reduce_in_fp32: start_grad_sync reduce-scatters main_grad itself."""
    how = {"pipeline": pipeline, "schedule": schedule, "overlap": overlap, "zero": 1}
    run = run_of(**how, precision="bf16", wire="fp32", microbatches=4)
    found, prices = instructions(run)
    sums = [each for each in found if getattr(each, "goal", "") == "reduce_scatter"]
    assert len(sums) > 2 and not any(isinstance(each, Transfer) for each in found)
    assert {prices.bytes(each) / each.elements for each in sums} == {4.0}
    prove((program(run),))
    predicted, _ = assert_same_terms(run)
    plain = predict(run.set({"strategy.wire": "same"}))
    more = {name: predicted.memory[name] - plain.memory[name] for name in plain.memory}
    assert more.pop("gradients") == plain.memory["gradients"]  # twice the bytes
    assert more.pop("communication buffer") <= 1e4  # of a message
    assert not any(more.values())
    (text,) = (x for x in explain(predicted) if x.name.startswith("data"))
    assert ("casts", "none") in [each[:2] for each in text.inputs]


@pytest.mark.parametrize("zero", [1, 2, 3])
def test_one_replica_keeps_its_gradients_as_they_are(zero):
    """It exchanges none, and the prediction notes that the format has no effect."""
    run = run_of(data=1, zero=zero, tensor=2, precision="bf16", wire="fp32", microbatches=2)
    found, plain = predict(run), predict(run.set({"strategy.wire": "same"}))
    assert found.memory == plain.memory and found.step_time == plain.step_time
    assert any("strategy.wire" in words for words in without_effect(run))


def test_a_cast_bucket_is_in_memory_beside_the_gradients_it_is_of():
    """DeepSpeed's allreduce_bucket, and FSDP2's copy-in, write all of it in the other format."""
    run = run_of(precision="bf16", wire="fp32", zero=1, bucket=1e5)
    memory, plain = (predict(one).memory for one in (run, run.set({"strategy.wire": "same"})))
    assert memory["gradients"] == plain["gradients"]
    assert memory["communication buffer"] == 2 * 1e5
    assert plain["communication buffer"] == 1e5


@pytest.mark.parametrize(("precision", "wire"), [("fp32", "bf16"), ("bf16", "fp8")])
def test_sharded_sums_are_not_exchanged_in_fewer_bits(precision, wire):
    with pytest.raises(SpecError, match=r"strategy.zero = 3 is not legal, but 0; or"):
        run_of(precision=precision, wire=wire, zero=3)
