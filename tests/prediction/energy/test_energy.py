"""Laws of energy: power times time, by cause, with the building on top; limits, emissions and prices."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lib_dlhpc import Experiment, SpecError
from lib_dlhpc.costs.energy import device_watts, idle_watts, step_energy
from lib_dlhpc.costs.power_limit import EXCHANGE, MEMORY, clock
from lib_dlhpc.parallel import program
from lib_dlhpc.prediction import predict
from lib_dlhpc.prediction.energy.energy import facility_energy
from lib_dlhpc.prediction.reports.explain import explain
from lib_dlhpc.prediction.reports.report import as_dict, as_text
from lib_dlhpc.program import BoundShares, mixes_of
from lib_dlhpc.spec.units import format_quantity

RUN = Experiment(
    model="resnet50",
    dataset="imagenet",
    machine={"name": "summit", "switch_power": 0.0},
    strategy={"nodes": 4},
)
BY_HAND = RUN.set(
    {
        "machine.device.busy_power": 300,
        "machine.device.idle_power": 50,
        "machine.switch_power": 25,
        "machine.storage.nvme.power": 10,
        "storage.tier": "nvme",
    }
)
# The terms of a step of 1 s.
SECONDS = {
    "forward": 0.25,
    "backward": 0.4,
    "update": 0.1,
    "waiting for the slowest": 0.05,
    "exposed communication": 0.1,
    "pipeline bubble": 0.0,
    "input stall": 0.1,
    "checkpoint": 0.0,
}


def test_a_step_by_hand():
    """24 devices; forward is half arithmetic, half launches; 4 nodes of 500 W; PUE 1.05."""
    watts = device_watts(BY_HAND, (BoundShares(0.5, 0.0), BoundShares(0.0, 1.0)))
    memory, polled = 50 + 250 * MEMORY, 50 + 250 * EXCHANGE
    joules = [175 * 0.25, memory * 0.4, memory * 0.1, polled * 0.05, polled * 0.1, 0, 50 * 0.1, 0]
    expected = dict(
        zip((f"devices: {term}" for term in SECONDS), 24 * np.array(joules), strict=True)
    )
    expected |= {"hosts and NICs": 4 * 500, "switches": 4 * 25, "storage": 4 * 10}
    expected["cooling and conversion"] = 0.05 * sum(expected.values())
    assert step_energy(BY_HAND, SECONDS, watts) == pytest.approx(expected)


def test_shared_storage_is_charged_by_nodes():
    run = RUN.set({"machine.storage.gpfs.power": 4608e3, "storage.tier": "gpfs"})
    assert predict(run).energy["storage"] == pytest.approx(
        4 / run.machine.nodes * 4608e3 * predict(run).step_time
    )


@given(st.integers(1, 1000), st.floats(1.0, 3.0), st.sampled_from([0.0, 120.0, 150.0, 300.0]))
def test_power_lies_between_idle_and_busy(nodes, pue, limit):
    run = RUN.set({"strategy.nodes": nodes, "machine.pue": pue, "strategy.power_limit": limit})
    prediction, m = predict(run), run.machine
    watts = sum(prediction.energy.values()) / prediction.step_time / pue
    rounding = 1e-12 * sum(prediction.energy.values())
    assert all(value >= -rounding for value in prediction.energy.values())
    least = run.devices * m.device.idle_power + nodes * m.node_power
    most = run.devices * (limit or m.device.busy_power) + nodes * m.node_power
    assert least * (1 - 1e-12) <= watts <= most * (1 + 1e-12)
    assert prediction.energy_to_train == pytest.approx(
        prediction.steps * prediction.step_time * watts * pue
    )


def test_a_limit_slows_arithmetic_only():
    """A network that is all arithmetic takes 1 / clock as long, one that is all memory traffic no longer."""
    fast = {"machine.device.memory_bandwidth": 1e17, "machine.device.launch": 0.0}
    slow = {"machine.device.memory_bandwidth": 1e9, "machine.device.launch": 0.0}
    device = RUN.machine.device
    phi = clock(150.0, device.busy_power, device.idle_power)
    for machine, longer in ((fast, 1 / phi), (slow, 1.0)):
        free, limited = (
            predict(RUN.set({**machine, "strategy.power_limit": watts})) for watts in (0.0, 150.0)
        )
        assert limited.forward / free.forward == pytest.approx(longer, rel=1e-3)
        assert limited.update == free.update


def test_a_limit_of_the_busy_power_is_none():
    busy = RUN.machine.device.busy_power
    free, limited = predict(RUN), predict(RUN.set({"strategy.power_limit": busy}))
    assert limited.step_time == free.step_time
    assert limited.energy == pytest.approx(free.energy)


def test_time_falls_and_energy_has_its_least_inside():
    limits = np.linspace(50.0, 300.0, 51)
    found = predict(RUN.set({"strategy.power_limit": limits, "machine.node_power": 0.0}))
    assert np.all(np.diff(found.step_time) <= 1e-15)
    joules = sum(found.energy.values())
    assert 0 < np.argmin(joules) < len(limits) - 1


def test_a_rate_is_of_a_device_without_a_limit():
    """So a limit slows a calibrated run as well, and its scale stays."""
    run = RUN.set({"calibration.rate": 1800.0, "calibration.devices": 6, "calibration.batch": 32})
    free, limited = predict(run), predict(run.set({"strategy.power_limit": 120.0}))
    assert limited.compute_scale == free.compute_scale
    assert limited.forward > 1.05 * free.forward
    split = {"strategy.pipeline": 2, "strategy.microbatches": 4}
    for devices in (1, 6):
        measured = run.set(
            {**split, "calibration.devices": devices, "calibration.rate": 300 * devices}
        )
        free, limited = (predict(measured.set({"strategy.power_limit": w})) for w in (0.0, 120.0))
        assert limited.compute_scale == free.compute_scale


@pytest.mark.parametrize("recompute", ["none", "full"])
def test_what_limits_a_pass_adds_up(recompute):
    """Without launches, arithmetic and memory are all of the time, also of what is recomputed."""
    run = RUN.set({"machine.device.launch": 0.0, "strategy.recompute": recompute})
    for mix in mixes_of(program(run)):
        assert mix.arithmetic + mix.memory == pytest.approx(np.ones((1, 1)))


def test_a_limit_below_the_lowest_clock_saves_nothing_more():
    """Idle 40 W, static 30% of 260 W above it, and (1 / 4)^4 of the rest."""
    low, lower = (predict(RUN.set({"strategy.power_limit": w})) for w in (100.0, 50.0))
    assert (low.step_time, low.energy) == (lower.step_time, lower.energy)
    least = 118 + 182 / 256
    at, above = (predict(RUN.set({"strategy.power_limit": w})) for w in (least, least + 1))
    assert at.step_time == pytest.approx(low.step_time)
    assert above.step_time < low.step_time


@pytest.mark.parametrize("watts", [40.0, 301.0, 1.0])
def test_an_impossible_limit_is_refused(watts):
    with pytest.raises(
        SpecError, match=r"strategy.power_limit = .* legal: above .* 40 W, up to .* 300 W"
    ):
        RUN.set({"strategy.power_limit": watts})


def test_emissions_and_price():
    """1 kWh at 369 g/kWh; 2 a device-hour and 0.1 a kWh."""
    run = RUN.set(
        {
            "machine.carbon_intensity": "0.3 kg/kWh",
            "machine.device_price": 2.0,
            "machine.electricity_price": 0.1,
            "machine.currency": "EUR",
        }
    )
    found = predict(run)
    kilowatt_hours = found.energy_to_train / 3.6e6
    assert found.carbon == pytest.approx(0.3 * kilowatt_hours)
    assert found.price == pytest.approx(2 * found.device_hours + 0.1 * kilowatt_hours)
    text, table = as_text(found), as_dict(found)
    assert "CO2e at 300 g/kWh" in text and "EUR" in text
    assert (table["carbon"], table["currency"]) == (found.carbon, "EUR")
    assert any(each.name == "carbon" for each in explain(found))
    assert found.summary().facts["carbon"] == f"{format_quantity(1000 * found.carbon, 'g')} CO2e"


def test_an_unknown_grid_has_no_emissions():
    found = predict(RUN.set({"machine.carbon_intensity": 0.0}))
    assert np.isnan(found.carbon)
    assert as_dict(found)["carbon"] is None
    assert "CO2e" not in as_text(found)
    assert "carbon" not in {each.name for each in explain(found)}


def test_a_start_draws_idle_power():
    run = BY_HAND.set({"machine.pue": 2.0})
    assert idle_watts(run) == pytest.approx(2 * (24 * 50 + 4 * (500 + 25 + 10)))


def test_the_definition_that_publications_use():
    assert facility_energy(1.0, 1000.0, 1.0) == 3.6e6  # one device-hour of 1 kW is 1 kWh
    assert facility_energy(82432, 400, 1.1) == pytest.approx(82432 * 3600 * 440)
