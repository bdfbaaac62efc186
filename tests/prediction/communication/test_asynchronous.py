"""Laws of updates that do not keep step: a device's own step, the servers' limit, what meeting less saves."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lib_dlhpc import Experiment, SpecError
from lib_dlhpc.costs.model_state import model_state_bytes
from lib_dlhpc.costs.roofline import update_time
from lib_dlhpc.prediction import predict, what_if
from lib_dlhpc.prediction.memory.device_ledger import server_bytes
from lib_dlhpc.prediction.reports.report import as_dict, as_text
from lib_dlhpc.spec.strategy import ALLREDUCES

RUN = Experiment(
    model="resnet50",
    dataset="imagenet",
    machine={"name": "summit", "topology": "single-switch", "jitter": 0.0},
    strategy={"nodes": 4, "devices_per_node": 1, "update": "asynchronous"},
)
LINK = RUN.machine.inter_node
BETA = 1 / (LINK.bandwidth * LINK.efficiency * RUN.machine.nics)
SIZE = 4 * RUN.model.parameters
UPDATE = update_time(RUN.model, RUN.machine.device, "momentum")
SYNCHRONOUS = RUN.set({"strategy.update": "synchronous", "machine.jitter": 0.05})


def test_a_device_alone_computes_pushes_and_pulls():
    found = predict(RUN.set({"strategy.nodes": 1}))
    own = found.forward + found.backward + UPDATE + 2 * (LINK.latency + SIZE * BETA)
    assert found.step_time == pytest.approx(own, rel=1e-12)
    assert found.staleness == 0 and found.straggler_wait == 0


@given(st.integers(1, 400), st.integers(1, 32), st.integers(1, 6), st.integers(1, 256))
def test_throughput_is_that_of_the_devices_or_of_the_servers(nodes, servers, here, batch):
    run = RUN.set(
        {
            "strategy.nodes": nodes,
            "strategy.devices_per_node": here,
            "strategy.servers": servers,
            "strategy.batch": batch,
        }
    )
    found = predict(run)
    part = LINK.latency + SIZE / servers * BETA
    own = found.forward + found.backward + UPDATE / servers + (servers + 1) * part
    most = min(1 / part, nodes / (SIZE * BETA), servers / UPDATE)  # gradients/s
    rate = min(run.devices / own, most)
    assert found.throughput == pytest.approx(rate * batch, rel=1e-12)
    assert found.server_load == pytest.approx(rate / most, rel=1e-12)
    assert found.staleness == run.devices - 1


def test_a_slow_update_is_a_limit_of_its_own():
    """Half the memory bandwidth, half the rate of servers that do nothing but update."""
    run = RUN.set({"strategy.nodes": 100, "machine.nics": 1000})
    one, half = (predict(run.set({"machine.device.memory_bandwidth": b})) for b in (1e10, 5e9))
    assert one.server_load == half.server_load == 1
    assert half.throughput == pytest.approx(one.throughput / 2)


def test_uplinks_of_a_fat_tree_are_a_limit_unless_one_switch_has_all():
    tree = {"machine.topology": "fat-tree", "machine.oversubscription": 4.0}
    tree |= {"machine.inter_node.latency": 0.0}
    run = RUN.set({**tree, "strategy.nodes": 400, "strategy.servers": 40, "strategy.batch": 1})
    rates = [
        predict(run.set({"machine.nodes_per_switch": k})).throughput for k in (1, 4, 20, 439, 440)
    ]
    free = predict(run.set({"machine.topology": "single-switch"})).throughput
    assert rates[-1] == pytest.approx(free) and (np.diff(rates) >= 0).all()
    assert rates[2] == pytest.approx(free / 4)  # 40 servers under two switches of 20


def test_a_bound_costs_some_waiting_and_less_the_looser_it_is():
    run = RUN.set({"machine.jitter": 0.1, "strategy.servers": 4})
    bounds = np.array([1, 2, 4, 8])
    waits = predict(run.set({"strategy.staleness": bounds})).straggler_wait
    assert (np.diff(waits) < 0).all() and predict(run).straggler_wait == 0
    synchronous = run.set({"strategy.servers": 1, "strategy.update": "synchronous"})
    assert waits[0] < predict(synchronous).straggler_wait


def test_servers_hold_what_an_update_needs_and_devices_do_not():
    adam = {"strategy.optimizer": "adam", "strategy.precision": "fp16"}
    held = predict(RUN.set(adam)).memory
    assert held["optimizer state"] == held["master weights"] == 0
    both = held["weights"] + held["gradients"]
    assert both == 4 * RUN.model.parameters
    device = RUN.machine.device
    for servers in (1, 3):
        part = server_bytes(RUN.set({**adam, "strategy.servers": servers}))
        whole = model_state_bytes(RUN.model.parameters, "fp16", "adam")
        assert part - device.reserved_memory == pytest.approx(whole / servers)
    assert server_bytes(SYNCHRONOUS) == 0


def test_a_server_that_is_too_small_is_a_wall():
    run = RUN.set({"model.name": "gpt2-1.5b", "strategy.batch": 1, "strategy.optimizer": "adam"})
    run = run.set({"strategy.precision": "fp16", "machine.device.memory": "20 GB"})
    one, two = (predict(run.set({"strategy.servers": servers})) for servers in (1, 2))
    assert not one.fits and "2 servers" in one.walls[0] and "parameter server" in one.walls[0]
    assert two.fits and not two.walls
    assert list(predict(run.set({"strategy.servers": np.array([1, 2])})).fits) == [False, True]


def test_servers_draw_power_and_are_paid_for():
    found, more = (predict(RUN.set({"strategy.servers": n})) for n in (1, 3))
    machine = RUN.machine
    least = machine.node_power + machine.device.idle_power
    assert found.energy["parameter servers"] > least * found.step_time
    assert more.energy["parameter servers"] > 3 * least * more.step_time
    assert found.device_hours * 3600 == pytest.approx(5 * found.time_to_train)
    assert "parameter servers" not in predict(SYNCHRONOUS).energy


def test_nodes_and_servers_as_arrays_make_a_grid():
    nodes, servers = np.array([1, 8, 64]), np.array([1, 4])
    grid = predict(RUN.set({"strategy.nodes": nodes[:, None], "strategy.servers": servers}))
    for at in np.ndindex(3, 2):
        one = predict(
            RUN.set({"strategy.nodes": int(nodes[at[0]]), "strategy.servers": int(servers[at[1]])})
        )
        for name in ("step_time", "server_load", "energy_to_train", "device_hours", "fits"):
            assert np.broadcast_to(getattr(grid, name), (3, 2))[at] == pytest.approx(
                getattr(one, name), rel=1e-12
            )


# --- local updates ---


@pytest.mark.parametrize("allreduce", ALLREDUCES)
def test_averaging_every_step_is_a_synchronous_step_without_overlap(allreduce):
    run = SYNCHRONOUS.set({"strategy.allreduce": allreduce})
    local = predict(run.set({"strategy.update": "local"})).terms
    expected = predict(run.set({"strategy.overlap": False})).terms
    assert local == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("every", [2, 9, 100])
def test_meeting_less_often_divides_the_exchange_and_the_waiting_by_its_root(every):
    run = SYNCHRONOUS.set({"strategy.update": "local"})
    one, some = predict(run), predict(run.set({"strategy.local_steps": every}))
    assert some.exposed_communication == pytest.approx(one.exposed_communication / every)
    assert some.straggler_wait == pytest.approx(one.straggler_wait / np.sqrt(every))
    assert some.compute == one.compute and some.memory_total == one.memory_total


# --- what is not modeled, and what is shown ---


def test_what_is_not_modelled_is_refused():
    for topology in ("torus", "dragonfly", "rails"):
        with pytest.raises(SpecError, match=rf"{topology}.*single-switch, fat-tree"):
            predict(RUN.set({"machine.topology": topology}))
    together = {"calibration.rate": 1000.0, "calibration.devices": 6}
    with pytest.raises(SpecError, match=r"calibration\.devices = 6.*legal value is 1"):
        predict(RUN.set(together))


def test_a_rate_measured_in_step_says_what_a_device_does_alone():
    measured = SYNCHRONOUS.set({"calibration.rate": 1000.0, "calibration.devices": 4})
    alone = what_if(measured, {"strategy.update": "asynchronous"})
    assert alone.calibration.devices == 1
    found, before = predict(alone), predict(measured)
    assert found.forward == pytest.approx(before.forward, rel=1e-12)


def test_what_is_shown_says_how_updates_are_made():
    shown = as_text(predict(RUN.set({"strategy.servers": 2, "strategy.staleness": 3})), True)
    assert "asynchronous with 2 servers, at most 3 steps ahead" in shown
    assert "updates on average" in shown and "Denning & Buzen" in shown
    assert "staleness = 3 updates" in shown and "at most 21" in shown
    local = RUN.set({"strategy.update": "local", "strategy.local_steps": 4})
    shown = as_text(predict(local), True)
    assert "allreduce of weights, every 4 steps" in shown and "√H" in shown
    assert "updates on average" not in shown
    assert as_dict(predict(RUN))["staleness"] == 3 and as_dict(predict(local))["staleness"] == 0
