"""Domains of several nodes: on its links, trays that are joined are one node; everything else stays a tray's."""

import numpy as np
import pytest

from lib_dlhpc.errors import SpecError
from lib_dlhpc.prediction import predict
from lib_dlhpc.simulation import simulate
from lib_dlhpc.spec.experiment import Experiment
from lib_dlhpc.timeline import breakdown

TRAYS, EACH, DOMAIN = 8, 2, 4
NETWORK = {"topology": "fat-tree", "oversubscription": 2.0, "name": "selene", "jitter": 0.0}
TRAY = {**NETWORK, "devices_per_node": EACH, "nics": EACH, "nodes": 16, "nodes_per_switch": DOMAIN}
RACK = {**NETWORK, "devices_per_node": EACH * DOMAIN, "nics": EACH * DOMAIN, "nodes_per_switch": 1}
MODEL = {"family": "gpt", "layers": 8, "hidden": 1024, "heads": 16, "sequence": 512}
SPLITS = [
    {"allreduce": "auto"},
    {"allreduce": "ring"},
    {"allreduce": "hierarchical"},
    {"tensor": 8},
    {"tensor": 4, "pipeline": 2, "microbatches": 4},
    {"pipeline": 8, "microbatches": 8},
    {"zero": 3},
]


def run(machine, nodes, **strategy):
    model = {**MODEL, "vocabulary": 1024}
    options = {"nodes": nodes, "batch": 8, "precision": "fp16", **strategy}
    return Experiment(model=model, machine=machine, strategy=options)


def pair(**strategy):
    """The same devices as trays that are joined, and as racks."""
    joined = run({**TRAY, "domain": DOMAIN}, TRAYS, **strategy)
    return joined, run(RACK, TRAYS // DOMAIN, **strategy)


@pytest.mark.parametrize("strategy", SPLITS, ids=str)
def test_joined_trays_cost_what_a_rack_costs(strategy):
    trays, rack = (predict(one) for one in pair(**strategy))
    assert trays.step_time == pytest.approx(rack.step_time, rel=1e-12)


@pytest.mark.parametrize("fidelity", ["rounds", "events"])
@pytest.mark.parametrize("strategy", [SPLITS[1], SPLITS[4]], ids=str)
def test_joined_trays_are_simulated_as_a_rack(strategy, fidelity):
    terms = [breakdown(simulate(one, fidelity)).terms for one in pair(**strategy)]
    assert terms[0] == pytest.approx(terms[1], rel=1e-9)


def test_part_of_a_domain_needs_no_network():
    within = run({**TRAY, "domain": DOMAIN}, 2, tensor=4)
    slow = {"machine.inter_node.latency": 1.0}
    assert predict(within).step_time == predict(within.set(slow)).step_time
    assert predict(within).step_time < predict(within.set({"machine.domain": 1})).step_time


def test_a_larger_domain_is_never_slower():
    times = [predict(run({**TRAY, "domain": d}, TRAYS, tensor=8)).step_time for d in (1, 2, 4, 8)]
    assert times == sorted(times, reverse=True) and times[0] > times[-1]


def test_a_sweep_over_nodes_is_its_members():
    joined, nodes = run({**TRAY, "domain": DOMAIN}, TRAYS), [1, 2, 4, 8, 16]
    swept = predict(joined.set({"strategy.nodes": np.array(nodes)})).step_time
    alone = [predict(joined.set({"strategy.nodes": n})).step_time for n in nodes]
    assert swept == pytest.approx(alone, rel=1e-12)


def test_trays_that_part_a_domain_are_refused():
    with pytest.raises(SpecError, match=r"strategy\.nodes = 6: machine\.domain = 4"):
        run({**TRAY, "domain": DOMAIN}, 6)
    updates = {"update": "asynchronous", "servers": 1}
    with pytest.raises(SpecError, match=r"machine\.domain = 4: asynchronous"):
        run({**TRAY, "domain": DOMAIN}, 4, **updates)
