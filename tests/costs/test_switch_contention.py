"""Laws of links between switches: prices hold wherever groups lie, whether at the edge of a switch or across it.

Tolerances: exact where messages are counted; 10% to events, which have no rounds; a third for trees, whose rounds
overlap in events, and for small messages on rails-pxn, which pass another device (test_the_price_is_near_events).
"""

import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lib_dlhpc.costs import network, switch_contention
from lib_dlhpc.costs.groups import network_on
from lib_dlhpc.costs.platform import NO_LINK, platform
from lib_dlhpc.schedules import ALGORITHMS, Schedule, beside, schedule, within
from lib_dlhpc.schedules.choice import candidates, even_elements
from lib_dlhpc.simulation.events import finish_times
from lib_dlhpc.spec.machine import Device, Link, Machine

FREE = Device({"fp32": 1e13}, 1e10, 1e30, 100.0, 300.0)  # combining costs nothing
SHARED = ("fat-tree", "dragonfly", "torus")
RAILS = ("rails", "rails-pxn")
GOALS = ("allreduce", "reduce_scatter", "allgather", "all_to_all")
TREES = ("binomial", "double_binary_tree")
# Those that the price missed by more than a fifth while it took each block of nodes to begin at a switch: algorithm,
# topology, nodes, devices, nodes of a switch, oversubscription, ranks of a group, how far apart.
ACROSS = [
    ("ring", "fat-tree", 12, 1, 4, 8.0, 3, 1),
    ("ring_reduce_scatter", "fat-tree", 4, 1, 3, 2.0, 2, 2),  # one node of the last switch
    ("hierarchical_ring", "fat-tree", 4, 1, 3, 4.0, 2, 2),
    ("halving_reduce_scatter", "fat-tree", 8, 4, 3, 8.0, 2, 8),
    ("rabenseifner", "fat-tree", 12, 4, 3, 8.0, 8, 2),
    ("recursive_doubling", "fat-tree", 8, 3, 4, 4.0, 3, 8),  # one rank folds
    ("hierarchical_all_to_all", "fat-tree", 12, 2, 4, 4.0, 12, 1),
    ("pairwise_all_to_all", "fat-tree", 12, 8, 2, 4.0, 6, 4),
    ("torus_2d", "fat-tree", 24, 1, 4, 4.0, 24, 1),
    ("ring_reduce_scatter", "torus", 12, 1, 2, 1.0, 3, 1),
    ("halving_reduce_scatter", "torus", 48, 1, 2, 1.0, 6, 1),
    ("ring_allgather", "dragonfly", 12, 1, 3, 8.0, 2, 1),
    ("halving_doubling", "dragonfly", 16, 2, 3, 2.0, 2, 4),
    ("torus_2d", "dragonfly", 24, 4, 3, 2.0, 96, 1),
    ("hierarchical_reduce_scatter", "dragonfly", 32, 3, 3, 1.0, 2, 4),  # not of one place in a node
    ("ring_allgather", "rails", 8, 3, 2, 4.0, 2, 4),
    ("hierarchical_reduce_scatter", "rails", 24, 4, 3, 8.0, 32, 1),
    ("doubling_allgather", "rails-pxn", 24, 1, 4, 2.0, 6, 1),
    ("ring_allgather", "fat-tree", 24, 3, 3, 8.0, 4, 1),  # across nodes and switches
    ("pairwise_all_to_all", "fat-tree", 6, 8, 2, 8.0, 8, 3),
]


def machine(topology, nodes, each=1, leaf=1, over=1.0, more=0, nics=1):
    links = Link(2e-6, 300e9), Link(5e-6, 25e9)
    sizes = {"nodes": nodes + more, "devices_per_node": each, "nics": nics}
    return Machine(
        *(FREE, *links), topology=topology, nodes_per_switch=leaf, oversubscription=over, **sizes
    )


def slower(on, nodes, source, target):
    """Return how long the busiest link takes, in messages between two NICs: by the routes of the simulation."""
    here = platform(on, nodes, 1)
    away = source != target
    links, _ = here.routes(source[away], target[away])
    busy = np.bincount(links[links != NO_LINK], minlength=len(here.capacity)) / here.capacity
    return max(float(busy.max()) * here.capacity[2 * nodes], 1.0)


def across(nodes, block, at, to):
    """Return who sends to whom if places `at` of each block of the nodes send to places `to`."""
    first = np.arange(0, nodes, block)[:, np.newaxis]
    return (first + at).ravel(), (first + to).ravel()


@st.composite
def blocks(draw):
    """Draw a machine, and how many nodes each group on it has, at which distance."""
    many, step = draw(st.integers(2, 12)), draw(st.integers(1, 4))
    nodes = many * step * draw(st.integers(1, 4))
    leaf, over = draw(st.integers(1, 9)), draw(st.sampled_from([1.0, 1.5, 4.0]))
    on = machine(draw(st.sampled_from(SHARED)), nodes, 1, leaf, over, draw(st.integers(0, 20)))
    return on, nodes, many, step


@given(blocks(), st.data())
def test_a_shift_is_as_slow_as_its_busiest_link(drawn, data):
    on, nodes, many, step = drawn
    block, at = many * step, np.arange(many * step)
    distance = data.draw(st.integers(1, block - 1))
    ends = across(nodes, block, at, (at + distance) % block)
    assert network.shifted(on, nodes, block, distance) == pytest.approx(slower(on, nodes, *ends))
    steps = [
        slower(on, nodes, *across(nodes, block, at, (at + step * k) % block))
        for k in range(1, many)
    ]
    assert network.all_to_all_steps(on, nodes, many, step) == pytest.approx(np.mean(steps))


@given(blocks(), st.integers(0, 3))
def test_pairs_and_trees_are_as_slow_as_their_busiest_link(drawn, k):
    on, nodes, many, step = drawn
    distance, offset = 2**k, np.arange(step)[:, np.newaxis]
    core = 1 << many.bit_length() - 1
    # The first 2 (many - core) nodes fold in pairs; of each the first one stays.
    staying = np.sort(
        np.append(np.arange(0, 2 * (many - core), 2), np.arange(2 * (many - core), many))
    )
    at = np.arange(core)[(np.arange(core) ^ distance) < core]
    pairs = (staying[each] * step + offset for each in (at, at ^ distance))
    found = network.congestion(on, nodes, distance, many, step)
    ends = across(nodes, many * step, *(each.ravel() for each in pairs))
    assert found == pytest.approx(slower(on, nodes, *ends) if distance < core else 1.0)
    child = np.arange(distance, many, 2 * distance)
    ends = ((each * step + offset).ravel() for each in (child, child - distance))
    found = network.tree_congestion(on, nodes, many, step, distance)
    up = across(nodes, many * step, *ends)
    both = [slower(on, nodes, *up), slower(on, nodes, *up[::-1])]
    assert found == pytest.approx(np.mean(both))


@pytest.mark.parametrize(
    ("topology", "leaf", "nodes", "block"),
    [
        ("dragonfly", 7, 300, 300),
        ("dragonfly", 36, 1000, 500),
        ("fat-tree", 36, 1000, 500),
        ("torus", 1, 900, 450),
    ],
)
def test_some_steps_of_a_large_all_to_all_stand_for_all(topology, leaf, nodes, block, monkeypatch):
    where, steps = (topology, leaf, nodes, block), np.arange(1, block)
    every = switch_contention._shifts(*where, steps, switch_contention.ALL)
    monkeypatch.setattr(switch_contention, "MESSAGES", 0)
    some = switch_contention._shifts(*where, steps, switch_contention.ALL)
    assert len(every) == len(steps) and len(some) == switch_contention.STEPS
    assert some.mean() == pytest.approx(every.mean(), rel=0.03)


def test_arrays_are_slowed_down_element_by_element():
    leaf, over, nodes = np.array([2, 3, 4]), np.array([[1.0], [4.0]]), np.array([6, 8])
    wide = machine("fat-tree", 24, 1, leaf, over)
    found = [
        network.shifted(wide, nodes, nodes, 1),
        network.congestion(wide, nodes, 2),
        network.all_to_all_steps(wide, nodes, nodes),
        network.tree_congestion(wide, nodes, nodes, 1),
    ]
    for i, j, k in np.ndindex(2, 3, 2):
        one, many = machine("fat-tree", 24, 1, int(leaf[j]), float(over[i, 0])), int(nodes[k])
        assert [each[i, j, k] for each in found] == [
            network.shifted(one, many, many, 1),
            network.congestion(one, many, 2),
            network.all_to_all_steps(one, many, many),
            network.tree_congestion(one, many, many, 1),
        ]


def measured(name, topology, nodes, each, leaf, over, ranks, apart, size=1e9, nics=1, more=0):
    """Return price and events of a collective that all groups begin at once."""
    on = machine(topology, nodes, each, leaf, over, more, nics)
    net, record = network_on(on, each, nodes, ranks, apart), ALGORITHMS[name]
    count = even_elements(record.goal, ranks)
    made = schedule(name, ranks, count, **record.on_nodes(ranks, int(net.inner.ranks)))
    everyone = np.arange(nodes * each).reshape(-1, ranks, apart)
    rows = np.moveaxis(everyone, 1, -1).reshape(-1, ranks)
    rounds = list(beside(*(within(made.rounds(), row) for row in rows)))
    together = Schedule(name, nodes * each, count, lambda: rounds)
    ends = finish_times(together, on, nodes, each, size / count)
    return float(record.priced(size, net).total), float(ends.max())


@pytest.mark.parametrize("case", ACROSS, ids=str)
def test_groups_across_the_edge_of_a_switch_cost_what_its_links_carry(case):
    price, ends = measured(*case)
    assert price == pytest.approx(ends, rel=0.1)


@pytest.mark.parametrize("nodes", [4, 8, 12, 16, 24])
@pytest.mark.parametrize(
    ("topology", "leaf", "over"),
    [("fat-tree", 2, 2.0), ("fat-tree", 4, 4.0), ("torus", 1, 1.0), ("dragonfly", 4, 2.0)],
)
def test_double_trees_slow_down_where_their_edges_share_a_link(topology, leaf, over, nodes):
    """Within a third, as rounds of a tree overlap in events; priced like a ring they are 47% too fast."""
    price, ends = measured("double_binary_tree", topology, nodes, 1, leaf, over, nodes, 1)
    assert price == pytest.approx(ends, rel=1 / 3)


def places(seed, many):
    """Yield random groups and collectives."""
    draw = random.Random(seed)
    names = [one.name for goal in GOALS for one in candidates(goal)]
    while many:
        nodes, each = draw.choice([2, 3, 4, 6, 8, 12, 16]), draw.choice([1, 1, 2, 3, 4])
        ranks = draw.choice([n for n in range(2, nodes * each + 1) if nodes * each % n == 0])
        rest = nodes * each // ranks
        apart = draw.choice([n for n in range(1, rest + 1) if rest % n == 0])
        switches = draw.choice([2, 3, 4, 8]), draw.choice([1.0, 2.0, 4.0, 8.0])
        way = draw.choice([*SHARED, *RAILS]), nodes, each, *switches, ranks, apart
        yield draw.choice(names), *way, draw.choice([1e4, 1e6, 1e9]), draw.choice([1, 2, each])
        many -= 1


def test_the_price_is_near_events_wherever_groups_lie():
    """Of 400 draws all but trees and one in fifty are within 10%; all are within a third."""
    off = {}
    for case in places(7, 400):
        price, ends = measured(*case)
        off[case] = abs(price / ends - 1)
    assert max(off.values()) < 1 / 3
    far = [case for case, by in off.items() if by > 0.1 and case[0] not in TREES]
    assert len(far) <= 8
