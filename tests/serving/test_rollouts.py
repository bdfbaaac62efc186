"""Post-training with rollouts: the simulator's times, closed forms, and what asynchrony can and cannot hide."""

import numpy as np
import pytest
from services import large

from lib_dlhpc.errors import SpecError
from lib_dlhpc.prediction import predict
from lib_dlhpc.serving import generate, predict_iteration, predict_service, simulate_service
from lib_dlhpc.serving.price import Prices
from lib_dlhpc.serving.rollouts import SCORES
from lib_dlhpc.spec.experiment import Experiment


def rollouts(model="llama3-8b", **changes):
    """Return a service whose requests are all there at once."""
    own = {"prompt": 300, "answer": 200, "answer_spread": 0.8, "count": 24, "batch": 64}
    return large(model, "h100-pod", **{**own, "rate": 0.0, **changes})


def update(model="llama3-8b", nodes=1):
    """Return a training step on 24 samples of 500 tokens."""
    return predict(
        Experiment(
            model={"name": model, "sequence": 500},
            dataset={"name": "webtext", "samples": 24},
            machine="h100-pod",
            strategy={
                "nodes": nodes,
                "batch": 3,
                "microbatches": 3,
                "zero": 3,
                "precision": "bf16",
                "optimizer": "adam",
                "recompute": "full",
            },
        )
    )


CASES = {
    "all fit": {},
    "replicas": {"replicas": 4},
    "more than slots": {"batch": 5, "replicas": 3},
    "one slot": {"batch": 1},
    "answers of one token": {"answer": 2, "answer_spread": 1.0, "batch": 4},
    "long prompts": {"prompt": 5000, "prompt_spread": 0.5},
    "a window": {"model": "mistral-7b", "prompt": 3900, "answer": 400},
}


@pytest.mark.parametrize("changes", CASES.values(), ids=CASES)
def test_every_answer_ends_when_the_simulator_says(changes):
    service = rollouts(**changes)
    trace = simulate_service(service)
    assert not trace.preemptions
    ends = [each.end for each in trace.requests]
    assert generate(service).ends == pytest.approx(ends, rel=1e-9)


def test_one_device_with_equal_answers_is_the_closed_form():
    service = rollouts(answer_spread=0.0)
    prices = Prices(service)
    whole = prices.prompts(24, 300).total + prices.answers(24, 300, 200).total
    assert generate(service).seconds == pytest.approx(whole)
    assert generate(service).seconds == pytest.approx(
        24 * 200 / predict_service(service.set(batch=24)).full.tokens_per_second
    )


@pytest.mark.parametrize("replicas", [1, 4, 8])
def test_equal_lengths_leave_no_empty_slots(replicas):
    made = generate(rollouts(answer_spread=0.0, replicas=replicas))
    assert made.busy == pytest.approx(1) and made.tail == pytest.approx(0, abs=1e-9)
    assert made.tokens == 24 * 200


def test_slots_are_busy_as_long_as_requests_are_inside():
    service = rollouts(replicas=2)
    trace = simulate_service(service)
    slots = 12 * 2 * trace.end
    assert generate(service).busy == pytest.approx(trace.latency.sum() / slots)


@pytest.mark.parametrize("spread", [0.0, 0.5, 1.5])
def test_generation_takes_no_less_than_the_longest_answer_and_longer_tails_more(spread):
    service = rollouts(answer_spread=spread)
    longest = int(max(each.answer for each in simulate_service(service).requests))
    alone = Prices(service).answers(1, 300, longest).total
    iteration = predict_iteration(service, update(), 8)
    assert iteration.generation.seconds > alone
    assert iteration.seconds > iteration.generation.seconds
    more = generate(rollouts(answer_spread=spread + 0.5))
    assert more.seconds > iteration.generation.seconds and more.tail > iteration.generation.tail


def test_more_replicas_shorten_generation_but_not_below_the_longest_answer():
    times = [generate(rollouts(replicas=each, count=256)).seconds for each in (1, 4, 16)]
    assert times == sorted(times, reverse=True)
    assert times[0] / times[-1] < 4


@pytest.mark.parametrize("replicas", [1, 8])
def test_one_step_behind_is_never_slower_than_the_same_pools_in_turn(replicas):
    turn = predict_iteration(rollouts(replicas=replicas), update(), 8 + replicas)
    behind = turn._replace(behind=True)
    assert (turn.staleness, behind.staleness) == (0, 1)
    assert behind.seconds <= turn.seconds
    hidden = min(turn.generation.seconds, turn.training)
    assert turn.seconds - behind.seconds == pytest.approx(hidden)


def test_the_parts_are_those_of_the_engines():
    service, step = rollouts(replicas=8), update()
    own, near = (predict_iteration(service, step, devices) for devices in (16, 8))
    assert own.update == float(step.step_time) and own.score == SCORES * float(step.forward)
    link = service.machine.inter_node
    weights = 2 * service.model.parameters / (link.bandwidth * link.efficiency)
    assert own.transfer == pytest.approx(link.latency + weights, rel=1e-3)
    assert near.transfer < own.transfer  # within a node
    assert own.seconds == pytest.approx(
        own.generation.seconds + own.score + own.update + own.transfer
    )


@pytest.mark.parametrize(
    "changes", [{"chunk": 64}, {"batching": "static"}, {"replicas": 2, "prefill_replicas": 1}]
)
def test_what_is_left_out_is_refused(changes):
    with pytest.raises(SpecError, match="legal for rollouts"):
        generate(rollouts(**changes))


def test_ends_have_the_order_of_requests():
    made = generate(rollouts(batch=1))
    assert (np.diff(made.ends) > 0).all() and made.ends[-1] == made.seconds
