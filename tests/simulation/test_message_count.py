"""The messages of a simulation are known before it begins; what would take too long is refused."""

import pytest
from split_runs import GPT, IMAGES, MOE

from lib_dlhpc import SpecError
from lib_dlhpc.simulation import simulate
from lib_dlhpc.simulation.message_count import messages
from lib_dlhpc.simulation.size import check_messages
from lib_dlhpc.spec.experiment import read_experiment

CASES = [
    (GPT, {"nodes": 1}),
    (GPT, {"nodes": 5}),
    (GPT, {"nodes": 8, "bucket": 1e4, "allreduce": "rabenseifner"}),
    (GPT, {"nodes": 8, "allreduce": "hierarchical", "devices_per_node": 4}),
    (GPT, {"nodes": 4, "update": "local", "local_steps": 3}),
    (GPT, {"nodes": 4, "update": "asynchronous", "servers": 2}),
    (GPT, {"nodes": 5, "bucket": 1e4, "wire": "fp8"}),
    (GPT, {"nodes": 5, "training": {"sparsity": 0.9}}),
    (GPT, {"nodes": 5, "training": {"low_rank": 2}}),
    (GPT, {"nodes": 4, "tensor": 4}),
    (GPT, {"nodes": 4, "tensor": 2, "sequence_parallel": True}),
    (GPT, {"nodes": 4, "tensor": 4, "recompute": "full"}),
    (GPT, {"nodes": 4, "zero": 1, "bucket": 1e4}),
    (GPT, {"nodes": 4, "zero": 2, "microbatches": 2, "bucket": 1e4}),
    (GPT, {"nodes": 3, "zero": 3, "microbatches": 2, "overlap": False}),
    (GPT, {"nodes": 6, "pipeline": 3, "microbatches": 4}),
    (GPT | {"vocabulary": 5000}, {"nodes": 4, "pipeline": 4, "microbatches": 2}),
    (GPT, {"nodes": 4, "pipeline": 2, "chunks": 2, "schedule": "interleaved", "microbatches": 4}),
    (GPT, {"nodes": 4, "pipeline": 2, "schedule": "dualpipe", "microbatches": 4, "bucket": 1e4}),
    (GPT, {"nodes": 8, "pipeline": 2, "tensor": 2, "zero": 1, "microbatches": 2, "bucket": 1e4}),
    (MOE, {"nodes": 4, "experts": 4}),
    (MOE, {"nodes": 4, "experts": 2, "tensor": 2, "devices_per_node": 2}),
    (GPT, {"nodes": 4, "context": 2, "microbatches": 2}),
    (GPT, {"nodes": 4, "context": 4, "context_exchange": "ring"}),
    (IMAGES, {"nodes": 4, "spatial": 2}),
    (IMAGES, {"nodes": 6, "spatial": 3, "microbatches": 2, "bucket": 1e3}),
    (IMAGES, {"nodes": 4, "tensor": 2, "split": "column"}),
]


def run_of(model, ways):
    strategy = {"batch": 12, "devices_per_node": 1, **ways}
    training = strategy.pop("training", {})
    tables = {"model": model, "dataset": {"name": "imagenet"}, "strategy": strategy}
    tables["training"] = training
    return read_experiment(tables | {"machine": {"name": "h100-pod", "nodes": 64}})


@pytest.mark.parametrize(("model", "ways"), CASES, ids=str)
def test_the_estimate_is_what_is_delivered(model, ways):
    """Progress reports have one total, never decrease, and end at the total."""
    run, reports = run_of(model, ways), []
    simulate(run, "events", steps=2, progress=lambda *now: reports.append(now))
    sent = messages(run, 2)
    if sent:
        assert reports[-1][1] == sent
    assert all(total == sent for _, _, total in reports)
    done = [delivered for _, delivered, _ in reports]
    assert done == sorted(done) and all(each < sent for each in done[:-1])


def test_too_many_messages_are_refused_with_what_to_do():
    run = run_of({"name": "bert-large"}, {"nodes": 1, "batch": 1, "allreduce": "ring"})
    run = run.set({"machine.nodes": 1024, "strategy.nodes": 1024})
    with pytest.raises(SpecError) as error:
        simulate(run, "events")
    for words in (
        "messages to follow",
        "--fidelity rounds",
        "fewer ranks",
        "--message-limit",
        "min",
    ):
        assert words in str(error.value)
    assert check_messages(run, "rounds", 1) == 0
    assert check_messages(run, "events", 1, 10**12) == messages(run, 1)


@pytest.mark.parametrize(("model", "ways"), CASES, ids=str)
def test_counting_stops_above_the_limit(model, ways):
    run = run_of(model, ways)
    sent = messages(run, 1)
    assert messages(run, 1, sent) == sent
    if sent > 1:
        assert sent // 2 < messages(run, 1, sent // 2) <= sent


def test_rounds_of_a_split_network_tell_how_far_they_are_and_can_be_cancelled():
    from lib_dlhpc.simulation.watchdog import Cancelled

    run, reports = run_of(GPT, {"nodes": 4, "pipeline": 4, "microbatches": 8}), []
    simulate(run, steps=2, progress=lambda *now: reports.append(now))
    seconds, done, total = zip(*reports, strict=True)
    assert list(done) == sorted(done) and {done[-1]} == set(total)
    assert all(value >= 0 for value in seconds)
    with pytest.raises(Cancelled):
        simulate(run, progress=lambda *_: False)
