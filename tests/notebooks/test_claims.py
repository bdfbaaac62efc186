"""What the texts of modules and notes say is what the library predicts."""

import numpy as np
import pytest

from lib_dlhpc.prediction import predict, sensitivity
from lib_dlhpc.prediction.validation.replays import replay
from lib_dlhpc.simulation import simulate
from lib_dlhpc.spec.experiment import loads
from lib_dlhpc.timeline import breakdown


@pytest.fixture(scope="module")
def goyal():
    return replay("goyal-2017").experiment


def test_ring_with_small_buckets_on_2048_knl_takes_more_than_twice_rabenseifner():
    small = replay("you-2018").experiment.set({"strategy.bucket": 1e6})
    ring = predict(small.set({"strategy.allreduce": "ring"}))
    other = predict(small.set({"strategy.allreduce": "rabenseifner"}))
    assert ring.step_time > 2 * other.step_time
    assert ring.communication.latency > 0.9 * ring.communication.total


def test_on_summits_file_system_metadata_is_the_limit_and_packed_records_remove_it():
    files = loads(
        'model.name = "resnet50"\ndataset.name = "imagenet"\nmachine.name = "summit"\n'
        'strategy = {nodes = 512, batch = 64}\nstorage.tier = "gpfs"'
    )
    stalled = predict(files)
    assert stalled.input_stall > 0.5 * stalled.step_time
    helps = sensitivity(stalled)
    assert helps["storage bandwidth"] == 0 and helps["metadata rate"] == max(helps.values()) > 0.4
    assert predict(files.set({"dataset.name": "imagenet-tfrecord"})).input_stall == 0


def test_without_its_calibration_the_goyal_step_falls_by_almost_a_half(goyal):
    alone = predict(goyal.set({"calibration.rate": 0.0})).step_time
    assert 0.5 < alone / predict(goyal).step_time < 0.6


def test_for_goyals_run_faster_gpus_help_most_also_on_eight_times_the_nodes(goyal):
    for nodes in (32, 256):
        run = goyal.set({"machine.nodes": 256, "strategy.nodes": nodes})
        helps = sensitivity(predict(run))
        assert max(helps, key=lambda part: helps[part]) == "compute rate"
        assert helps["network bandwidth"] < 0.1


def test_vgg_loses_more_than_resnet_without_overlap(goyal):
    lost = {}
    for model in ("resnet50", "vgg16"):
        run = goyal.set({"model.name": model, "calibration.rate": 0.0})
        lost[model] = (
            predict(run).efficiency - predict(run.set({"strategy.overlap": False})).efficiency
        )
    assert lost["vgg16"] > 1.5 * lost["resnet50"]


def test_doubling_the_nodes_never_lowers_energy_or_device_hours(goyal):
    curve = predict(goyal.set({"strategy.nodes": 2 ** np.arange(6)}))
    assert np.all(np.diff(curve.time_to_train) < 0)
    assert np.all(np.diff(curve.device_hours) > 0) and np.all(np.diff(curve.energy_to_train) > 0)


def test_another_seed_moves_the_wait_and_not_the_exchange_and_16_steps_come_nearer(goyal):
    prediction = predict(goyal)
    apart = {}
    for steps in (1, 16):
        played = [breakdown(simulate(goyal, seed=seed, steps=steps)) for seed in range(6)]
        apart[steps] = [abs(one.step_time / prediction.step_time - 1) for one in played]
        if steps == 1:
            exposed = [one.terms["exposed communication"] for one in played]
            waiting = [one.terms["waiting for the slowest"] for one in played]
    np.testing.assert_allclose(exposed, exposed[0], rtol=1e-3)
    assert np.ptp(waiting) > 0.2 * np.mean(waiting)
    assert max(apart[16]) < 0.005 < max(apart[1]) < 0.015
    assert np.mean(apart[16]) < np.mean(apart[1])


def test_goyals_ranks_are_idle_20_ms_of_255(goyal):
    played = breakdown(simulate(goyal))
    assert played.terms["waiting for the slowest"] == pytest.approx(0.020, abs=0.001)
    assert played.step_time == pytest.approx(0.255, abs=0.001)
    assert goyal.machine.jitter == 0.03


@pytest.mark.parametrize(("topology", "exposed"), [("torus", 3.7), ("single-switch", 2.4)])
def test_on_64_nodes_all_three_know_the_congestion_of_the_torus(topology, exposed):
    run = replay("ying-2018").experiment.set(
        {"strategy.nodes": 64, "strategy.allreduce": "recursive_doubling"}
        | {"machine.topology": topology}
    )
    shown = [predict(run).terms["exposed communication"]]
    for fidelity in ("rounds", "events"):
        shown.append(breakdown(simulate(run, fidelity)).terms["exposed communication"])
    assert [round(1e3 * float(seconds), 1) for seconds in shown] == [exposed] * 3
