"""Groups that cross the edge of a node: their price is that of the links that their ranks really use.

Three tensor ranks on nodes of eight devices are inside a node or on two, and the slowest group has everyone wait.
Tolerances: 1e-9 between prices and rounds, as elsewhere; 10% to events, which have no rounds (tests/parallel).
"""

import random
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from same_terms import assert_same_terms

from lib_dlhpc import SpecError
from lib_dlhpc.costs.groups import collective, halo_cost, network_on, shift_cost
from lib_dlhpc.costs.uneven_groups import is_even
from lib_dlhpc.parallel.groups import groups_of
from lib_dlhpc.parallel.pipeline import ways
from lib_dlhpc.prediction import predict
from lib_dlhpc.schedules import ALGORITHMS, Schedule, beside, messages, price, schedule, within
from lib_dlhpc.schedules.choice import candidates, even_elements
from lib_dlhpc.simulation import simulate, simulate_terms
from lib_dlhpc.simulation.events import finish_times
from lib_dlhpc.spec.experiment import Experiment
from lib_dlhpc.spec.machine import Device, Link, Machine
from lib_dlhpc.timeline import breakdown

FREE = Device({"fp32": 1e13}, 1e10, 1e30, 100.0, 300.0)  # combining costs nothing
GOALS = ("allreduce", "reduce_scatter", "allgather", "all_to_all")
NAMES = sorted(one.name for goal in GOALS for one in candidates(goal))
ONE_BY_ONE = ("binomial", "recursive_doubling")  # groups that are not alike in who waits for whom
# Nodes, devices of each, ranks of a group, how far apart: of each some groups are on one node more than others.
PLACES = [
    (3, 8, 3, 1),
    (3, 8, 6, 1),
    (3, 8, 12, 1),
    (3, 8, 4, 3),
    (3, 8, 8, 3),
    (2, 6, 4, 1),
    (5, 4, 5, 2),
]
GPT = {
    "family": "gpt",
    "layers": 6,
    "hidden": 384,
    "heads": 12,
    "sequence": 288,
    "vocabulary": 768,
    "dropout": 0.0,
}
EXPERTS = GPT | {"experts": 12, "chosen": 2}
LAYER = {"kind": "conv", "channels": 12, "kernel": 3, "padding": 1}
IMAGES = {
    "family": "sequential",
    "input": [3, 48, 48],
    "layers": [
        LAYER,
        {"kind": "relu"},
        LAYER,
        {"kind": "flatten"},
        {"kind": "dense", "features": 12},
    ],
}


def machine(nodes, each, topology="single-switch", nics=1, device=FREE):
    links = Link(2e-6, 100e9), Link(5e-6, 12.5e9)
    more = {"topology": topology, "nodes_per_switch": nodes}
    return Machine(device, *links, nodes=nodes, devices_per_node=each, nics=nics, **more)


def members(nodes, each, ranks, apart):
    """Return the ranks of all groups, (groups, ranks)."""
    everyone = np.arange(nodes * each).reshape(-1, ranks, apart)
    return np.moveaxis(everyone, 1, -1).reshape(-1, ranks)


def together(made, rows):
    """Return the schedule of one group carried out by all at once."""
    rounds = list(beside(*(within(made.rounds(), row) for row in rows)))
    return Schedule(made.name, rows.size, made.elements, lambda: rounds)


@given(st.integers(1, 9), st.integers(1, 12), st.integers(1, 24), st.integers(1, 12))
def test_groups_are_even_that_have_equally_many_ranks_on_each_node(nodes, each, ranks, apart):
    nodes *= ranks * apart  # so that groups fill the machine
    counts = {
        count
        for row in members(nodes, each, ranks, apart)
        for count in np.unique(row // each, return_counts=True)[1]
    }
    assert is_even(each, nodes, ranks, apart) == (len(counts) == 1)


@pytest.mark.parametrize("place", PLACES, ids=str)
def test_rows_of_a_group_are_inside_a_node(place):
    nodes, each, ranks, apart = place
    net = network_on(machine(nodes, each), each, nodes, ranks, apart)
    size, rows = net.inner.ranks, members(*place)
    assert net.inner.ranks * net.outer.ranks == ranks

    def inside(length):
        parts = (rows // each).reshape(len(rows), -1, length)
        return bool((parts == parts[..., :1]).all())

    assert [n for n in range(1, ranks + 1) if ranks % n == 0 and inside(n)][-1] == size


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("place", PLACES, ids=str)
def test_the_price_of_a_group_is_that_of_all_of_them_on_the_whole_machine(place, name):
    """Two implementations: costs/uneven_groups.py by links, schedules/price.py by NICs."""
    nodes, each, ranks, apart = place
    for topology, nics in (("single-switch", 2), ("rails", 2), ("rails-pxn", each)):
        on = machine(nodes, each, topology, nics)
        net, record = network_on(on, each, nodes, ranks, apart), ALGORITHMS[name]
        count = even_elements(record.goal, ranks) * 1000
        made = schedule(name, ranks, count, **record.on_nodes(ranks, net.inner.ranks))
        all_groups, whole = (
            together(made, members(*place)),
            network_on(on, each, nodes, nodes * each, 1),
        )
        found = record.priced(4.0 * count, net)
        assert tuple(found) == pytest.approx(tuple(price(all_groups, network=whole)), rel=1e-9)
        if topology == "single-switch":
            ends = finish_times(all_groups, on, nodes, each).max()
            # Ranks run ahead, and groups meet others that are in another round.
            assert (
                0.6 * found.total <= ends <= (1.2 if made.name in ONE_BY_ONE else 1.1) * found.total
            )
            if name.startswith("ring"):
                assert ends == pytest.approx(found.total, rel=1e-9)


@pytest.mark.parametrize("place", PLACES, ids=str)
def test_neighbors_exchange_over_the_edge_of_a_node(place):
    """In a ring, and with halos, in which a rank serves both neighbors at once."""
    nodes, each, ranks, apart = place
    on = machine(nodes, each)
    net, rows, rank = network_on(on, each, nodes, ranks, apart), members(*place), np.arange(ranks)
    ring = [messages(rank, (rank + 1) % ranks, 0, 4000, False)]
    ends = finish_times(
        together(Schedule("ring", ranks, 4000, lambda: ring), rows), on, nodes, each
    )
    assert shift_cost(net, 16e3).total == pytest.approx(ends.max(), rel=1e-9)
    crossing = np.zeros(nodes)  # messages that leave each node
    for row in rows // each:
        for one, other in pairwise(row):
            crossing[[one, other]] += one != other
    size = 16e3 if ranks == 2 else 8e3
    assert halo_cost(net, 16e3).total == pytest.approx(
        5e-6 + crossing.max() * size / 12.5e9, rel=1e-9
    )


def test_arrays_are_priced_entry_by_entry():
    net, sizes = network_on(machine(3, 8), 8, 3, 12, 1), np.geomspace(1.0, 1e9, 12).reshape(3, 4)
    for goal in GOALS:
        found = collective(goal, sizes, net)
        for at in np.ndindex(3, 4):
            one = collective(goal, float(sizes[at]), net)
            assert [term[at] for term in found] == pytest.approx(list(one), rel=1e-12)


def run_of(nodes, each, model, topology="single-switch", nics=1, **strategy):
    own = {
        "name": "selene",
        "devices_per_node": each,
        "nics": nics,
        "topology": topology,
        "jitter": 0.0,
    }
    slow = {"inter_node": {"bandwidth": 10e9, "latency": 5e-6}, "nodes_per_switch": 64}
    ways = {"nodes": nodes, "precision": "bf16", **strategy}
    return Experiment(model=model, dataset="webtext", machine=own | slow, strategy=ways)


def crossing(run):
    """Return the kinds of groups that cross the edge of a node."""
    return {
        name
        for name, group in groups_of(run).items()
        if group.size > 1 and group.network.uneven is not None
    }


RING = {"context_exchange": "ring", "fused_attention": "auto"}
STEPS = [
    (3, 8, GPT, {"tensor": 3, "batch": 16}),
    (3, 8, GPT, {"tensor": 3, "batch": 16, "sequence_parallel": True, "allreduce": "ring"}),
    (3, 8, GPT, {"tensor": 6, "batch": 8}),
    (3, 8, GPT, {"tensor": 6, "batch": 8, "zero": 1, "allreduce": "rabenseifner"}),
    (3, 8, GPT, {"tensor": 12, "batch": 4}),
    (6, 4, GPT, {"tensor": 3, "batch": 16}),
    (3, 8, GPT, {"pipeline": 2, "batch": 96, "microbatches": 4}),  # data groups of 12
    (3, 8, GPT, {"pipeline": 2, "batch": 96, "microbatches": 4, "zero": 3}),
    (3, 8, GPT, {"shards": 6, "batch": 48, "zero": 3}),
    (3, 8, EXPERTS, {"experts": 12, "batch": 48, "overlap": False}),
    (3, 8, EXPERTS, {"experts": 3, "batch": 48, "overlap": False}),
    (3, 4, EXPERTS, {"experts": 6, "batch": 24, "overlap": False}),
    (3, 8, GPT, {"context": 12, "batch": 48, **RING}),
    (3, 8, GPT, {"context": 3, "batch": 48, "fused_attention": "auto"}),
    (2, 6, IMAGES, {"spatial": 4, "batch": 12, "precision": "fp32"}),
    (2, 6, IMAGES, {"tensor": 4, "batch": 12, "precision": "fp32"}),
]


NICS = [("single-switch", 1), ("rails", 4)]


@pytest.mark.parametrize("number", range(len(STEPS)))
def test_a_step_whose_groups_cross_a_node_is_near_what_the_links_carry(number):
    """Rounds on both topologies; events, which take longest, on them in turns."""
    nodes, each, model, split = STEPS[number]
    for turn, (topology, nics) in enumerate(NICS):
        run = run_of(nodes, each, model, topology, nics, **split)
        assert crossing(run)
        step = float(predict(run).step_time)
        assert breakdown(simulate(run)).step_time == pytest.approx(step, rel=1e-9)
        if turn == number % len(NICS):
            events = breakdown(simulate(run, "events")).step_time
            assert events == pytest.approx(step, rel=0.1)


def layouts(seed, many):
    """Yield experiments whose groups cross the edge of a node, drawn from all kinds of parallelism."""
    draw = random.Random(seed)
    while many:
        nodes, each = draw.choice([(3, 8), (5, 4), (2, 6), (3, 4), (5, 6)])
        split = {"tensor": draw.choice([1, 2, 3, 4, 6]), "pipeline": draw.choice([1, 2, 3, 5])}
        split |= {
            "zero": draw.choice([0, 1, 3]),
            "allreduce": draw.choice(["auto", "ring", "hierarchical"]),
        }
        model = draw.choice([GPT, EXPERTS, IMAGES])
        if model is EXPERTS:
            split["experts"] = draw.choice([2, 3, 4, 6])
        elif model is GPT:
            split |= {"context": draw.choice([1, 2, 3, 6]), **RING}
        else:
            split |= {"spatial": draw.choice([1, 2, 4]), "precision": "fp32"}
        if split["pipeline"] > 1:
            split["microbatches"] = 2 * split["pipeline"]
        split["batch"] = 2 * nodes * each * split.get("microbatches", 1)
        nics = draw.choice([("single-switch", 1), ("rails", 4), ("rails-pxn", 2), ("fat-tree", 2)])
        try:
            run = run_of(nodes, each, model, *nics, **split)
            predict(run)
        except SpecError:
            continue
        if crossing(run):
            many -= 1
            yield run


@pytest.fixture(scope="module")
def drawn():
    return list(layouts(20, 20))


@pytest.mark.parametrize("number", range(20))
def test_no_engine_fails_and_rounds_are_the_price(number, drawn):
    run = drawn[number]
    assert_same_terms(run)
    jittery = run.set({"machine.jitter": 0.05})
    assert simulate_terms(jittery, seed=1).step_time == pytest.approx(
        breakdown(simulate(jittery, seed=1)).step_time, rel=1e-9
    )
    assert breakdown(simulate(run, "events")).step_time > 0


def test_a_stage_across_an_edge_sends_over_the_network():
    """Stages of three ranks on nodes of eight: ranks 3, 4, 5 send to 6, 7, 8, of which the last is in the next node."""
    run = run_of(3, 8, GPT | {"layers": 8}, tensor=3, pipeline=8, batch=16, microbatches=16)
    apart = [way.latency == 5e-6 for (way,) in ways(run)]
    assert apart == [False, True, True, False, True, True, False, True]
    one, two = ways(run)[1][0].beta, ways(run)[2][0].beta
    # Ranks 6 and 7 leave their node for 9 and 10, 8 stays there.
    assert two == pytest.approx(2 * one)
