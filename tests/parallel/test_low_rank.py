"""Gradients in factors: what is sent, when, and what it takes in every engine."""

import numpy as np
import pytest
from same_terms import assert_same_terms
from split_runs import GPT, IMAGES, split

from lib_dlhpc import SpecError
from lib_dlhpc.costs import low_rank
from lib_dlhpc.costs.groups import collective, group_network
from lib_dlhpc.costs.roofline import streaming_rate
from lib_dlhpc.parallel import program
from lib_dlhpc.prediction import predict
from lib_dlhpc.prediction.reports.explain import explain
from lib_dlhpc.program import Collective, Transfer, Update, Wait, prove
from lib_dlhpc.simulation import simulate
from lib_dlhpc.timeline import breakdown

MODELS = {"gpt": GPT, "images": IMAGES}


def run_of(model="gpt", rank=2, **strategy):
    node, strategy = strategy.pop("node", 1), {"data": 4, **strategy}
    return split(MODELS[model], devices_per_node=node, **strategy).set({"training.low_rank": rank})


def test_a_layer_has_the_factors_of_its_matrix():
    """The dense layer of 8 x 32 x 32 inputs and 10 outputs, by hand; convolutions of 8 kernels, 3 or 8 channels."""
    sent = low_rank.sent(run_of("images").model, 2)
    dense, first, second = (8192, 10), (8, 27), (8, 72)
    assert sent.left + sent.right == 2 * (sum(dense) + sum(first) + sum(second))
    assert sent.whole == 10 + 8 + 8
    assert sent.elements == 81920 + 216 + 576


def test_the_program_sums_the_factors_one_after_the_other():
    run = run_of()
    step = program(run)
    end = [row[0] for row in step.end]
    found = [each for each in end if not isinstance(each, Wait)]
    kinds = [type(each) for each in found]
    assert kinds == [Transfer, Collective, Transfer, Collective, Transfer, Update]
    sent = low_rank.sent(run.model, 2)
    assert [found[at].elements for at in (1, 3)] == [sent.left + sent.whole, sent.right]
    memory = streaming_rate(run.machine.device)
    moved = sum(found[at].seconds for at in (0, 2, 4)) * memory
    assert moved == pytest.approx(9 * 4 * sent.elements)
    prove((step,))


@pytest.mark.parametrize("node", [1, 4])
@pytest.mark.parametrize("rank", [1, 4])
@pytest.mark.parametrize("model", MODELS)
def test_prediction_is_simulation_in_rounds_term_by_term(model, rank, node):
    run = run_of(model, rank, node=node, data=8)
    _, played = assert_same_terms(run)
    events = breakdown(simulate(run, "events")).step_time
    assert events == pytest.approx(played.step_time, rel=1e-3 if node == 1 else 0.1)


def test_the_exchange_is_the_sum_of_its_parts():
    run = run_of()
    net, sent = group_network(run, "data"), low_rank.sent(run.model, 2)
    parts = [low_rank.product_time(run, traffic) for traffic in (4, 1, 4)]
    for elements in (sent.left + sent.whole, sent.right):
        parts.append(collective("allreduce", 4.0 * elements, net).total)
    p = predict(run)
    assert p.exposed_communication == pytest.approx(sum(parts), rel=1e-9)
    assert p.memory["optimizer state"] == 2 * 4 * run.model.parameters  # momentum and errors
    (words,) = (each for each in explain(p) if each.name == "communication")
    assert "Vogels" in words.source


def test_wide_factors_are_bound_by_arithmetic_and_narrow_ones_by_memory():
    narrow, wide = run_of("images", 1), run_of("images", 8)
    slow = {"machine.device.efficiency": 1e-5}
    elements = low_rank.sent(narrow.model, 1).elements
    memory = 4 * elements / streaming_rate(narrow.machine.device)
    assert low_rank.product_time(narrow, 1) == pytest.approx(memory)
    flop = 2 * 8 * low_rank.sent(wide.model, 8).elements
    rate = wide.machine.device.peak["fp32"] * 1e-5
    assert low_rank.product_time(wide.set(slow), 1) == pytest.approx(flop / rate)


def test_arrays_are_predicted_as_their_elements():
    run, ranks = run_of(), np.array([0, 1, 4])
    swept = predict(run.set({"training.low_rank": ranks})).step_time
    for at, rank in enumerate(ranks.tolist()):
        one = predict(run.set({"training.low_rank": rank})).step_time
        assert swept[at] == pytest.approx(one, rel=1e-12)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"training.sparsity": 0.9}, "legal value is 0"),
        ({"strategy.zero": 1}, "strategy.zero = 1"),
        ({"strategy.update": "local"}, "not 'local'"),
        ({"strategy.wire": "bf16"}, "strategy.wire = 'same'"),
    ],
)
def test_what_cannot_be_factored_is_refused(changes, message):
    with pytest.raises(SpecError, match=message):
        run_of().set(changes)
