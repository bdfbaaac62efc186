"""Laws of calibration: exactly what was measured where it was measured."""

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lib_dlhpc import Experiment, SpecError
from lib_dlhpc.costs import scale_of
from lib_dlhpc.prediction import predict
from lib_dlhpc.spec.strategy import ALLREDUCES

RUN = Experiment(model="resnet50", dataset="imagenet", machine="summit", strategy={"nodes": 4})


@pytest.mark.parametrize("allreduce", ALLREDUCES)
@pytest.mark.parametrize("devices", [1, 2, 3, 6, 12, 24])
def test_the_measured_rate_comes_back_at_the_measured_point(allreduce, devices):
    per_node = min(devices, 6)
    for overlap, batch in product([True, False], [16, 64]):
        run = RUN.set(
            {
                "strategy.allreduce": allreduce,
                "strategy.overlap": overlap,
                "strategy.nodes": devices // per_node,
                "strategy.devices_per_node": per_node,
                "strategy.batch": batch,
                "calibration.rate": 100.0 * devices,
                "calibration.devices": devices,
                "calibration.batch": batch,
            }
        )
        here = predict(run)
        assert here.throughput == pytest.approx(100.0 * devices, rel=1e-9), (overlap, batch)
        elsewhere = predict(run.set({"strategy.nodes": 8, "strategy.devices_per_node": 6}))
        assert elsewhere.compute_scale == pytest.approx(here.compute_scale), (overlap, batch)


@given(st.floats(1.0, 1000.0), st.integers(1, 512), st.floats(0, 0.2))
def test_calibration_on_one_device_is_a_plain_factor(rate, batch, jitter):
    run = RUN.set({"calibration.rate": rate, "calibration.batch": batch, "machine.jitter": jitter})
    plain = predict(run.set({"calibration.rate": 0.0}))
    scaled = predict(run)
    for term in ("forward", "backward", "update"):
        expected = scaled.compute_scale * getattr(plain, term)
        assert getattr(scaled, term) == pytest.approx(expected, rel=1e-12)
    assert predict(run).communication == plain.communication


def test_no_measured_rate_leaves_the_roofline():
    assert predict(RUN).compute_scale == 1.0


@pytest.mark.parametrize("overlap", [True, False])
def test_a_rate_that_the_links_cannot_carry_is_refused(overlap):
    run = RUN.set({"strategy.overlap": overlap, "calibration.rate": 1e9, "calibration.devices": 6})
    with pytest.raises(SpecError, match=r"calibration\.rate"):
        predict(run)


def test_calibration_on_a_part_of_a_node_too_many_is_refused():
    with pytest.raises(SpecError, match=r"calibration\.devices = 7"):
        predict(RUN.set({"calibration.rate": 100.0, "calibration.devices": 7}))


@pytest.mark.parametrize("devices", [1, 2, 24])
@pytest.mark.parametrize("every", [1, 5])
def test_a_rate_of_local_updates_comes_back_too(devices, every):
    per_node = min(devices, 6)
    run = RUN.set(
        {
            "strategy.update": "local",
            "strategy.local_steps": every,
            "strategy.nodes": devices // per_node,
            "strategy.devices_per_node": per_node,
            "calibration.rate": 100.0 * devices,
            "calibration.devices": devices,
            "machine.jitter": 0.1,
        }
    )
    assert predict(run).throughput == pytest.approx(100.0 * devices, rel=1e-9)


@pytest.mark.parametrize("scale", [0.05, 0.1108, 0.111, 0.3, 1.0, 40.0])
def test_the_scale_of_a_step_with_a_sharp_bend_is_found(scale):
    """Messages hide the computation up to a scale of 0.1108; a chord over the bend overshoots."""

    def step(at):
        return max(0.785 + 0.0037 * at, 0.194 + 5.334 * at)

    found = scale_of(step(scale), step)
    assert step(found) == pytest.approx(step(scale), rel=1e-11)
