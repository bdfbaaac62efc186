"""Copies of the lists that collectives of ZeRO 3 took in 2021."""

import pytest

from lib_dlhpc.layout import chain
from lib_dlhpc.parallel.tensor_lists import PERSISTENT, copied_after_update, elements
from lib_dlhpc.prediction import predict
from lib_dlhpc.simulation import simulate_terms
from lib_dlhpc.spec.experiment import Experiment

COPY = 10e-6
RANKS, LAYERS, HIDDEN = 16, 4, 512


def run(**changes: object) -> Experiment:
    strategy = {"precision": "fp16", "optimizer": "adam", "overlap": False, "batch": 2, "nodes": 2}
    return Experiment(
        model={"name": "gpt3-175b", "layers": LAYERS, "hidden": HIDDEN, "heads": 8},
        dataset="webtext",
        machine={"name": "selene", "jitter": 0.0},
        strategy={**strategy, "zero": 3, "zero_unit": "layer", **changes},
    )


def longer(experiment: Experiment) -> tuple[float, float]:
    """Return the seconds that a step of 16 ranks gains by copies, and what else they move."""
    device = experiment.machine.device
    dear = float(predict(experiment.set({"machine.device.list_copy": 2 * COPY})).step_time)
    price = float(predict(experiment.set({"machine.device.list_copy": COPY})).step_time)
    none = float(predict(experiment).step_time)
    return dear - price, (2 * price - dear - none) * device.memory_bandwidth * device.streaming


def weights(experiment: Experiment) -> list[int]:
    (part,) = chain(experiment)[0]
    return [size for layer in elements(part.model) for size in layer]


@pytest.mark.parametrize(("recompute", "gathers"), [("none", 2), ("full", 3)])
def test_a_step_copies_as_often_as_the_source_of_deepspeed_says(recompute, gathers):
    """Large weights are gathered before each pass, gradients of all are scattered, small weights gathered once."""
    experiment = run(recompute=recompute)
    every = weights(experiment)
    large = [size for size in every if size >= PERSISTENT]
    small = [size for size in every if size < PERSISTENT]
    assert len(large) >= 4 * LAYERS + 1 and len(small) >= 8 * LAYERS
    # Not gathered again for backward: what a recomputed block ends with, and what is not recomputed.
    seconds, moved = longer(experiment)
    lists = seconds / COPY / RANKS
    kept = gathers * len(large) + len(every) + len(small) - lists
    assert kept == pytest.approx(round(kept), abs=1e-6)
    assert 0 <= round(kept) <= (LAYERS + 5 if recompute == "full" else 2)
    assert moved > 2 * 2 * 2 * sum(large)


def test_the_update_is_followed_by_copies_of_small_weights_alone():
    experiment = run().set({"machine.device.list_copy": COPY})
    small = [size for size in weights(experiment) if size < PERSISTENT]
    device = experiment.machine.device
    moved = 2 * 2 * sum(small) / (device.memory_bandwidth * device.streaming)
    (held,) = [tuple(chain(experiment)[0])]
    assert copied_after_update(experiment, held) == pytest.approx(RANKS * len(small) * COPY + moved)


@pytest.mark.parametrize("changes", [{"zero": 2, "zero_unit": "block"}, {"zero_unit": "block"}])
def test_collectives_of_whole_buffers_copy_no_lists(changes):
    assert longer(run(**changes)) == pytest.approx((0.0, 0.0), abs=1e-12)


def test_the_simulation_copies_the_same_lists():
    experiment = run(recompute="full").set({"machine.device.list_copy": COPY})
    simulated = simulate_terms(experiment, seed=0)
    assert simulated.step_time == pytest.approx(float(predict(experiment).step_time), rel=1e-9)
