"""A real run: the scheduler of the simulation, real tokens; four numbers of a decoder from its steps."""

from dataclasses import replace

import numpy as np
import pytest
from services import cramped, tiny

from lib_dlhpc.errors import SpecError
from lib_dlhpc.serving import decode, run_service, simulate_service
from lib_dlhpc.serving.measure import fitted
from lib_dlhpc.serving.price import Chunk, Prices


@pytest.fixture(scope="module")
def one_by_one():
    """The answers of a service that decodes one request at a time."""
    return run_service(tiny(batch=1, prompt_spread=0.5, answer_spread=0.5)).answers


@pytest.mark.parametrize(
    "changes", [{"batch": 4}, {"batch": 4, "batching": "static"}, {"batch": 4, "chunk": 3}]
)
def test_answers_do_not_depend_on_the_batch(changes, one_by_one):
    trace = run_service(tiny(prompt_spread=0.5, answer_spread=0.5, **changes))
    assert trace.answers == one_by_one
    assert [len(each) for each in trace.answers] == [each.answer for each in trace.requests]


def test_answers_survive_preemption():
    service = tiny(batch=6, answer=20, count=6)
    small = run_service(cramped(service, 3))
    assert small.preemptions
    assert small.answers == run_service(service).answers


def test_answers_are_those_of_decode():
    service = tiny(count=1)
    rng = np.random.default_rng([0, 2])
    prompt = rng.integers(0, 32, 6).tolist()
    assert run_service(service).answers == decode(service.model, [prompt], 5, 0, np.float64)


def test_steps_are_those_of_the_simulation_where_all_arrive_at_once():
    service = tiny(answer_spread=0.5)
    real, simulated = run_service(service), simulate_service(service)
    rows = [[(s.prompt_tokens, s.sequences, s.cache) for s in t.steps] for t in (real, simulated)]
    assert rows[0] == rows[1]
    assert all(step.end > step.start for step in real.steps)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"devices": 2}, "service.devices = 2"),
        ({"precision": "bf16"}, "service.precision = 'bf16'"),
        ({"cache_precision": "fp32"}, "with weights and cache alike"),
    ],
)
def test_what_numpy_cannot_serve_is_refused(changes, words):
    with pytest.raises(SpecError, match=words):
        run_service(tiny(**changes))


def test_four_numbers_are_found_again_in_the_steps_that_they_give():
    truth = fitted(tiny(), lambda work: 1e-3 + 1e-5 * work[0] * (work[1] + work[2]))
    prices = Prices(truth)

    def seconds(work):
        sequences, tokens, before = work
        if tokens == 1:
            return prices.decode(sequences, before + 1).total
        return prices.step([Chunk(tokens, before)] * sequences).total

    again = Prices(fitted(tiny(), seconds))
    for work in ((1, 9, 0), (2, 1, 30), (4, 1, 3)):
        step = [Chunk(work[1], work[2])] * work[0]
        assert again.step(step).total == pytest.approx(prices.step(step).total, rel=1e-6)


def test_a_fitted_service_keeps_all_but_the_times_of_its_device():
    service = tiny()
    found = fitted(service, lambda work: 1e-3)
    assert found.requests == service.requests
    assert replace(found.machine, device=service.machine.device) == service.machine
    assert found.machine.device.memory == service.machine.device.memory
