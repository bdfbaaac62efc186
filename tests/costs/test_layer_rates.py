"""Layers at measured rates: the law is the sum, the sample needs no gradient, and without rates nothing changes."""

from dataclasses import replace

import numpy as np
import pytest

from lib_dlhpc import layout
from lib_dlhpc.costs import layer_rates
from lib_dlhpc.costs.device_work import device_work
from lib_dlhpc.costs.roofline import layer_times, update_time
from lib_dlhpc.prediction import predict
from lib_dlhpc.simulation import simulate
from lib_dlhpc.spec.experiment import Experiment, read_model
from lib_dlhpc.spec.layer_rate import LayerRate
from lib_dlhpc.spec.machine import load_machine

DEVICE = load_machine("laptop").device
DENSE = LayerRate(1e-6, 1e10, 1e9, 2e-6, 2e10, 2e9)
MODEL = read_model({"family": "mlp", "widths": [20, 30, 10]})


def test_the_time_of_a_layer_is_the_sum_of_its_terms():
    times = layer_times(MODEL, replace(DEVICE, layers={"dense": DENSE}), 8, "fp32")
    plain = layer_times(MODEL, DEVICE, 8, "fp32")
    work, data = 8 * 2 * 20 * 30, 4 * (8 * (20 + 30) + 20 * 30 + 30)
    assert times.forward[0] == pytest.approx(1e-6 + work / 1e10 + data / 1e9)
    # Only the gradient of the weights, one of two: what is read is the sample.
    assert times.backward[0] == pytest.approx(2e-6 / 2 + work / 2e10 + data / 2e9)
    work, data = 8 * 2 * 30 * 10, 4 * (8 * (30 + 10) + 30 * 10 + 10)
    assert times.backward[2] == pytest.approx(2e-6 + 2 * (work / 2e10 + data / 2e9))
    assert MODEL.layers[1].kind == "relu"
    assert times.forward[1] == plain.forward[1] and times.backward[1] == plain.backward[1]


def test_slowdown_and_overhead_stand_over_and_beside_all_of_it():
    plain = layer_times(MODEL, DEVICE, 8, "fp32")
    slow = layer_times(MODEL, replace(DEVICE, overhead=1e-3, slowdown=3.0), 8, "fp32")
    assert slow.forward.sum() == pytest.approx(3 * (plain.forward.sum() + 1e-3))
    np.testing.assert_allclose(slow.backward, 3 * plain.backward)
    updated = update_time(MODEL, replace(DEVICE, slowdown=3.0), "sgd")
    assert updated == pytest.approx(3 * update_time(MODEL, DEVICE, "sgd"))


def test_an_update_has_a_pace_of_its_own_by_name():
    device = replace(DEVICE, layers={"adam": LayerRate(launch=1e-5, bandwidth=1e9)})
    moved = 4 * 7 * MODEL.parameters
    assert update_time(MODEL, device, "adam") == pytest.approx(1e-5 + moved / 1e9)
    assert update_time(MODEL, device, "sgd") == update_time(MODEL, DEVICE, "sgd")


OUTSIDE = {
    layer_rates.SAMPLES: LayerRate(launch=1e-6, bandwidth=1e9),
    layer_rates.LOSS: LayerRate(launch=2e-6, bandwidth=5e8),
}


def test_samples_and_the_loss_have_rates_of_their_own():
    plain = layer_times(MODEL, DEVICE, 8, "fp32")
    times = layer_times(MODEL, replace(DEVICE, layers=OUTSIDE), 8, "fp32")
    more = times.forward - plain.forward
    assert more == pytest.approx([1e-6 + 8 * 20 * 4 / 1e9, 0, 2e-6 + 8 * 10 * 4 / 5e8])
    np.testing.assert_array_equal(times.backward, plain.backward)


def test_the_first_stage_copies_the_samples_and_the_last_computes_the_loss():
    laid = run(pipeline=4, microbatches=4)
    spent = [
        layer_rates.outside(part.model, OUTSIDE, np.array([4]), 4).sum()
        for rank in range(4)
        for part in layout.parts(laid, rank)
    ]
    whole = layer_rates.outside(laid.model, OUTSIDE, np.array([4]), 4)
    assert spent == pytest.approx([whole[0], 0.0, 0.0, whole[-1]])
    assert whole[0] > 0 < whole[-1] and whole.sum() == pytest.approx(sum(spent))


def test_a_convolution_moves_its_columns_as_well():
    table = {"family": "sequential", "input": [3, 8, 8]}
    conv = {"kind": "conv", "channels": 4, "kernel": 3, "padding": 1}
    elements, parameters = layer_rates.moved(read_model(table | {"layers": [conv]}))
    assert elements[0] == 3 * 64 + 4 * 64 + 3 * 3 * 64  # one copy for each tap of a row
    assert parameters[0] == 4 * 3 * 9 + 4
    # A kernel of one element may read the input itself.
    for stride, columns in ((1, 0), (2, 3 * 16)):
        pointwise = {"kind": "conv", "channels": 4, "kernel": 1, "stride": stride}
        elements, _ = layer_rates.moved(read_model(table | {"layers": [pointwise]}))
        assert elements[0] == 3 * 64 + 4 * 64 / stride**2 + columns


def test_a_large_convolution_of_kernel_3_moves_tiles_and_multiplies_less():
    # Of each tile, 6 elements for 4 outputs, copied and transformed; the last tiles may reach out of the space.
    cases = (
        (64, [16, 16], 1 / 2, 2 * 1.5),
        (64, [5, 7], 1 / 2 * 8 / 7, 2 * 1.5 * 8 / 7),
        (32, [8, 8, 8], 1 / 4, 2 * 1.5**2),
    )
    for channels, space, less, traffic in cases:
        conv = {"kind": "conv", "channels": 64, "kernel": 3, "padding": 1}
        table = {"family": "sequential", "input": [channels, *space], "layers": [conv]}
        whole, positions = read_model(table), np.prod(space)
        assert layer_rates.computed(whole)[0] == pytest.approx(less * whole.forward_flop)
        moved = (1 + traffic) * (channels + 64) * positions
        assert layer_rates.moved(whole)[0][0] == pytest.approx(moved)


def test_what_is_dropped_is_reported_from_what_is_not():
    kinds = {
        rate: {layer.traits.rate_key(layer) for layer in model(rate).layers} for rate in (0.0, 0.1)
    }
    assert {"attention", "dropout_of_none"} <= kinds[0.0]
    assert {"attention_with_dropout", "dropout"} <= kinds[0.1]


def model(rate):
    sizes = {"layers": 1, "hidden": 8, "heads": 2, "sequence": 4, "vocabulary": 16}
    return read_model({"family": "gpt", "dropout": rate, **sizes})


def run(**strategy):
    return Experiment(
        model="mlp-mnist",
        dataset="mnist-5k",
        machine={
            "name": "laptop",
            "jitter": 0.0,
            "progress": False,
            "device": {"overhead": 1e-4, "layers": {"dense": {"launch": 1e-5}}},
        },
        strategy={"bucket": "8 kB", **strategy},
    )


@pytest.mark.parametrize(
    "strategy",
    [{}, {"pipeline": 4, "microbatches": 4}, {"tensor": 4}, {"pipeline": 2, "microbatches": 2}],
)
def test_both_simulations_have_the_same_step(strategy):
    experiment = run(**strategy)
    predicted = float(predict(experiment).step_time)
    for fidelity in ("rounds", "events"):
        played = simulate(experiment, fidelity=fidelity)
        assert float(played.stop.max()) == pytest.approx(predicted, rel=0.06), fidelity


def test_without_progress_all_of_the_exchange_shows():
    experiment = run()
    own = predict(experiment)
    assert own.exposed_communication == pytest.approx(own.communication.total)
    freed = predict(experiment.set({"machine.progress": True}))
    assert freed.exposed_communication < own.exposed_communication
    bare = predict(experiment.set({"machine.progress": True, "strategy.overlap": False}))
    assert bare.step_time == own.step_time


def test_arrays_of_batches_are_what_their_batches_are_one_by_one():
    batches = np.array([1, 8, 64])
    many = device_work(run().set({"strategy.batch": batches}), 1.0)
    for at, batch in enumerate(batches):
        one = device_work(run(batch=int(batch)), 1.0)
        assert many.forward[at] == pytest.approx(one.forward)
        assert many.backward[at] == pytest.approx(one.backward)
    slowed = predict(run().set({"machine.device.slowdown": np.array([1.0, 2.0])}))
    assert slowed.forward[1] == pytest.approx(2 * slowed.forward[0])
