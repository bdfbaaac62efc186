"""Laws of the network: what the machine says is what the collectives get, and crowding only slows."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lib_dlhpc import Experiment
from lib_dlhpc.costs.network import all_to_all_congestion, congestion, network_of
from lib_dlhpc.prediction import predict

RUN = Experiment(
    model="resnet50",
    dataset="imagenet",
    machine={"name": "summit", "nodes_per_switch": 4},
    strategy={"nodes": 16, "allreduce": "ring"},
)
SENSITIVE = ("recursive_doubling", "rabenseifner", "parameter_server")


def communication(**changes):
    named = {key.replace("__", "."): value for key, value in changes.items()}
    return float(predict(RUN.set(named)).communication.total)


def test_levels_are_the_machines_links():
    net, m = network_of(RUN), RUN.machine
    assert net.inner.ranks == 6 and net.outer.ranks == 16
    assert net.inner.alpha == m.intra_node.latency and net.outer.alpha == m.inter_node.latency
    assert 1 / net.inner.beta == pytest.approx(m.intra_node.bandwidth * m.intra_node.efficiency)
    assert 1 / net.outer.beta == pytest.approx(2 * m.inter_node.bandwidth * m.inter_node.efficiency)
    assert 3 / net.gamma == pytest.approx(m.device.memory_bandwidth)


@given(
    topology=st.sampled_from(
        ["single-switch", "fat-tree", "torus", "dragonfly", "rails", "rails-pxn"]
    ),
    nodes=st.integers(1, 4096),
    distance=st.integers(1, 2048),
    oversubscription=st.floats(1, 8),
)
def test_congestion_is_never_below_one(topology, nodes, distance, oversubscription):
    machine = RUN.set(
        {"machine.topology": topology, "machine.oversubscription": oversubscription}
    ).machine
    assert congestion(machine, nodes, distance) >= 1
    assert all_to_all_congestion(machine, nodes) >= 1
    if topology == "single-switch":
        assert congestion(machine, nodes, distance) == all_to_all_congestion(machine, nodes) == 1


def test_a_fat_tree_slows_what_leaves_the_switch():
    machine = RUN.set({"machine.topology": "fat-tree", "machine.oversubscription": 3.0}).machine
    assert [float(congestion(machine, 16, d)) for d in (1, 2, 4, 8)] == [1, 1, 3, 3]
    assert [float(all_to_all_congestion(machine, n)) for n in (1, 4, 5, 16)] == [1, 1, 3, 3]


def test_a_dragonfly_slows_what_leaves_a_group_by_the_links_to_one_other():
    """4 groups of 4: of 4 / 1.5 NICs, a third leads to each other group."""
    tables = {"machine.topology": "dragonfly", "machine.oversubscription": 1.5}
    machine = RUN.set({**tables, "machine.nodes": 16}).machine
    assert [float(congestion(machine, 16, d)) for d in (1, 2, 4, 6, 8)] == [1, 1, 4.5, 2.25, 4.5]
    assert [float(all_to_all_congestion(machine, n)) for n in (1, 4, 8, 16)] == pytest.approx(
        [1, 1, 2.25, 1.125]
    )
    larger = RUN.set({**tables, "machine.nodes": 32}).machine  # as many links, to more groups
    assert float(congestion(larger, 16, 4)) == pytest.approx(1.5 * 7)


def test_a_torus_shares_a_link_among_the_hops():
    machine = RUN.set({"machine.topology": "torus"}).machine
    hops = [float(congestion(machine, 64, d)) for d in (1, 2, 4, 8, 16, 32)]
    assert hops == [1, 2, 4, 1, 2, 4]
    assert [float(congestion(machine, 8, d)) for d in (1, 2, 4)] == [1, 2, 1]  # 2 rows of 4
    assert [float(congestion(machine, 6, d)) for d in (1, 2, 4)] == [1, 1, 1]  # 2 rows of 3
    assert float(all_to_all_congestion(machine, 32**2)) == 4


@pytest.mark.parametrize("allreduce", SENSITIVE)
def test_oversubscription_and_switch_size_move_what_crosses_the_tree(allreduce):
    name = {"strategy__allreduce": allreduce, "machine__topology": "fat-tree"}
    times = [communication(**name, machine__oversubscription=o) for o in (1.0, 2.0, 4.0)]
    assert times[0] < times[1] < times[2]
    sizes = [
        communication(**name, machine__oversubscription=4.0, machine__nodes_per_switch=k)
        for k in (1, 4, 16)
    ]
    assert sizes[0] >= sizes[1] > sizes[2]
    assert sizes[2] == pytest.approx(times[0])
    switch = communication(strategy__allreduce=allreduce, machine__topology="single-switch")
    assert switch == pytest.approx(times[0])


@pytest.mark.parametrize("allreduce", ["ring", "hierarchical", "torus_2d"])
def test_neighbors_in_a_ring_do_not_meet_the_uplinks_congestion(allreduce):
    topologies = ["single-switch", "fat-tree", "torus"]
    if allreduce == "torus_2d":  # its columns are two nodes apart here, those of the machine four
        topologies.remove("torus")
    times = {
        communication(strategy__allreduce=allreduce, machine__topology=topology)
        for topology in topologies
    }
    assert len(times) == 1


def test_the_nics_of_a_node_add_up():
    one, four = communication(machine__nics=1), communication(machine__nics=4)
    assert one > four
    latency = predict(RUN).communication.latency
    assert predict(RUN.set({"machine.nics": 4})).communication.latency == latency


def test_arrays_get_an_axis_for_the_buckets():
    run = RUN.set({"strategy.nodes": np.array([2, 4, 8])})
    net = network_of(run)
    assert net.outer.ranks.shape == (3, 1)
    assert predict(run).communication.total.shape == (3,)
