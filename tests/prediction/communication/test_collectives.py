"""Laws of the allreduces: the textbook's formulas, its lower bounds, and what a step-by-step run moves."""

from itertools import product
from math import ceil, floor, log2

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lib_dlhpc.costs.network import Level, Network
from lib_dlhpc.prediction.communication.collectives import ALGORITHMS, bus_bandwidth, ring

RANKS = [*range(1, 18), 32, 64]
POWERS = [1, 2, 4, 8, 16, 32, 64]
SIZES = [0.0, 1.0, 1e3, 1e6, 1e9]
ALPHA, BETA, GAMMA = 1e-6, 1e-10, 1e-11
every_algorithm = pytest.mark.parametrize("name", ALGORITHMS)
every_rank = pytest.mark.parametrize("p", RANKS)


def flat(p, level):
    """A machine whose `p` devices all sit on one level, the other has one rank and is priceless."""
    here, none = Level(p, ALPHA, BETA), Level(1, 1e9, 1e9)
    return Network(here, none, GAMMA) if level == "inner" else Network(none, here, GAMMA)


def two(g, nodes, a_in=1e-6, b_in=1e-11, a_out=5e-6, b_out=1e-10, gamma=GAMMA):
    return Network(Level(g, a_in, b_in), Level(nodes, a_out, b_out), gamma)


def nearest_divisor(p):
    """Columns of the most square grid of p ranks; of two equally square ones, the taller."""
    return max((x for x in range(1, p + 1) if p % x == 0 and x * x <= p), default=1)


def textbook(name, p, n):
    """(alpha, beta, gamma) coefficients for p ranks on one level, written out from the papers.

    Thakur, Rabenseifner & Gropp 2005, section 4: ring, recursive doubling, Rabenseifner, with one
    more exchange before and after for ranks beyond the largest power of two q. Chan et al. 2007:
    binomial reduce then broadcast. Awan et al. 2017: reduce-scatter and gather to a leader,
    mirrored. Mikami et al. 2018: x by y torus. Li et al. 2014: push and pull to p shards.
    """
    q, beyond = floor(log2(p)), p != 2 ** floor(log2(p))
    share = (p - 1) / p
    if name == "ring":
        return 2 * (p - 1), 2 * share * n, share * n
    if name == "recursive_doubling":
        rounds = q + 2 * beyond
        return rounds, rounds * n, (q + beyond) * n
    if name == "rabenseifner":
        power = 2**q
        part = (power - 1) / power
        return 2 * q + 2 * beyond, 2 * (part + beyond) * n, (part + beyond) * n
    if name == "binomial":
        depth = ceil(log2(p))
        return 2 * depth, 2 * depth * n, depth * n
    if name == "torus_2d":
        x = nearest_divisor(p)
        y = p // x
        volume = 2 * (x - 1) / x * n + 2 * (y - 1) / y * n / x
        return 2 * (x - 1) + 2 * (y - 1), volume, volume / 2
    raise AssertionError(name)


# --- one level ---


@pytest.mark.parametrize("level", ["inner", "outer"])
@pytest.mark.parametrize(
    "name", ["ring", "recursive_doubling", "rabenseifner", "binomial", "torus_2d"]
)
def test_each_term_is_the_textbooks(name, level):
    for p, n in product(RANKS, SIZES):
        cost = ALGORITHMS[name](n, flat(p, level))
        alpha, beta, gamma = textbook(name, p, n)
        if name == "torus_2d" and level == "inner":
            alpha, beta, gamma = textbook("ring", p, n)  # a node is one row
        terms = (alpha * ALPHA, beta * BETA, gamma * GAMMA)
        assert tuple(cost) == pytest.approx(terms, rel=1e-12, abs=0), (p, n)
        assert cost.total == pytest.approx(sum(terms), rel=1e-12), (p, n)


@every_rank
def test_hierarchical_inside_a_node_is_reduce_and_broadcast_through_a_leader(p):
    for n in SIZES:
        cost = ALGORITHMS["hierarchical"](n, flat(p, "inner"))
        share, depth = (p - 1) / p, ceil(log2(p))
        assert cost.latency == pytest.approx(2 * (p - 1 + depth) * ALPHA)
        assert cost.bandwidth == pytest.approx(4 * share * n * BETA)
        assert cost.reduction == pytest.approx(share * n * GAMMA)


@every_rank
def test_hierarchical_between_nodes_of_one_device_is_the_ring(p):
    for n in SIZES:
        net = flat(p, "outer")
        assert ALGORITHMS["hierarchical"](n, net) == pytest.approx(ALGORITHMS["ring"](n, net))


@every_rank
def test_parameter_server_pushes_and_pulls_all_shards_but_its_own(p):
    for n in SIZES:
        cost = ALGORITHMS["parameter_server"](n, flat(p, "outer"))
        assert cost.latency == pytest.approx(2 * (p - 1) * ALPHA)
        assert cost.bandwidth == pytest.approx(2 * (p - 1) / p * n * BETA)
        assert cost.reduction == pytest.approx((p - 1) / p * n * GAMMA)
        inside = ALGORITHMS["parameter_server"](n, flat(p, "inner"))
        assert inside.latency == pytest.approx(2 * (p > 1) * ALPHA)
        assert inside.bandwidth == pytest.approx(2 * (p > 1) * n * BETA)
        assert inside.reduction == pytest.approx((p - 1) * n * GAMMA)


@every_algorithm
def test_one_device_has_nobody_to_talk_to(name):
    for n in SIZES:
        assert tuple(ALGORITHMS[name](n, two(1, 1))) == (0, 0, 0)


@every_algorithm
@pytest.mark.parametrize("level", ["inner", "outer"])
def test_nothing_beats_the_bandwidth_bound(name, level):
    """Every rank must send and receive 2 (p-1)/p n, whatever the algorithm (Patarasuk & Yuan 2009)."""
    for p in RANKS:
        cost = ALGORITHMS[name](1e9, flat(p, level))
        assert cost.bandwidth >= 2 * (p - 1) / p * 1e9 * BETA * (1 - 1e-12), p


@pytest.mark.parametrize("name", [name for name in ALGORITHMS if name != "parameter_server"])
def test_nothing_beats_the_latency_bound(name):
    """Information from p ranks needs ceil(lg p) rounds to reach one."""
    for p in RANKS:
        cost = ALGORITHMS[name](0.0, flat(p, "outer"))
        assert cost.latency >= ceil(log2(p)) * ALPHA * (1 - 1e-12), p


@pytest.mark.parametrize("name", ["ring", "rabenseifner", "torus_2d", "parameter_server"])
def test_the_bandwidth_optimal_ones_meet_the_bound(name):
    for p in POWERS:
        cost = ALGORITHMS[name](1e9, flat(p, "outer"))
        assert cost.bandwidth == pytest.approx(2 * (p - 1) / p * 1e9 * BETA)


@every_algorithm
def test_latency_and_volume_grow_with_ranks(name):
    for level in ("inner", "outer"):
        costs = [ALGORITHMS[name](1e6, flat(p, level)) for p in POWERS]
        once = name == "parameter_server" and level == "inner"  # the host sums in one round
        for term in ("latency", "bandwidth", "reduction"):
            steps = np.diff([getattr(cost, term) for cost in costs])
            if once and term != "reduction":
                assert steps[0] > 0 and not steps[1:].any()
            else:
                assert (steps > 0).all(), (name, level, term)


@every_algorithm
@given(
    n=st.floats(0, 1e9), factor=st.floats(1.01, 100), g=st.integers(1, 16), nodes=st.integers(1, 64)
)
def test_volume_is_linear_in_the_message_and_latency_does_not_depend_on_it(
    name, n, factor, g, nodes
):
    one = ALGORITHMS[name](n, two(g, nodes))
    more = ALGORITHMS[name](n * factor, two(g, nodes))
    assert more.latency == one.latency
    assert more.bandwidth == pytest.approx(one.bandwidth * factor, rel=1e-9)
    assert more.reduction == pytest.approx(one.reduction * factor, rel=1e-9)


@every_algorithm
@given(
    g=st.integers(1, 16),
    nodes=st.integers(1, 64),
    which=st.sampled_from(["a_in", "b_in", "a_out", "b_out", "gamma"]),
    factor=st.floats(0, 1),
)
def test_a_better_part_never_costs_more(name, g, nodes, which, factor):
    values = {"a_in": 1e-6, "b_in": 1e-11, "a_out": 5e-6, "b_out": 1e-10, "gamma": GAMMA}
    better = {**values, which: values[which] * factor}
    here = ALGORITHMS[name](1e6, two(g, nodes, **better)).total
    assert here <= ALGORITHMS[name](1e6, two(g, nodes, **values)).total * (1 + 1e-12)


# --- step by step ---


def run_recursive_doubling(p):
    """Step the algorithm on sets of contributions; return rounds and units sent by each rank."""
    held = [{rank} for rank in range(p)]
    rounds, sent = 0, 0
    distance = 1
    while distance < p:
        held = [held[rank] | held[rank ^ distance] for rank in range(p)]
        rounds, sent, distance = rounds + 1, sent + 1, 2 * distance
    assert all(h == set(range(p)) for h in held)
    return rounds, sent


def run_rabenseifner(p):
    """Halve, nearest partner first, then double back; return rounds, volume sent, volume reduced."""
    held = [{block: {rank} for block in range(p)} for rank in range(p)]
    rounds, sent, reduced = 0, 0, 0
    distances = [2**k for k in range(int(log2(p)))]
    for distance in distances:
        after = []
        for rank in range(p):
            partner = rank ^ distance
            mine = {b for b in held[rank] if (b & distance) == (rank & distance)}
            after.append({b: held[rank][b] | held[partner][b] for b in mine})
        sent += len(held[0]) - len(after[0])
        reduced += len(after[0])
        rounds, held = rounds + 1, after
    assert all(list(h.values()) == [set(range(p))] for h in held)
    for distance in reversed(distances):
        sent += len(held[0])
        held = [{**held[rank], **held[rank ^ distance]} for rank in range(p)]
        rounds += 1
    assert all(len(h) == p for h in held)
    return rounds, sent / p, reduced / p


def run_ring(p):
    """Step the ring on blocks; return rounds, volume sent and volume reduced by each rank."""
    held = [[{rank} for _ in range(p)] for rank in range(p)]
    for step in range(p - 1):
        moved = [(rank, (rank - step) % p, held[rank][(rank - step) % p]) for rank in range(p)]
        for rank, block, value in moved:
            held[(rank + 1) % p][block] = held[(rank + 1) % p][block] | value
    for step in range(p - 1):
        moved = [(rank, (rank + 1 - step) % p) for rank in range(p)]
        values = [held[rank][block] for rank, block in moved]
        for (rank, block), value in zip(moved, values, strict=True):
            held[(rank + 1) % p][block] = value
    assert all(block == set(range(p)) for blocks in held for block in blocks)
    return 2 * (p - 1), 2 * (p - 1) / p, (p - 1) / p


@pytest.mark.parametrize("p", POWERS)
def test_the_formulas_count_what_the_algorithms_move(p):
    cost = ALGORITHMS["recursive_doubling"](1.0, flat(p, "outer"))
    rounds, sent = run_recursive_doubling(p)
    assert (cost.latency, cost.bandwidth) == pytest.approx((rounds * ALPHA, sent * BETA))
    for name, run in (("rabenseifner", run_rabenseifner), ("ring", run_ring)):
        cost = ALGORITHMS[name](1.0, flat(p, "outer"))
        rounds, sent, reduced = run(p)
        assert cost == pytest.approx((rounds * ALPHA, sent * BETA, reduced * GAMMA))


# --- two levels ---


@every_algorithm
@given(g=st.integers(1, 16), nodes=st.integers(1, 64))
def test_what_crosses_a_nodes_nics_meets_the_bound_of_nodes(name, g, nodes):
    """With free links inside, a node must still exchange 2 (N-1)/N n."""
    net = two(g, nodes, b_in=0.0)
    bound = 2 * (nodes - 1) / nodes * 1e6 * 1e-10
    assert ALGORITHMS[name](1e6, net).bandwidth >= bound * (1 - 1e-12)


@pytest.mark.parametrize("g", [1, 2, 4, 8])
@pytest.mark.parametrize("nodes", [1, 2, 4, 16])
def test_hierarchical_counts_the_inside_once(g, nodes):
    """One phase inside and one ring of leaders between nodes; nothing of it twice."""
    n, net = 1e8, two(g, nodes)
    whole = ALGORITHMS["hierarchical"](n, net)
    inside = ALGORITHMS["hierarchical"](n, two(g, 1))
    across = ring(n, two(1, nodes))
    for term in ("latency", "bandwidth", "reduction"):
        parts = getattr(inside, term) + getattr(across, term)
        assert getattr(whole, term) == pytest.approx(parts, rel=1e-12)


@pytest.mark.parametrize("g", [1, 2, 4, 8])
@pytest.mark.parametrize("nodes", [1, 2, 4, 16])
def test_doubling_and_halving_cross_nodes_with_all_devices_at_once(g, nodes):
    """Doubling: g devices send all of n through the NICs. Halving: each sends 1/g of n."""
    n, lg = 1e8, log2(nodes)
    net = two(g, nodes, a_in=0, b_in=0, gamma=0)
    doubling = ALGORITHMS["recursive_doubling"](n, net)
    halving = ALGORITHMS["rabenseifner"](n, net)
    assert doubling.bandwidth == pytest.approx(lg * g * n * 1e-10)
    assert halving.bandwidth == pytest.approx(2 * (nodes - 1) / nodes * n * 1e-10)
    assert halving.latency == pytest.approx(2 * lg * 5e-6)


def test_the_ring_goes_at_the_pace_of_its_slowest_link():
    slow_inside = two(4, 8, a_in=9e-6, b_in=9e-10)
    slow_outside = two(4, 8)
    assert ring(1e6, slow_inside).latency == pytest.approx(62 * 9e-6)
    assert ring(1e6, slow_outside).latency == pytest.approx(62 * 5e-6)
    assert ring(1e6, slow_inside).bandwidth == pytest.approx(2 * 31 / 32 * 1e6 * 9e-10)
    assert ring(1e6, slow_outside).bandwidth == pytest.approx(2 * 31 / 32 * 1e6 * 1e-10)
    assert ring(1e6, two(1, 8, a_in=9.0, b_in=9.0)).latency == pytest.approx(14 * 5e-6)
    assert ring(1e6, two(4, 1, a_out=9.0, b_out=9.0)).latency == pytest.approx(6 * 1e-6)


@pytest.mark.parametrize(("nodes", "g", "row"), [(16, 4, 2), (64, 4, 4), (8, 8, 1), (7, 1, 1)])
def test_a_torus_has_rows_of_whole_nodes_near_the_square_root(nodes, g, row):
    x, y = row * g, nodes / row
    cost = ALGORITHMS["torus_2d"](1.0, two(g, nodes, a_in=1.0, a_out=1.0))
    assert cost.latency == pytest.approx(2 * (x - 1) + 2 * (y - 1))


@every_algorithm
def test_arrays_are_the_scalars_one_by_one(name):
    g = np.array([1, 2, 3, 4, 8])[:, None]
    nodes = np.array([1, 2, 3, 5, 8, 36])
    n = np.array([0.0, 1.0, 1e6, 1e7, 1e8, 1e9])
    congestion = {"congestion": lambda distance: 1.0 + distance, "all_to_all": 3.0}
    cost = ALGORITHMS[name](n, two(g, nodes)._replace(**congestion))
    for i, j in np.ndindex(5, 6):
        one = ALGORITHMS[name](n[j], two(int(g[i, 0]), int(nodes[j]))._replace(**congestion))
        for whole, single in zip(cost, one, strict=True):
            assert np.broadcast_to(whole, (5, 6))[i, j] == pytest.approx(single, rel=1e-14)
            assert np.ndim(single) == 0


# --- which is best, congestion, conventions ---


@pytest.mark.parametrize("p", [8, 16, 32, 64])
def test_doubling_wins_for_short_messages_and_the_ring_for_long_ones(p):
    net = flat(p, "outer")
    short = {name: float(ALGORITHMS[name](8.0, net).total) for name in ALGORITHMS}
    long = {name: float(ALGORITHMS[name](1e9, net).total) for name in ALGORITHMS}
    assert min(short, key=short.__getitem__) == "recursive_doubling"
    assert short["ring"] > 2 * short["recursive_doubling"]
    assert long["ring"] < long["recursive_doubling"] / 1.4
    # They meet where the two formulas are equal, worked out by hand.
    q, share = log2(p), (p - 1) / p
    slope = (q - 2 * share) * BETA + (q - share) * GAMMA
    crossover = (2 * (p - 1) - q) * ALPHA / slope
    for n, better in ((crossover * 0.99, "recursive_doubling"), (crossover * 1.01, "ring")):
        totals = {name: ALGORITHMS[name](n, net).total for name in ("ring", "recursive_doubling")}
        assert min(totals, key=totals.__getitem__) == better


def test_congestion_multiplies_the_rounds_it_meets():
    n, plain = 1e8, two(1, 16)
    crowded = plain._replace(congestion=lambda distance: 3.0 if distance >= 4 else 1.0)
    doubling = ALGORITHMS["recursive_doubling"]
    halving = ALGORITHMS["rabenseifner"]
    assert doubling(n, crowded).bandwidth == pytest.approx((2 + 2 * 3) * n * 1e-10)
    volume = 2 * (1 / 2 + 1 / 4 + 3 / 8 + 3 / 16)
    assert halving(n, crowded).bandwidth == pytest.approx(volume * n * 1e-10)
    for name in ALGORITHMS:
        same, other = ALGORITHMS[name](n, plain), ALGORITHMS[name](n, crowded)
        assert (other.latency, other.reduction) == (same.latency, same.reduction)
    served = ALGORITHMS["parameter_server"](n, plain._replace(all_to_all=8.0))
    assert served.bandwidth == 8 * ALGORITHMS["parameter_server"](n, plain).bandwidth


@given(n=st.floats(1, 1e9), p=st.integers(2, 1000))
def test_bus_bandwidth_is_the_link_rate_of_a_ring_without_latency(n, p):
    net = Network(Level(1, 0.0, 0.0), Level(p, 0.0, BETA), 0.0)
    assert bus_bandwidth(n, ring(n, net).total, p) == pytest.approx(1 / BETA, rel=1e-9)


def test_bus_bandwidth_is_not_algorithm_bandwidth():
    assert bus_bandwidth(1e9, 1.0, 2) == 1e9
    assert bus_bandwidth(1e9, 1.0, 8) == 1.75e9
