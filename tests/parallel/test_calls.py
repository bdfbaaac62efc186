"""Calls of exchanges of experts."""

import pytest

from lib_dlhpc.prediction import predict
from lib_dlhpc.simulation import simulate_terms
from lib_dlhpc.spec.experiment import Experiment

CALL, LAYERS, MICROBATCHES = 150e-6, 3, 4


def run(exchange: str = "by-node", call: float = CALL, **changes: object) -> Experiment:
    device = {"name": "b200-sxm-180gb", "exchange_call": call}
    model = {"name": "mixtral-8x7b", "layers": LAYERS}
    strategy = {"nodes": 1, "batch": MICROBATCHES, "microbatches": MICROBATCHES, "experts": 8}
    return Experiment(
        model=model,
        dataset="webtext",
        machine={"name": "b200-pod", "device": device, "jitter": 0.0},
        strategy={
            "precision": "bf16",
            "optimizer": "adam",
            "zero": 1,
            **strategy,
            "expert_exchange": exchange,
            **changes,
        },
    )


def step(experiment: Experiment) -> float:
    return float(predict(experiment).step_time)


@pytest.mark.parametrize(("recompute", "passes"), [("none", 2), ("full", 3)])
def test_each_pass_of_a_layer_with_experts_calls_twice(recompute, passes, without_meeting):
    """Calls also lengthen passes, in which fewer exchanges then meet."""
    added = step(run(recompute=recompute)) - step(run(call=0.0, recompute=recompute))
    assert added == pytest.approx(2 * passes * LAYERS * MICROBATCHES * CALL, rel=1e-6)


def test_only_exchanges_of_one_copy_for_a_device_call():
    assert step(run("direct")) == step(run("direct", call=0.0))
    assert step(run("direct", experts=1)) == step(run("direct", call=0.0, experts=1))


def test_a_host_that_is_slower_than_the_device_gains_on_it_in_a_call():
    slow = {"machine.device.dispatch": 2e-3}
    assert step(run().set(slow)) == pytest.approx(step(run(call=0.0).set(slow)), rel=1e-3)


def test_the_simulation_calls_as_often():
    experiment = run(recompute="full")
    simulated = simulate_terms(experiment, seed=0)
    assert simulated.step_time == pytest.approx(step(experiment), rel=1e-9)
