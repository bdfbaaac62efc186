"""Compressed gradients in the program of a step: what is sent, when, and what it takes in every engine."""

from math import inf

import numpy as np
import pytest
from same_terms import assert_same_terms
from split_runs import GPT, IMAGES, split

from lib_dlhpc import SpecError
from lib_dlhpc.costs import compression
from lib_dlhpc.costs.groups import collective, group_network
from lib_dlhpc.costs.roofline import streaming_rate
from lib_dlhpc.parallel import program
from lib_dlhpc.prediction import predict
from lib_dlhpc.prediction.reports.explain import explain
from lib_dlhpc.program import Collective, Transfer, Update, Wait, prove
from lib_dlhpc.simulation import simulate
from lib_dlhpc.spec.run_only import warnings
from lib_dlhpc.timeline import breakdown
from lib_dlhpc.training.network import Network

MODELS = {"gpt": GPT, "images": IMAGES}


def run_of(model="gpt", sparsity=0.99, jitter=0.0, **strategy):
    ways = {"data": 4, "optimizer": "momentum", **strategy}
    node = ways.pop("node", 1)
    run = split(MODELS[model], jitter=jitter, devices_per_node=node, **ways)
    return run.set({"training.sparsity": sparsity})


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("share", [0.001, 0.1, 0.9, 1.0])
def test_what_is_sent_is_counted_as_the_trainer_counts_it(model, share):
    run = run_of(model)
    pairs = whole = 0
    for each in Network(run.model).parameters:
        size = each.stop - each.start
        many = max(1, round(share * size)) if each.decays else size
        pairs, whole = (pairs + many, whole) if many < size else (pairs, whole + size)
    assert compression.sent(run.model, share) == (pairs, whole)


def test_all_of_the_exchange_is_between_backward_and_update():
    run = run_of()
    step = program(run)
    for each in step.stages[0][0].last.variants[0].instructions:
        assert not isinstance(each, Collective | Transfer | Wait)
    end = [row[0] for row in step.end]
    kinds = [type(each) for each in end if not isinstance(each, Wait)]
    assert kinds == [Transfer, Collective, Collective, Transfer, Update]
    select, pairs, whole, add, *_ = end
    sent = compression.sent(run.model, 0.01)
    assert (pairs.goal, pairs.elements) == ("allgather", 4 * sent.pairs)
    assert (whole.goal, whole.elements) == ("allreduce", sent.whole)
    bytes_of = step.stages[0][0].last.prices[0].bytes
    assert bytes_of(pairs) == 4 * 8 * sent.pairs and bytes_of(whole) == 4 * sent.whole
    memory = streaming_rate(run.machine.device)
    assert select.seconds == pytest.approx(10 * 4 * run.model.parameters / memory)
    assert add.seconds == pytest.approx(4 * sent.pairs * 16 / memory)
    prove((step,))


@pytest.mark.parametrize("node", [1, 2, 4])
@pytest.mark.parametrize("sparsity", [0.5, 0.9, 0.999])
@pytest.mark.parametrize("model", MODELS)
def test_prediction_is_simulation_in_rounds_term_by_term(model, sparsity, node):
    run = run_of(model, sparsity, node=node, data=8)
    _, played = assert_same_terms(run)
    events = breakdown(simulate(run, "events")).step_time
    assert events == pytest.approx(played.step_time, rel=1e-3 if node == 1 else 0.1)


def test_the_exchange_is_the_sum_of_its_four_parts():
    run = run_of(sparsity=0.999)
    net, sent = group_network(run, "data"), compression.sent(run.model, 1 - 0.999)
    parts = [
        compression.selection_time(run),
        collective("allgather", 4.0 * sent.pairs * 8, net).total,
        collective("allreduce", 4.0 * sent.whole, net).total,
        compression.addition_time(run, 4 * sent.pairs),
    ]
    p = predict(run)
    assert p.exposed_communication == pytest.approx(sum(parts), rel=1e-9)
    assert p.communication.total == pytest.approx(sum(parts), rel=1e-9)
    (words,) = (each for each in explain(p) if each.name == "communication")
    assert "all-gather" in words.formula and "Lin" in words.source


def test_with_jitter_ranks_wait_for_the_slowest_as_without_compression():
    dense, sparse = (run_of(sparsity=each, jitter=0.1, overlap=False) for each in (0.0, 0.99))
    assert predict(sparse).straggler_wait > 0
    plain = predict(dense.set({"strategy.optimizer": "sgd"}))  # the sums have momentum already
    for name in ("forward", "backward", "update", "straggler_wait"):
        assert getattr(predict(sparse), name) == pytest.approx(getattr(plain, name)), name


def test_a_step_is_that_after_the_warm_up_and_the_run_has_both():
    run = run_of(sparsity=0.999).set({"run.epochs": 10.0})
    warm = run.set({"training.sparsity_warm_up": 4.0})
    usual, risen = predict(run), predict(warm)
    assert risen.step_time == usual.step_time and usual.warm_up == 0
    shares = [compression.density(warm.training, epoch) for epoch in range(4)]
    longer = [predict(run.set({"training.sparsity": 1 - each})).step_time for each in shares]
    expected = sum(each - usual.step_time for each in longer) * usual.steps / 10
    assert risen.time_to_train - usual.time_to_train == pytest.approx(expected)
    assert expected > 0
    (said,) = warnings(warm)
    assert "after the warm-up" in said


def test_arrays_are_predicted_as_their_elements():
    run, values = run_of(), np.array([0.0, 0.9, 0.999])
    swept = predict(run.set({"training.sparsity": values}))
    for at, value in enumerate(values.tolist()):
        one = predict(run.set({"training.sparsity": value}))
        assert swept.step_time[at] == pytest.approx(one.step_time, rel=1e-12)
        assert swept.memory_total[at] == pytest.approx(one.memory_total, rel=1e-12)


def test_a_gather_of_pairs_grows_with_the_ranks_and_an_allreduce_does_not():
    exposed = {}
    for data in (4, 64):
        for sparsity in (0.0, 0.99):
            run = run_of(sparsity=sparsity, data=data, overlap=False, bucket=1e12)
            run = run.set({"machine.inter_node.latency": 0.0})
            exposed[data, sparsity] = float(predict(run).exposed_communication)
    assert exposed[4, 0.99] < exposed[64, 0.99]
    assert exposed[64, 0.0] < 1.5 * exposed[4, 0.0]


def test_a_rate_measured_with_compression_is_reproduced():
    run = run_of(sparsity=0.9).set(
        {"calibration.rate": 50.0, "calibration.devices": 4, "machine.device.efficiency": 0.001}
    )
    for step in (predict(run).step_time, breakdown(simulate(run)).step_time):
        assert run.global_batch / step == pytest.approx(50.0, rel=1e-9)


def test_memory_has_velocity_unsent_gradients_and_the_pairs_of_all_ranks():
    run = run_of(sparsity=0.99)
    memory, sent = predict(run).memory, compression.sent(run.model, 1 - 0.99)
    assert memory["optimizer state"] == 2 * 4 * run.model.parameters
    assert memory["communication buffer"] == 4 * 8 * sent.pairs + 4 * sent.whole


def test_one_replica_selects_and_sends_nothing():
    run = run_of(data=1)
    assert not any(isinstance(row[0], Collective) for row in program(run).end)
    sent = compression.sent(run.model, compression.density(run.training, inf))
    alone = compression.selection_time(run) + compression.addition_time(run, sent.pairs)
    assert predict(run).exposed_communication == pytest.approx(alone, rel=1e-9)
    assert predict(run.set({"training.sparsity": 0.0})).exposed_communication == 0


@pytest.mark.parametrize(
    ("other", "message"),
    [
        ({"optimizer": "adam"}, "'sgd' or 'momentum', not 'adam'"),
        ({"update": "local"}, "not 'local'"),
        ({"precision": "bf16"}, "not 'bf16'"),
        ({"wire": "fp16"}, "strategy.wire = 'same'"),
        ({"zero": 2}, "strategy.zero = 2"),
        ({"tensor": 2}, "strategy.tensor = 2"),
        ({"microbatches": 2}, "legal value is 0"),
    ],
)
def test_what_cannot_be_compressed_is_refused(other, message):
    with pytest.raises(SpecError, match=message):
        run_of(**other)
