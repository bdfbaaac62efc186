"""A schedule's price is the textbook's formula, and predict's closed form, symbol for symbol."""

from itertools import product
from math import ceil, floor, log2

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lib_dlhpc.costs.network import Level, Network
from lib_dlhpc.errors import SpecError
from lib_dlhpc.prediction.communication.collectives import ALGORITHMS as CLOSED_FORMS
from lib_dlhpc.schedules import ALGORITHMS, COLLECTIVES, Cost, price, schedule
from lib_dlhpc.schedules.double_tree import SEGMENTS, double_binary_tree_cost

RANKS = [*range(1, 18), 32, 64]
ALPHA, BETA, GAMMA = 1e-6, 1e-10, 1e-11
UNIT = (1.0, 0.0, 0.0), (0.0, 1.0, 0.0), (0.0, 0.0, 1.0)
every_rank = pytest.mark.parametrize("p", RANKS)
every_closed_form = pytest.mark.parametrize("name", CLOSED_FORMS)


def flat(p):
    """p ranks on one level: nodes of one device."""
    return Network(Level(1, 9.0, 9.0), Level(p, ALPHA, BETA), GAMMA)


def same(cost, closed, rel=1e-12):
    assert tuple(cost) == pytest.approx(tuple(map(float, closed)), rel=rel, abs=0)


def divisible(name, p):
    """What the element count must be a multiple of for all blocks to be equal."""
    return 2 ** floor(log2(p)) if name == "rabenseifner" else p


@every_closed_form
def test_blocks_of_equal_size_cost_the_closed_form(name):
    for p, times in product(RANKS, (0, 1, 3, 1000)):
        n = times * divisible(name, p)
        cost = price(schedule(name, p, n), ALPHA, BETA, GAMMA, itemsize=8)
        same(cost, CLOSED_FORMS[name](8 * n, flat(p)))


@every_closed_form
def test_blocks_that_differ_cost_as_if_all_were_the_largest_at_most(name):
    """Rings and parameter servers pay for ceil(n/p); Rabenseifner and the torus less, as halves differ less."""
    points = [(p, n) for p in RANKS for n in (0, 1, p - 1, p + 1, 2 * p + 1, 100, 997)]
    for p, n in points:
        unit = divisible(name, p)
        cost = price(schedule(name, p, n), ALPHA, BETA, GAMMA, itemsize=1)
        least, most = (CLOSED_FORMS[name](m, flat(p)) for m in (n, -(-n // unit) * unit))
        for term, low, high in zip(cost, least, most, strict=True):
            assert low * (1 - 1e-9) <= term <= high * (1 + 1e-9), (p, n)
        if name in ("ring", "parameter_server", "hierarchical"):
            same(cost, most)
        if name in ("recursive_doubling", "binomial"):
            same(cost, least)


@every_rank
@pytest.mark.parametrize(
    "name", ["ring", "recursive_doubling", "rabenseifner", "binomial", "torus_2d"]
)
def test_each_symbol_is_the_textbooks(name, p):
    """(alpha, beta, gamma) coefficients, priced one at a time; n is a multiple of all block counts."""
    n = 64 * p
    q, beyond = floor(log2(p)), p != 2 ** floor(log2(p))
    depth, share, part = ceil(log2(p)), (p - 1) / p, 1 - 0.5**q
    x = max(x for x in range(1, p + 1) if p % x == 0 and x * x <= p)
    expected = {
        "ring": (2 * (p - 1), 2 * share * n, share * n),
        "recursive_doubling": (q + 2 * beyond, (q + 2 * beyond) * n, (q + beyond) * n),
        "rabenseifner": (2 * (q + beyond), 2 * (part + beyond) * n, (part + beyond) * n),
        "binomial": (2 * depth, 2 * depth * n, depth * n),
        "torus_2d": (2 * (x + p // x - 2), 2 * share * n, share * n),
    }[name]
    for symbol, coefficient in enumerate(expected):
        cost = price(schedule(name, p, n), *UNIT[symbol], itemsize=1)
        assert cost[symbol] == cost.total == pytest.approx(coefficient, rel=1e-12)


@every_rank
@settings(max_examples=5)
@given(times=st.integers(0, 50), root=st.integers(0, 10_000))
def test_other_collectives_cost_their_papers_formulas(p, times, root):
    n, depth, share = times * p * p, ceil(log2(p)), (p - 1) / p
    expected = {
        "binomial_broadcast": (depth, depth * n, 0),
        "van_de_geijn_broadcast": (depth + p - 1, 2 * share * n, 0),
        "binomial_reduce": (depth, depth * n, depth * n),
        "ring_reduce_scatter": (p - 1, share * n, share * n),
        "ring_allgather": (p - 1, share * n, 0),
        "bruck_allgather": (depth, share * n, 0),
        "hierarchical_reduce_scatter": (p - 1, share * n, share * n),
        "hierarchical_allgather": (p - 1, share * n, 0),
        "halving_reduce_scatter": (depth, share * n, share * n),
        "doubling_allgather": (depth, share * n, 0),
        "pairwise_all_to_all": (p - 1, share * n / p, 0),
    }
    for name, coefficients in expected.items():
        rooted = name.startswith(("binomial", "van"))
        ours = schedule(name, p, n, **({"root": root % p} if rooted else {}))
        cost = price(ours, 1.0, 1.0, 1.0, itemsize=1)
        assert tuple(cost) == pytest.approx(coefficients, rel=1e-12), name


@given(p=st.integers(2, 20), s=st.integers(1, 20))
def test_a_chain_fills_and_empties_like_a_pipe(p, s):
    n = 60 * s
    cost = price(schedule("chain_broadcast", p, n, segments=s), 1.0, 1.0, itemsize=1)
    assert tuple(cost)[:2] == (p + s - 2, (p + s - 2) * 60)


@pytest.mark.parametrize("p", [2, 4, 8, 16, 32, 64, 256])
def test_a_double_tree_has_a_rings_bandwidth_at_a_trees_latency(p):
    n, s = 2**16, 128
    cost = price(schedule("double_binary_tree", p, n, segments=s), 1.0, 1.0, 1.0, itemsize=1)
    assert cost.latency <= 4 * (s + log2(p) + 1)
    assert cost.bandwidth <= 2 * n * (1 + (log2(p) + 1) / s)
    assert cost.reduction <= n * (1 + (log2(p) + 1) / s)


@pytest.mark.parametrize("s", [1, 2, 3, 8])
def test_a_double_tree_costs_its_closed_form(s):
    for p in (*range(1, 70), 96, 127, 128, 129, 191, 192, 300):
        n = 2 * s * 12
        plan = schedule("double_binary_tree", p, n, segments=s)
        cost = price(plan, ALPHA, BETA, GAMMA, itemsize=8)
        closed = double_binary_tree_cost(8 * n, flat(p), s)
        if p % 4 != 1 or (p - 1).bit_count() == 1:
            same(cost, closed)
        else:  # the reduction, and with it the broadcast, may have a round less
            fewer = double_binary_tree_cost(8 * n, flat(p), s).latency - cost.latency
            assert min(abs(fewer), abs(fewer - 2 * ALPHA)) < 1e-12
            assert cost.total <= float(closed.total) * (1 + 1e-9)


@pytest.mark.parametrize("g", [1, 2, 3, 8])
@pytest.mark.parametrize("nodes", [1, 2, 6, 8])
def test_a_double_tree_between_nodes_costs_its_closed_form(g, nodes):
    net = Network(Level(g, 1e-6, 1e-11), Level(nodes, 5e-6, 1e-10), GAMMA)
    n = g * 2 * SEGMENTS * 12
    plan = schedule("double_binary_tree", g * nodes, n, node_size=g)
    same(price(plan, network=net, itemsize=1), ALGORITHMS["double_binary_tree"].priced(n, net))


@pytest.mark.parametrize("d", [1, 2, 3])
def test_an_inner_rank_of_a_halo_exchange_pays_for_all_its_faces(d):
    cost = price(schedule("halo_exchange", 3**d, 60, dimensions=d), 1.0, 1.0, itemsize=1)
    assert tuple(cost) == (2 * d, 60, 0)


# --- two levels ---


LEVELS = {  # alpha, beta of links inside a node and between nodes
    "slower outside": ((1e-6, 1e-11), (5e-6, 1e-10)),
    "longer latency inside": ((9e-6, 1e-11), (1e-6, 1e-10)),
    "lower bandwidth inside": ((1e-6, 1e-9), (5e-6, 1e-10)),
    "little lower inside": ((1e-6, 3e-10), (5e-6, 1e-10)),
}
TWO_LEVELS = [n for n in CLOSED_FORMS if n != "parameter_server"] + list(COLLECTIVES["all_to_all"])


@pytest.mark.parametrize("levels", LEVELS)
@pytest.mark.parametrize("name", TWO_LEVELS)
def test_two_levels_cost_the_closed_form_of_two_levels(name, levels):
    """Ranks are numbered node by node; the ranks of a node share its NICs."""
    near, far = LEVELS[levels]
    for g, nodes in product([1, 2, 3, 4, 6, 8], [1, 2, 3, 5, 8]):
        p = g * nodes
        net = Network(Level(g, *near), Level(nodes, *far), GAMMA)
        for n in (p * p * 8 * 8 * 15, p * p * 8 * 8 * 15 * 128):
            options = ALGORITHMS[name].on_nodes(p, g)
            cost = price(schedule(name, p, n, **options), network=net, itemsize=1)
            same(cost, ALGORITHMS[name].cost(n, net), 1e-9)


def test_a_ring_is_as_fast_as_the_link_that_takes_longest_for_its_messages():
    """By hand: 2 nodes of 2 ranks, blocks of 4 B. Inside 10 + 4 s, between nodes 1 + 8 s: not 10 + 8 s."""
    net = Network(Level(2, 10.0, 1.0), Level(2, 1.0, 2.0), 0.0)
    assert price(schedule("ring", 4, 16), network=net, itemsize=1) == Cost(60, 24, 0)
    assert ALGORITHMS["ring"].cost(16, net) == Cost(60, 24, 0)
    assert ALGORITHMS["ring"].cost(64, net) == Cost(6, 192, 0)  # 10 + 16 s, 1 + 32 s


def test_a_pair_beside_one_that_leaves_the_node_waits_for_it():
    """By hand: 2 nodes of 2 ranks, messages of 4 B, in steps 1 and 3 one rank of a node leaves it, in step 2 both."""
    slow_inside = Network(Level(2, 1.0, 4.0), Level(2, 1.0, 1.0), 0.0)
    slow_outside = Network(Level(2, 1.0, 1.0), Level(2, 1.0, 2.0), 0.0)
    for net, seconds in ((slow_inside, 17 + 9 + 17), (slow_outside, 9 + 17 + 9)):
        assert ALGORITHMS["pairwise_all_to_all"].cost(64, net).total == seconds
        plan = schedule("pairwise_all_to_all", 4, 64)
        assert price(plan, network=net, itemsize=1).total == seconds


def test_ports_serve_one_message_after_the_other_and_both_ways_at_once():
    def both(ranks, elements):
        yield [(0, 1, 0, 5, "copy"), (0, 2, 0, 5, "copy"), (1, 0, 0, 8, "reduce")]

    # Rank 0 sends two at 1 + 5 s each while it receives one, and then combines 8 elements.
    assert price(schedule(both, 3, 10), 1.0, 1.0, 1.0, itemsize=1) == Cost(2, 10, 8)


def test_the_network_must_have_the_schedules_ranks():
    with pytest.raises(SpecError, match="1 x 4 ranks, but the schedule is for 8"):
        price(schedule("ring", 8, 4), network=flat(4))


@pytest.mark.parametrize("name", ALGORITHMS)
def test_bytes_are_elements_times_their_size(name):
    one, four = (price(schedule(name, 6, 72), 1.0, 1.0, 1.0, itemsize=i) for i in (1, 4))
    assert four == pytest.approx((one.latency, 4 * one.bandwidth, 4 * one.reduction))
