"""Laws of the rounds: the closed forms, a message-level program bit for bit, max-plus arithmetic."""

import tracemalloc
from itertools import product

import numpy as np
import pytest
import simpy
from hypothesis import given, settings
from hypothesis import strategies as st

from lib_dlhpc import SpecError
from lib_dlhpc.costs.network import Level, Network, flat
from lib_dlhpc.prediction.communication.collectives import ALGORITHMS
from lib_dlhpc.schedules import COLLECTIVES, messages, schedule
from lib_dlhpc.schedules.rounds import as_sent
from lib_dlhpc.simulation.rounds import durations, finish_times, program

RANKS = [*range(1, 18), 32, 64]
ALPHA, BETA, GAMMA = 1e-6, 1e-10, 1e-11
every_algorithm = pytest.mark.parametrize("name", ALGORITHMS)


def two(g, nodes):
    return Network(Level(g, 1e-6, 1e-11), Level(nodes, 5e-6, 1e-10), GAMMA)


def plan(name, p, n, g=1):
    options = COLLECTIVES["allreduce"][name].on_nodes(p, g)
    return schedule(name, p, n, **options)


def even(p):
    """So many elements that every algorithm's blocks are of one size."""
    return p << (p.bit_length() - 1)


# --- the closed forms ---


@every_algorithm
@pytest.mark.parametrize("level", ["inner", "outer"])
def test_without_noise_it_is_the_closed_form(name, level):
    if name == "parameter_server" and level == "inner":
        return  # predict lets the host of a node sum; the schedule has a server a rank
    none = Level(1, 1e9, 1e9)
    for p, many in product(RANKS, (0, 1, 1000)):
        here, n = Level(p, ALPHA, BETA), even(p) * many
        net = Network(here, none, GAMMA) if level == "inner" else Network(none, here, GAMMA)
        found = finish_times(plan(name, p, n, p if level == "inner" else 1), net, 4).max()
        closed = float(ALGORITHMS[name](4.0 * n, net).total)
        assert found == pytest.approx(closed, rel=1e-9), (p, n)


@pytest.mark.parametrize("name", [name for name in ALGORITHMS if name != "parameter_server"])
def test_on_two_levels_it_is_the_closed_form_nics_shared(name):
    for g, nodes in product([1, 2, 3, 4, 5, 6, 8], [1, 2, 3, 4, 6, 16]):
        n, net = even(g * nodes) * 100, two(g, nodes)
        found = finish_times(plan(name, g * nodes, n, g), net, 4).max()
        closed = float(ALGORITHMS[name](4.0 * n, net).total)
        assert found == pytest.approx(closed, rel=1e-9), (g, nodes)


@pytest.mark.parametrize("nodes", [1, 2, 3, 16])
def test_a_parameter_server_is_so_with_one_device_a_node(nodes):
    n, net = nodes * 100, two(1, nodes)
    found = finish_times(plan("parameter_server", nodes, n), net, 4).max()
    assert found == pytest.approx(ALGORITHMS["parameter_server"](4.0 * n, net).total, rel=1e-9)


@every_algorithm
@given(p=st.integers(1, 33), n=st.integers(0, 5000))
def test_uneven_blocks_lie_between_the_closed_forms_of_even_ones(name, p, n):
    """Blocks have at least floor(n / blocks) and at most ceil(n / blocks) elements."""
    net, unit = flat(p, ALPHA, BETA, GAMMA), even(p)
    found = finish_times(plan(name, p, n), net, 4).max()
    low, high = (
        float(ALGORITHMS[name](4.0 * m, net).total)
        for m in (n // unit * unit, -(-n // unit) * unit)
    )
    assert low * (1 - 1e-9) <= found <= high * (1 + 1e-9)


# --- messages one by one ---


def by_messages(plan, network, element_bytes, arrival, noise=None):
    """A SimPy process a rank, a store a rank and round; one message a port and round."""
    env = simpy.Environment()
    rounds, spent, boxes = list(map(as_sent, plan)), [], {}
    for number, part in enumerate(rounds):
        factor = 1.0 if noise is None else noise(number, part)
        spent.append(durations(part, network, element_bytes) * factor)
    finish = [0.0] * plan.ranks

    def receive(number, rank, seconds):
        yield boxes.setdefault((number, rank), simpy.Store(env)).get()
        yield env.timeout(seconds)

    def run(rank):
        yield env.timeout(float(arrival[rank]))
        for number, part in enumerate(rounds):
            busy = []
            for m in np.flatnonzero(part.source == rank):
                target = int(part.target[m])
                boxes.setdefault((number, target), simpy.Store(env)).put(rank)
                busy.append(env.timeout(float(spent[number][m])))
            for m in np.flatnonzero(part.target == rank):
                busy.append(env.process(receive(number, rank, float(spent[number][m]))))
            yield env.all_of(busy)
        finish[rank] = env.now

    for rank in range(plan.ranks):
        env.process(run(rank))
    env.run()
    return np.array(finish)


@every_algorithm
@settings(max_examples=25)
@given(g=st.integers(1, 3), nodes=st.integers(1, 5), n=st.integers(0, 50), seed=st.integers(0, 99))
def test_jittered_ranks_finish_bit_for_bit_as_message_by_message(name, g, nodes, n, seed):
    rng = np.random.default_rng(seed)
    p, net = g * nodes, two(g, nodes)
    arrival = rng.exponential(1e-5, p)
    factors = rng.uniform(0.5, 2.0, (4 * p + 10, p))

    def noise(number, part):
        return factors[number, part.source]

    steps = plan(name, p, n, g)
    for given_noise in (None, noise):
        found = finish_times(steps, net, 4, arrival, given_noise)
        np.testing.assert_array_equal(found, by_messages(steps, net, 4, arrival, given_noise))


def lean_ring(p, seconds, arrival):
    """The ring as a SimPy tutorial would have it: send takes its time, put, get."""
    env = simpy.Environment()
    links, finish = [simpy.Store(env) for _ in range(p)], [0.0] * p

    def run(rank):
        yield env.timeout(arrival[rank])
        for _ in range(2 * (p - 1)):
            yield env.timeout(seconds)
            yield links[(rank + 1) % p].put(None)
            yield links[rank].get()
        finish[rank] = env.now

    for rank in range(p):
        env.process(run(rank))
    env.run()
    return np.array(finish)


@given(st.integers(2, 16), st.integers(0, 99))
def test_a_jittered_ring_is_bit_for_bit_the_lean_program(p, seed):
    arrival = np.random.default_rng(seed).exponential(1e-5, p)
    net, elements = flat(p, ALPHA, BETA), p * 1000
    found = finish_times(schedule("ring", p, elements), net, 4, arrival)
    lean = lean_ring(p, ALPHA + 4000.0 * BETA, arrival.tolist())
    np.testing.assert_array_equal(found, lean)


def by_hand(rounds, ranks, net, element_bytes, arrival):
    """The arithmetic of the module's first lines, message after message, in plain Python."""
    g, time = int(net.inner.ranks), list(map(float, arrival))
    for pieces in rounds:
        sizes = {}  # pieces of one kind from one rank to one other are one message
        for s, t, _, count, kind in pieces:
            sizes[s, t, kind] = sizes.get((s, t, kind), 0) + count
        rows = [(s, t, 0, count, kind) for (s, t, kind), count in sizes.items()]
        sends, receives = list(time), list(time)
        levels, out, into = [], {}, {}
        for s, t, _, count, kind in rows:
            level = max(out.get(s, 0), into.get(t, 0))
            out[s] = into[t] = level + 1
            levels += [[] for _ in range(level + 1 - len(levels))]
            levels[level].append((s, t, 4.0 * count, kind))
        for level in levels:
            for s, t, size, kind in level:
                link = net.outer if g == 1 or s // g != t // g else net.inner
                through = size
                if g > 1 and link is net.outer:
                    far = [m for m in level if m[0] // g != m[1] // g]
                    leave = sum(m[2] for m in far if m[0] // g == s // g)
                    enter = sum(m[2] for m in far if m[1] // g == t // g)
                    through = max(leave, enter)
                seconds = link.alpha + through * link.beta + size * (kind == "reduce") * net.gamma
                start = sends[s]
                sends[s] = start + seconds
                receives[t] = max(start, receives[t]) + seconds
        time = [max(pair) for pair in zip(sends, receives, strict=True)]
    return time


@given(st.data(), st.integers(1, 3), st.integers(1, 4))
def test_any_rounds_are_what_the_rules_say(data, g, nodes):
    p = g * nodes
    rank = st.integers(0, p - 1)
    row = st.tuples(
        rank, rank, st.just(0), st.integers(0, 9999), st.sampled_from(["reduce", "copy"])
    )
    rows = row.filter(lambda m: m[0] != m[1])
    rounds = data.draw(st.lists(st.lists(rows, max_size=8), max_size=5)) if p > 1 else [[]]
    arrival = data.draw(st.lists(st.floats(0, 1e-3), min_size=p, max_size=p))
    own = schedule(lambda ranks, elements: rounds, p, 9999)
    net = two(g, nodes)
    found = finish_times(own, net, 4, arrival)
    np.testing.assert_allclose(found, by_hand(rounds, p, net, 4, arrival), rtol=1e-12)


@given(st.integers(1, 40), st.integers(0, 99), st.integers(1, 4))
def test_any_permutation_in_any_order(p, seed, times):
    rng = np.random.default_rng(seed)
    source, target, count = rng.permutation(p), rng.permutation(p), rng.integers(0, 10**6, p)
    arrival = rng.exponential(1e-4, p)
    part = messages(source, target, 0, count, False)
    own = schedule(lambda ranks, elements: [part] * times, p, 10**6)
    rows = [(*row, "copy") for row in zip(source, target, source, count, strict=True)]
    net = flat(p, ALPHA, BETA, GAMMA)
    np.testing.assert_allclose(
        finish_times(own, net, 4, arrival), by_hand([rows] * times, p, net, 4, arrival), rtol=1e-12
    )


# --- max-plus ---


@every_algorithm
@given(p=st.integers(1, 20), n=st.integers(0, 99), seed=st.integers(0, 99), late=st.floats(0, 1))
def test_nobody_is_through_before_the_last_has_come_and_lateness_never_helps(
    name, p, n, seed, late
):
    rng = np.random.default_rng(seed)
    steps, net = plan(name, p, n), flat(p, ALPHA, BETA, GAMMA)
    arrival = rng.exponential(1e-5, p)
    finish = finish_times(steps, net, 4, arrival)
    assert (finish >= arrival.max()).all()
    together = finish_times(steps, net, 4)
    assert (finish <= (arrival.max() + together) * (1 + 1e-12)).all()
    later = arrival.copy()
    later[rng.integers(p)] += late
    assert (finish_times(steps, net, 4, later) >= finish).all()
    np.testing.assert_allclose(
        finish_times(steps, net, 4, arrival + late), finish + late, rtol=1e-12
    )
    slower = finish_times(steps, net, 4, arrival, lambda number, part: 1.0 + late)
    assert (slower >= finish).all()
    plain = finish_times(steps, net, 4, arrival, lambda number, part: np.ones(len(part)))
    np.testing.assert_array_equal(plain, finish)


@every_algorithm
@pytest.mark.parametrize("n", [0, 7, 320])
def test_a_batch_is_its_scenarios_one_by_one(name, n):
    g, nodes = 2, 5
    rng = np.random.default_rng(0)
    alpha, beta, gamma = (rng.uniform(1, 9, (3, 4, 1)) * 1e-9 for _ in range(3))
    net = Network(Level(g, 1e-6, beta / 10), Level(nodes, alpha, beta), gamma)
    arrival = rng.exponential(1e-6, (4, g * nodes))
    steps = plan(name, g * nodes, n, g)
    found = finish_times(steps, net, 4, arrival)
    assert found.shape == (3, 4, g * nodes)
    for i, j in np.ndindex(3, 4):
        one = Network(
            Level(g, 1e-6, beta[i, j, 0] / 10),
            Level(nodes, alpha[i, j, 0], beta[i, j, 0]),
            gamma[i, j, 0],
        )
        np.testing.assert_array_equal(found[i, j], finish_times(steps, one, 4, arrival[j]))


@every_algorithm
@given(p=st.integers(1, 20), n=st.integers(0, 99))
def test_a_program_is_its_schedule(name, p, n):
    steps, net = plan(name, p, n), flat(p, ALPHA, BETA, GAMMA)
    kept = program(steps)
    assert sum(run.repeat for run in kept.runs) == len(list(steps))
    arrival = np.linspace(0, 1e-5, p)
    np.testing.assert_array_equal(
        finish_times(kept, net, 4, arrival), finish_times(steps, net, 4, arrival)
    )


def test_a_ring_of_equal_blocks_is_two_rounds_and_a_long_one_takes_no_memory():
    assert [run.repeat for run in program(schedule("ring", 1000, 5000)).runs] == [999, 999]
    net = flat(2000, ALPHA, BETA)
    for elements in (10_000, 10_001):
        tracemalloc.start()
        finish_times(schedule("ring", 2000, elements), net)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak < 3e6, "2,000 ranks x 3,998 rounds are 8 million messages"


def test_what_does_not_fit_is_refused():
    with pytest.raises(SpecError, match="2 x 3 ranks, but the schedule is for 5"):
        finish_times(schedule("ring", 5, 5), two(2, 3))
    with pytest.raises(SpecError, match="last axis"):
        finish_times(schedule("ring", 1, 5), flat(1, np.ones(3), 1.0))


# --- ranks that combine slowly ---


def test_a_slow_rank_combines_slowly_and_nobody_else():
    """8 B at 1 B/s from 0 to 1 and from 2 to 3; to combine takes 1 s a byte, on rank 3 twice as long."""
    pair = schedule(lambda p, n: [messages([0, 2], [1, 3], 0, 2, True)], 4, 2)
    ends = finish_times(pair, flat(4, 0.0, 1.0, 1.0), 4, speed=np.array([1.0, 1.0, 1.0, 0.5]))
    np.testing.assert_allclose(ends, [16.0, 16.0, 24.0, 24.0])


@pytest.mark.parametrize("name", ["ring", "rabenseifner", "binomial"])
def test_all_at_the_same_speed_combine_at_that_speed(name):
    plan = schedule(name, 7, 700)
    twice = finish_times(plan, flat(7, 1e-6, 1e-9, 1e-9), speed=2.0)
    by_rank = finish_times(program(plan), flat(7, 1e-6, 1e-9, 1e-9), speed=np.full(7, 2.0))
    np.testing.assert_allclose(twice, finish_times(plan, flat(7, 1e-6, 1e-9, 0.5e-9)), rtol=1e-12)
    np.testing.assert_allclose(by_rank, twice, rtol=1e-12)
