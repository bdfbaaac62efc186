"""Laws of the choice: never dearer than any algorithm, latency by levels and logarithms, and what is named stays."""

from math import ceil, log2

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lib_dlhpc.schedules import ALGORITHMS, COLLECTIVES, price, prove, schedule
from lib_dlhpc.schedules.choice import candidates, cheapest, chosen, plan
from lib_dlhpc.schedules.network import Level, Network
from lib_dlhpc.simulation import rounds
from lib_dlhpc.simulation.events import finish_times
from lib_dlhpc.spec.machine import Device, Link, Machine

GOALS = ("allreduce", "reduce_scatter", "allgather", "all_to_all")
LEVELS = [(1, 1), (1, 6), (8, 1), (2, 2), (4, 4), (3, 2), (2, 3), (8, 2), (4, 5), (2, 7)]
INSIDE, BETWEEN = Link(2e-6, 100e9), Link(5e-6, 12.5e9)
DEVICE = Device({"fp32": 1e13}, 1e10, 9e11, 100.0, 300.0)
HALVES = [one.name for goal in GOALS[1:3] for one in candidates(goal)]
every_goal = pytest.mark.parametrize("goal", GOALS)
sizes = st.sampled_from([0.0, 1.0, 1e3, 1e5, 1e7, 1e9])
counts = st.integers(1, 300)


def network(g, nodes):
    inner = Level(g, INSIDE.latency, 1 / INSIDE.bandwidth)
    outer = Level(nodes, BETWEEN.latency, 1 / BETWEEN.bandwidth)
    return Network(inner, outer, 3 / DEVICE.memory_bandwidth)


def total(goal, n, g, nodes, name="auto"):
    return float(cheapest(goal, n, network(g, nodes), name).total)


@every_goal
@given(n=sizes, g=st.integers(1, 16), nodes=counts)
def test_nothing_that_libraries_have_is_cheaper(goal, n, g, nodes):
    best = total(goal, n, g, nodes)
    prices = {one.name: float(one.priced(n, network(g, nodes)).total) for one in candidates(goal)}
    assert best == min(prices.values()) == prices[chosen(goal, n, network(g, nodes)).name]
    if goal != "all_to_all":
        assert best <= total(goal, n, g, nodes, "ring")


@given(n=sizes, g=st.integers(1, 16), nodes=counts)
def test_an_allreduce_costs_no_more_than_its_halves(n, g, nodes):
    halves = total("reduce_scatter", n, g, nodes) + total("allgather", n, g, nodes)
    assert total("allreduce", n, g, nodes) <= halves * (1 + 1e-12)


@every_goal
@given(g=st.integers(1, 16), nodes=counts)
def test_latency_grows_with_the_logarithm_of_each_level(goal, g, nodes):
    """Of small messages: ceil(lg g) alpha of the node and ceil(lg N) alpha of the network, twice for an allreduce."""
    inside, between = ceil(log2(g)) * INSIDE.latency, ceil(log2(nodes)) * BETWEEN.latency
    times = 2 if goal == "allreduce" else 1
    assert total(goal, 0.0, g, nodes) <= times * (inside + between) * (1 + 1e-12)


@every_goal
@given(st.floats(0, 1e10), st.floats(0, 1e10), st.integers(1, 16), counts)
def test_more_bytes_never_cost_less(goal, one, other, g, nodes):
    less, more = sorted((one, other))
    assert total(goal, less, g, nodes) <= total(goal, more, g, nodes) * (1 + 1e-12)


@pytest.mark.parametrize("goal", GOALS[1:3])
@given(n=sizes, g=st.integers(1, 16), one=counts, other=counts)
def test_more_nodes_never_cost_less(goal, n, g, one, other):
    few, many = sorted((one, other))
    assert total(goal, n, g, few) <= total(goal, n, g, many) * (1 + 1e-12)


@given(n=sizes, g=st.integers(0, 4), one=st.integers(0, 11), other=st.integers(0, 11))
def test_more_nodes_never_make_an_allreduce_cheaper(n, g, one, other):
    """Of powers of two: with others recursive doubling has to fold, and two nodes more may save that."""
    few, many = sorted((one, other))
    prices = [total("allreduce", n, 2**g, 2**k) for k in (few, many)]
    assert prices[0] <= prices[1] * (1 + 1e-12)


@every_goal
def test_arrays_are_priced_entry_by_entry(goal):
    n, nodes = np.geomspace(1, 1e9, 7), np.array([1, 2, 6, 300])[:, None]
    together = cheapest(goal, n, network(8, nodes))
    for i, j in np.ndindex(4, 7):
        alone = cheapest(goal, float(n[j]), network(8, int(nodes[i, 0])))
        assert tuple(term[i, j] for term in together) == pytest.approx(tuple(alone), rel=1e-12)


@every_goal
@pytest.mark.parametrize("name", COLLECTIVES["allreduce"])
def test_what_is_named_is_not_replaced(goal, name):
    """An allreduce that consists of halves names these for ZeRO; of the others none are known, so they are chosen."""
    halves = ALGORITHMS[name].phases
    found = [one.name for one in candidates(goal, name)]
    if goal == "allreduce":
        assert found == [name]
    elif halves and goal != "all_to_all":
        assert found == [halves[GOALS.index(goal) - 1]] and ALGORITHMS[found[0]].goal == goal
    else:
        assert found == [one.name for one in candidates(goal)]


def test_a_server_is_no_library():
    """With host memory at hand it would win inside a node, but a collective library has no host that sums."""
    assert "parameter_server" not in {one.name for one in candidates("allreduce")}


@pytest.mark.parametrize("name", [*HALVES, "hierarchical_all_to_all", "bruck_all_to_all"])
@pytest.mark.parametrize(("g", "nodes"), LEVELS)
def test_a_halfs_schedule_closed_form_and_both_simulations_agree(name, g, nodes):
    ranks, net = g * nodes, network(g, nodes)
    elements = 64 * ranks**2
    ours = schedule(name, ranks, elements, **ALGORITHMS[name].on_nodes(ranks, g))
    prove(ours)
    closed = ALGORITHMS[name].priced(4.0 * elements, net)
    assert tuple(price(ours, network=net)) == pytest.approx(tuple(map(float, closed)), rel=1e-12)
    machine = Machine(DEVICE, INSIDE, BETWEEN, nodes=4096, devices_per_node=16)
    by_rounds = rounds.finish_times(ours, net).max()
    by_events = max(finish_times(ours, machine, nodes, g))
    assert by_rounds == pytest.approx(float(closed.total), rel=1e-9)
    assert by_events == pytest.approx(float(closed.total), rel=1e-9)


@pytest.mark.parametrize("name", [*HALVES, "hierarchical_all_to_all", "bruck_all_to_all"])
@given(g=st.integers(1, 9), nodes=st.integers(1, 6), n=st.integers(0, 300))
def test_halves_are_proved_on_nodes_of_any_size(name, g, nodes, n):
    prove(schedule(name, g * nodes, n, **ALGORITHMS[name].on_nodes(g * nodes, g)))


@pytest.mark.parametrize("goal", GOALS[:3])
@pytest.mark.parametrize(("g", "nodes"), LEVELS)
def test_the_plan_is_of_what_is_chosen(goal, g, nodes):
    for n in (0.0, 1e4, 1e9):
        ours = plan(goal, n, network(g, nodes), g * nodes)
        assert ours.name == chosen(goal, n, network(g, nodes)).name
        took = rounds.finish_times(ours, network(g, nodes), n / ours.elements).max()
        assert took == pytest.approx(total(goal, n, g, nodes), rel=1e-9)
