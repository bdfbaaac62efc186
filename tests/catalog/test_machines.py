"""Every machine of the catalog can be planned for: a step of a GPT is predicted, and is sane."""

import math

import numpy as np
import pytest

from lib_dlhpc import Experiment, predict
from lib_dlhpc.costs.roofline import peak_rate
from lib_dlhpc.spec import catalog
from lib_dlhpc.spec.machine import load_machine
from lib_dlhpc.spec.strategy import TRAINING_PRECISIONS

MACHINES = catalog.names("machines")


def fastest(device):
    """Return the training precision of the highest rate."""
    return max(TRAINING_PRECISIONS, key=lambda p: np.nan_to_num(peak_rate(device, p)))


@pytest.fixture(params=MACHINES)
def machine(request):
    return load_machine(request.param)


def step(machine, nodes):
    strategy = {"nodes": nodes, "batch": 4, "precision": fastest(machine.device)}
    return predict(Experiment(model="gpt-1536x16", machine=machine, strategy=strategy))


def test_a_step_reaches_between_5_and_95_percent_of_peak(machine):
    prediction = step(machine, min(4, machine.nodes))
    experiment = prediction.experiment
    work = 3 * experiment.model.forward_flop * experiment.global_batch
    peak = experiment.devices * peak_rate(machine.device, experiment.strategy.precision)
    assert 0.05 < work / (peak * prediction.step_time) < 0.95


def test_the_terms_of_a_step_on_all_nodes_are_finite(machine):
    prediction = step(machine, machine.nodes)
    assert all(0 <= seconds < math.inf for seconds in prediction.terms.values())
    assert math.isclose(sum(prediction.terms.values()), prediction.step_time, rel_tol=1e-9)
    assert 0.1 < prediction.efficiency < 1


def test_the_memory_ledger_has_every_part_and_a_small_network_fits(machine):
    assert all(amount >= 0 for amount in step(machine, 1).memory.values())
    small = {"nodes": 1, "batch": 1, "precision": "fp32"}
    assert predict(Experiment(model="resnet50", machine=machine, strategy=small)).fits


def test_energy_lies_between_idle_and_busy(machine):
    prediction = step(machine, 1)
    device, per_node = machine.device, machine.devices_per_node
    standing = machine.node_power + machine.switch_power
    low, high = (
        machine.pue * (per_node * watts + standing) * prediction.step_time
        for watts in (device.idle_power, device.busy_power)
    )
    joules = sum(prediction.energy.values())
    assert low <= joules <= high * (1 + 1e-9)


def test_links_of_a_node_are_faster_than_its_share_of_the_network(machine):
    inner, outer = machine.intra_node, machine.inter_node
    share = outer.bandwidth * outer.efficiency * machine.nics / machine.devices_per_node
    if machine.topology != "torus" and machine.devices_per_node > 1:
        assert inner.bandwidth * inner.efficiency > share
