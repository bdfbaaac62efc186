"""Laws of energy: power times time, by cause, with the building on top."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lib_dlhpc import loads
from lib_dlhpc.prediction import predict
from lib_dlhpc.prediction.energy import facility_energy, step_energy

RUN = loads("""
[model]
name = "resnet50"
[dataset]
name = "imagenet"
[machine]
name = "summit"
[strategy]
nodes = 4
""")


def test_a_step_by_hand():
    """24 devices, 0.75 of 1 s busy, 0.15 s exposed; 300 W busy, 50 W idle; 4 nodes of 500 W; PUE 1.05."""
    run = RUN.set({"machine.device.busy_power": 300, "machine.device.idle_power": 50})
    assert step_energy(run, 0.75, 0.15, 1.0) == pytest.approx(
        {
            "devices computing": 24 * 300 * 0.75,
            "devices waiting for the network": 24 * 50 * 0.15,
            "devices waiting for ranks and storage": 24 * 50 * 0.1,
            "hosts and NICs": 4 * 500,
            "cooling and conversion": 0.05 * (5400 + 300 + 2000),
        }
    )


@given(st.integers(1, 1000), st.floats(1.0, 3.0))
def test_power_lies_between_idle_and_busy(nodes, pue):
    run = RUN.set({"strategy.nodes": nodes, "machine.pue": pue})
    prediction, m = predict(run), run.machine
    watts = sum(prediction.energy.values()) / prediction.step_time / pue
    rounding = 1e-12 * sum(prediction.energy.values())
    assert all(value >= -rounding for value in prediction.energy.values())
    least = run.devices * m.device.idle_power + nodes * m.node_power
    most = run.devices * m.device.busy_power + nodes * m.node_power
    assert least * (1 - 1e-12) <= watts <= most * (1 + 1e-12)
    assert prediction.energy_to_train == pytest.approx(
        prediction.steps * prediction.step_time * watts * pue
    )


def test_the_definition_that_publications_use():
    assert facility_energy(1.0, 1000.0, 1.0) == 3.6e6  # one device-hour of 1 kW is 1 kWh
    assert facility_energy(82432, 400, 1.1) == pytest.approx(82432 * 3600 * 440)
