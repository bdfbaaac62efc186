"""A trace calibrates the prediction of its own run: the compute of a step is then what was traced."""

import numpy as np
import pytest

from lib_dlhpc import SpecError
from lib_dlhpc.prediction import predict
from lib_dlhpc.prediction.measured.traced import COMPUTE, calibrate
from lib_dlhpc.prediction.measured.traced_report import as_dict, as_text, as_toml
from lib_dlhpc.spec.experiment import load, loads
from lib_dlhpc.timeline.formats import read
from lib_dlhpc.timeline.steps import StepTerms, step_terms


@pytest.fixture(scope="module")
def folder(repository):
    return repository / "tests" / "data" / "frameworks"


@pytest.fixture(scope="module")
def experiment(folder):
    return load(folder / "mlp.toml")


@pytest.mark.parametrize("framework", ["pytorch", "jax", "tensorflow"])
def test_the_calibrated_prediction_has_the_compute_of_the_trace(folder, experiment, framework):
    trace = step_terms(read(folder / framework))
    found = calibrate(experiment, trace)
    compute = trace.terms["compute"].mean() + trace.terms["idle"].mean()
    assert found.rate == pytest.approx(64 / compute)
    assert found.after[COMPUTE] == pytest.approx(compute, rel=1e-6)
    assert found.before[COMPUTE] < compute  # the roofline has no launches
    assert sum(found.traced.values()) == pytest.approx(trace.seconds.mean())
    assert sum(found.before.values()) == pytest.approx(float(predict(experiment).step_time))


def test_what_is_written_predicts_other_sizes_from_the_job_s_rate(folder, experiment):
    found = calibrate(experiment, step_terms(read(folder / "pytorch")))
    text = as_toml(found, ["pytorch"])
    assert text.startswith(
        "# [calibration] was taken from the trace of a job by `dlhpc trace calibrate`:\n#     pytorch\n"
    )
    larger = loads(text).set({"strategy.devices_per_node": 4})
    assert float(predict(larger).compute) == pytest.approx(found.traced[COMPUTE], rel=1e-6)


def test_a_trace_of_another_network_is_noticed(folder, experiment):
    """The batch is not in a trace, but the bytes of its gradients are."""
    trace = step_terms(read(folder / "nccl"))
    wrong, right = calibrate(experiment, trace), calibrate(load(folder / "resnet50.toml"), trace)
    assert "allreduces 102 MB in a step, the experiment has 438 kB of gradients" in wrong.notes[0]
    assert not any("allreduces" in note for note in right.notes)


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"strategy.devices_per_node": 4}, "The trace has 2 ranks, the experiment has 4 devices"),
        ({"strategy.tensor": 2}, "a network split over 2 devices"),
    ],
)
def test_the_experiment_is_that_of_the_job(folder, experiment, changes, says):
    trace = step_terms(read(folder / "jax"))
    with pytest.raises(SpecError, match=says):
        calibrate(experiment.set(changes), trace)


def test_errors_are_fractions_of_what_was_traced(folder, experiment):
    found = as_dict(calibrate(experiment, step_terms(read(folder / "jax"))))
    for term in found["terms"].values():
        assert term["error"] == pytest.approx(term["predicted"] / term["traced"] - 1)
    assert found["terms"][COMPUTE]["calibrated_error"] == pytest.approx(0, abs=1e-6)


def job(prediction, ranks):
    """Return the steps of a job that is as predicted: two of each rank, and no collective's size."""
    terms = dict.fromkeys(("input wait", "checkpoint", "idle"), 0.0)
    terms["compute"] = float(prediction.compute)
    terms["exposed communication"] = float(prediction.step_time) - terms["compute"]
    seconds = {term: np.full((ranks, 2), value) for term, value in terms.items()}
    return StepTerms(ranks, [*range(ranks)], "annotations", seconds, seconds["idle"], [])


def test_between_nodes_the_share_of_the_line_rate_is_found_again(folder):
    """A job as it is predicted at half the line rate calibrates to half the line rate."""
    changes = {"strategy.nodes": 4, "machine.jitter": 0.0}
    experiment = load(folder / "resnet50.toml").set(changes)
    half = predict(experiment.set({"calibration.link_efficiency": 0.5}))
    assert float(half.exposed_communication) > 0
    found = calibrate(experiment, job(half, 8))
    assert found.link_efficiency == pytest.approx(0.5, rel=1e-3)
    assert "[calibration] link_efficiency = 0.5 of the line rate" in as_text(found)
    assert sum(found.after.values()) == pytest.approx(float(half.step_time), rel=1e-4)


def test_a_job_on_one_node_has_no_share_of_the_line_rate(folder, experiment):
    found = calibrate(experiment, step_terms(read(folder / "jax")))
    assert found.link_efficiency == 0 and "link_efficiency" not in as_text(found)
