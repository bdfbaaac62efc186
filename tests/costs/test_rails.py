"""Rails: a closed form, a schedule's price, rounds and events agree on NICs that each belong to some devices."""

import pytest

from lib_dlhpc.costs.groups import network_on
from lib_dlhpc.prediction import predict
from lib_dlhpc.schedules import ALGORITHMS, price, schedule
from lib_dlhpc.simulation import rounds
from lib_dlhpc.simulation.events import finish_times
from lib_dlhpc.spec.experiment import Experiment
from lib_dlhpc.spec.machine import Device, Link, Machine

FREE = Device({"fp32": 1e13}, 1e10, 1e30, 100.0, 300.0)  # combining costs nothing
NODES, EACH, ELEMENTS = 4, 4, 16 * 16 * 4096
LEVELS = ("hierarchical_ring", "rabenseifner", "recursive_doubling", "hierarchical_all_to_all")
LEADERS = ("hierarchical", "binomial")


def machine(topology, nics=EACH, leaf=NODES, over=1.0):
    options = {"topology": topology, "nodes_per_switch": leaf, "oversubscription": over}
    links = Link(2e-6, 100e9), Link(5e-6, 12.5e9)
    return Machine(FREE, *links, nodes=NODES, devices_per_node=EACH, nics=nics, **options)


def times(name, on):
    """Closed form, price, rounds and events, in s."""
    net, record = network_on(on, EACH, NODES, NODES * EACH, 1), ALGORITHMS[name]
    plan = schedule(name, NODES * EACH, ELEMENTS, **record.on_nodes(NODES * EACH, EACH))
    return [
        float(record.priced(4.0 * ELEMENTS, net).total),
        price(plan, network=net).total,
        rounds.finish_times(plan, net).max(),
        finish_times(plan, on, NODES, EACH).max(),
    ]


@pytest.mark.parametrize("nics", [1, 2, 4])
@pytest.mark.parametrize("topology", ["rails", "rails-pxn"])
@pytest.mark.parametrize("name", ["ring", *LEVELS, *LEADERS, "torus_2d", "bruck_all_to_all"])
def test_all_fidelities_agree_on_full_rails(name, topology, nics):
    found = times(name, machine(topology, nics))
    assert found == pytest.approx([found[0]] * 4, rel=1e-6)


@pytest.mark.parametrize("topology", ["rails", "rails-pxn"])
def test_ranks_of_equal_index_have_all_nics_and_a_ring_or_a_leader_has_one(topology):
    for name in LEVELS:
        assert times(name, machine(topology))[0] == times(name, machine("single-switch"))[0]
    for name in ("ring", *LEADERS):
        assert times(name, machine(topology))[0] > 2 * times(name, machine("single-switch"))[0]


def test_one_nic_is_one_rail():
    for name in ("ring", *LEVELS, *LEADERS, "pairwise_all_to_all"):
        one = [times(name, machine(topology, nics=1)) for topology in ("single-switch", "rails")]
        assert one[0] == pytest.approx(one[1], rel=1e-12)


@pytest.mark.parametrize("leaf", [2, 4])
@pytest.mark.parametrize("name", ["ring", "hierarchical_ring", "hierarchical", "rabenseifner"])
def test_oversubscribed_uplinks_slow_events_as_predicted(name, leaf):
    for topology in ("rails", "rails-pxn"):
        closed, *_, events = times(name, machine(topology, leaf=leaf, over=4.0))
        assert events == pytest.approx(closed, rel=1e-6)


def test_only_what_changes_rails_meets_the_uplinks_of_a_common_leaf():
    """A ring changes rails at each node's end: over the spine it is slowed, over NVLink it is not."""
    spine, nvlink = (
        [times("ring", machine(topology, over=over))[3] for over in (1.0, 8.0)]
        for topology in ("rails", "rails-pxn")
    )
    assert spine[1] > 4 * spine[0] and nvlink[1] == nvlink[0]
    assert spine[0] < nvlink[0] < spine[1]  # the hop inside the node costs its latency
    flat = [times("hierarchical_ring", machine("rails", over=over))[3] for over in (1.0, 8.0)]
    assert flat[0] == flat[1]


@pytest.mark.parametrize("over", [1.0, 4.0])
@pytest.mark.parametrize("topology", ["rails", "rails-pxn"])
def test_an_all_to_all_by_levels_avoids_the_spine_that_pairs_cross(topology, over):
    on = machine(topology, over=over)
    pairs, levels = times("pairwise_all_to_all", on), times("hierarchical_all_to_all", on)
    ranks = (
        NODES * EACH
    )  # the closed form spreads the messages that stay in a node evenly over all steps
    assert 0.95 * pairs[0] <= pairs[3] <= pairs[0] * (ranks - 1) / (ranks - EACH)
    assert levels[3] == pytest.approx(levels[0], rel=1e-6) and levels[3] < pairs[3]


def test_auto_takes_an_algorithm_that_uses_all_rails():
    run = Experiment(model="vgg16", machine="selene", strategy={"nodes": 4, "batch": 32})
    one_switch, rails = (
        float(predict(run.set({"machine.topology": topology})).communication.total)
        for topology in ("single-switch", "rails")
    )
    assert one_switch < rails < 1.3 * one_switch
    ring = {"machine.topology": "rails", "strategy.allreduce": "ring"}
    assert float(predict(run.set(ring)).communication.total) > 2 * rails


def test_stages_of_equal_index_have_a_nic_each():
    """All devices of a node send to the same index of the next: 1 / 8 of the NICs each, on rails or not."""
    split = {"nodes": 4, "tensor": 8, "pipeline": 4, "batch": 8, "microbatches": 8}
    run = Experiment(model="gpt3-175b", machine="selene", strategy=split)
    on = [predict(run.set({"machine.topology": name})).step_time for name in ("fat-tree", "rails")]
    assert on[0] == pytest.approx(on[1], rel=1e-9)
