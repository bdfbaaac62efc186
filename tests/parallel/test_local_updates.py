"""Local updates with an outer optimizer: an update more after each average, in every engine."""

import numpy as np
import pytest
from split_runs import GPT, split

from lib_dlhpc import SpecError
from lib_dlhpc.costs.roofline import streaming_rate
from lib_dlhpc.parallel import steps
from lib_dlhpc.prediction import predict
from lib_dlhpc.prediction.reports.explain import explain
from lib_dlhpc.program import Transfer, prove
from lib_dlhpc.simulation import simulate
from lib_dlhpc.simulation.step_terms import measure
from lib_dlhpc.training.outer_optimizer import Outer

DILOCO = {"training.outer_rate": 0.7, "training.outer_momentum": 0.9}


def run_of(every=4, jitter=0.0, **training):
    run = split(GPT, jitter=jitter, data=4, update="local", local_steps=every)
    return run.set({f"training.{name}": value for name, value in training.items()})


def seconds_of(run, numbers):
    return 4 * numbers * run.model.parameters / streaming_rate(run.machine.device)


def test_plain_averages_have_no_outer_update():
    plain, same = steps(run_of()), steps(run_of(outer_rate=1.0, outer_momentum=0.0))
    assert [each.end for each in plain] == [each.end for each in same]
    assert not any(isinstance(row[0], Transfer) for each in plain for row in each.end)


@pytest.mark.parametrize(
    ("outer", "numbers"),
    [
        ({"outer_rate": 0.7}, 4),
        ({"outer_momentum": 0.9}, 6),
        ({"outer_rate": 0.7, "outer_momentum": 0.9}, 6),
    ],
)
def test_only_the_step_with_an_average_has_an_outer_update(outer, numbers):
    run = run_of(**outer)
    moves = [[row[0] for row in each.end if isinstance(row[0], Transfer)] for each in steps(run)]
    assert [len(each) for each in moves] == [0, 0, 0, 1]
    assert moves[-1][0].seconds == pytest.approx(seconds_of(run, numbers))
    prove(steps(run))


@pytest.mark.parametrize("every", [1, 4, 7])
@pytest.mark.parametrize("fidelity", ["rounds", "events"])
def test_without_jitter_it_is_as_predicted(every, fidelity):
    run = run_of(every).set(DILOCO)
    found, expected = measure(run, simulate(run, fidelity, steps=2 * every)), predict(run)
    within = 1e-9 if fidelity == "rounds" else 1e-4
    for name, seconds in expected.terms.items():
        assert found.terms[name] == pytest.approx(float(seconds), abs=within * found.step_time), (
            name
        )


@pytest.mark.parametrize(
    "way",
    [
        {"recompute": "full"},
        {"recompute": "light"},
        {"loss": "separate", "precision": "bf16"},
        {"offload": "activations"},
        {"offload": "all"},
        {"offload": "all", "recompute": "full"},
    ],
    ids=str,
)
def test_what_else_a_rank_does_leaves_the_average_its_share(way):
    """The exchange, and the wait for the slowest, are those of one average in four steps."""
    for host in (1e9, 1e12):
        run = (
            run_of()
            .set({"machine.host_link.bandwidth": host})
            .set({f"strategy.{name}": value for name, value in way.items()})
        )
        expected = predict(run)
        for many in (4, 12):
            found = measure(run, simulate(run, steps=many))
            for name, seconds in expected.terms.items():
                within = pytest.approx(float(seconds), abs=1e-9 * found.step_time)
                assert found.terms[name] == within, name
    often = predict(run.set({"strategy.local_steps": 1}))
    assert expected.messages["data"].total == pytest.approx(often.messages["data"].total / 4)


def test_a_step_has_its_share_of_the_outer_update():
    for every in (1, 10):
        run = run_of(every)
        plain, outer = predict(run), predict(run.set(DILOCO))
        more = seconds_of(run, 6) / every
        assert outer.step_time - plain.step_time == pytest.approx(more)
        assert outer.exposed_communication - plain.exposed_communication == pytest.approx(more)
    (words,) = (each for each in explain(outer) if each.name == "communication")
    assert "outer update" in [name for name, *_ in words.inputs]


def test_memory_has_the_reference_and_the_velocity():
    sizes = [
        predict(run_of(outer_rate=rate, outer_momentum=momentum)).memory["optimizer state"]
        for rate, momentum in ((1.0, 0.0), (0.7, 0.0), (0.7, 0.9))
    ]
    weights = 4 * run_of().model.parameters
    assert sizes == [weights, 2 * weights, 3 * weights]


def test_arrays_are_predicted_as_their_elements():
    momenta = np.array([0.0, 0.5, 0.9])
    swept = predict(run_of().set({"training.outer_momentum": momenta}))
    for at, momentum in enumerate(momenta.tolist()):
        one = predict(run_of(outer_momentum=momentum))
        assert swept.step_time[at] == pytest.approx(one.step_time, rel=1e-12)


def test_a_rate_measured_with_an_outer_optimizer_is_reproduced():
    slow = {"machine.device.efficiency": 0.001}
    run = run_of().set({**DILOCO, **slow, "calibration.rate": 50.0, "calibration.devices": 4})
    played = measure(run, simulate(run, steps=4)).step_time
    for step in (predict(run).step_time, played):
        assert run.global_batch / step == pytest.approx(50.0, rel=1e-9)


@pytest.mark.parametrize("key", DILOCO)
def test_it_needs_local_updates(key):
    with pytest.raises(SpecError, match=r"strategy\.update = 'local'"):
        split(GPT, data=4).set({key: DILOCO[key]})


def test_the_rule_is_the_papers():
    """On one weight, by hand: reference 1, mean 0.5, then 0.25."""
    from types import SimpleNamespace

    from lib_dlhpc.spec.training import Training
    from lib_dlhpc.training.optimizers import Optimizer

    network, training = (
        SimpleNamespace(weights=np.ones(1)),
        Training(outer_rate=0.5, outer_momentum=0.8),
    )
    outer = Outer(training, network, Optimizer("sgd", training))
    network.weights[:] = 0.5
    outer.update()  # v = 0.5; w = 1 - 0.5 (0.5 + 0.8 0.5) = 0.55
    assert network.weights[0] == pytest.approx(0.55)
    network.weights[:] = 0.25
    outer.update()  # d = 0.3; v = 0.7; w = 0.55 - 0.5 (0.3 + 0.56) = 0.12
    assert network.weights[0] == pytest.approx(0.12)
