"""Events: the closed form where every link is alone, more where links are shared, never a hang."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lib_dlhpc.costs.groups import network_on
from lib_dlhpc.costs.network import Level, Network, all_to_all_congestion, congestion, shifted
from lib_dlhpc.costs.platform import NO_LINK, platform
from lib_dlhpc.errors import SpecError
from lib_dlhpc.prediction.communication import collectives
from lib_dlhpc.schedules import ALGORITHMS as RECORDS
from lib_dlhpc.schedules import COLLECTIVES, Schedule, beside, messages, price, schedule, within
from lib_dlhpc.simulation import rounds, uncontended
from lib_dlhpc.simulation.events import finish_times, simulate_schedules, start_schedules
from lib_dlhpc.simulation.simulation import Simulation, Traffic
from lib_dlhpc.simulation.watchdog import Cancelled, DeadlockError
from lib_dlhpc.spec.machine import Device, Link, Machine

DEVICE = Device({"fp32": 1e13}, 1e10, 9e11, 100.0, 300.0)
INSIDE, BETWEEN = Link(2e-6, 100e9), Link(5e-6, 12.5e9)
FREE = Device({"fp32": 1e13}, 1e10, 1e30, 100.0, 300.0)  # combines in no time

ALGORITHMS = tuple(collectives.ALGORITHMS)


def machine(device=DEVICE, **options):
    return Machine(device, INSIDE, BETWEEN, nodes=4096, devices_per_node=16, **options)


def network(nodes, g, device=DEVICE):
    inner = Level(g, INSIDE.latency, 1 / INSIDE.bandwidth)
    outer = Level(nodes, BETWEEN.latency, 1 / BETWEEN.bandwidth)
    return Network(inner, outer, 3 / device.memory_bandwidth)


def allreduce(algorithm, nodes, g, elements):
    options = COLLECTIVES["allreduce"][algorithm].on_nodes(nodes * g, g)
    return schedule(algorithm, nodes * g, elements, **options)


def one_round(ranks, *sent):
    source, target, count = zip(*sent, strict=True)
    return Schedule("one round", ranks, 0, lambda: [messages(source, target, 0, count, False)])


# ---- without contention


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_one_device_a_node_takes_what_the_closed_form_says(algorithm):
    for ranks in (*range(1, 18), 32, 64):
        elements = ranks << (ranks.bit_length() + 4)  # cuts evenly into all blocks
        ends = finish_times(allreduce(algorithm, ranks, 1, elements), machine(), ranks, 1)
        expected = collectives.ALGORITHMS[algorithm](4.0 * elements, network(ranks, 1)).total
        assert max(ends) == pytest.approx(expected, rel=1e-9), ranks


@pytest.mark.parametrize(("nodes", "g"), [(1, 8), (2, 2), (4, 4), (3, 2), (2, 8), (8, 2)])
@pytest.mark.parametrize("algorithm", [a for a in ALGORITHMS if a != "parameter_server"])
def test_devices_that_share_a_nic_take_what_the_closed_form_says(algorithm, nodes, g):
    elements = (nodes * g) ** 2 * 64
    ends = finish_times(allreduce(algorithm, nodes, g, elements), machine(), nodes, g)
    expected = collectives.ALGORITHMS[algorithm](4.0 * elements, network(nodes, g)).total
    assert max(ends) == pytest.approx(expected, rel=1e-9)


@settings(max_examples=60)
@given(st.sampled_from(ALGORITHMS), st.integers(1, 40), st.integers(0, 5000))
def test_any_size_takes_what_its_schedule_is_priced_at_or_less(algorithm, ranks, elements):
    """Blocks that differ by an element let ranks with the smaller ones run ahead of the price."""
    plan = allreduce(algorithm, ranks, 1, elements)
    ends = finish_times(plan, machine(), ranks, 1)
    most = price(plan, network=network(ranks, 1)).total
    one_element = 4 * (1 / BETWEEN.bandwidth + 3 / DEVICE.memory_bandwidth)
    assert max(ends) <= most * (1 + 1e-9)
    assert max(ends) >= most * (1 - 1e-9) - sum(1 for _ in plan) * one_element


@settings(max_examples=60)
@given(st.sampled_from(ALGORITHMS), st.integers(1, 33), st.integers(0, 5000), st.data())
def test_without_sharing_both_fidelities_agree(algorithm, ranks, elements, data):
    """In lock step always; out of step the rounds make a late receiver wait for its port once more."""
    plan = allreduce(algorithm, ranks, 1, elements)
    late = np.array(data.draw(st.lists(st.floats(0, 1e-3), min_size=ranks, max_size=ranks)))
    together = finish_times(plan, machine(), ranks, 1, sharing=False)
    assert max(together) == pytest.approx(
        max(rounds.finish_times(plan, network(ranks, 1))), rel=1e-9
    )
    apart = finish_times(plan, machine(), ranks, 1, arrival=late, sharing=False, eager=np.inf)
    by_rounds = rounds.finish_times(plan, network(ranks, 1), arrival=late)
    assert (apart <= by_rounds * (1 + 1e-9)).all()
    assert max(apart) >= max(late)


@settings(max_examples=150)
@given(
    st.sampled_from(ALGORITHMS),
    st.integers(1, 9),
    st.integers(1, 3),
    st.sampled_from(["single-switch", "fat-tree", "torus", "rails"]),
    st.integers(0, 2000),
    st.booleans(),
    st.sampled_from([0.0, 400.0]),
    st.integers(0, 99),
)
def test_a_round_at_once_is_message_by_message_to_the_last_bit(
    algorithm, nodes, g, topology, elements, sharing, eager, seed
):
    """Wherever it gives an answer, for ranks that are late and slow, in two schedules in a row."""
    rng = np.random.default_rng(seed)
    here = machine(topology=topology, nodes_per_switch=2, oversubscription=2.0)
    plans = [allreduce(algorithm, nodes, g, elements), allreduce("ring", nodes, g, 50)]
    arrivals, speed = rng.exponential(1e-5, (2, nodes * g)), rng.uniform(0.5, 1, nodes * g)
    sim = Simulation(platform(here, nodes, g), speed, sharing, eager)
    expected = start_schedules(sim, plans, 4, arrivals)
    sim.run()
    found = uncontended.finish_times(sim.platform, plans, 4, arrivals, speed, sharing, eager)
    assert found is None or found.tobytes() == expected.tobytes()
    assert found is not None or (sharing and (algorithm != "ring" or eager or topology != "torus"))


def test_messages_that_may_meet_are_not_simulated_at_once():
    def at_once(plan, eager=0.0):
        found = uncontended.finish_times(
            platform(machine(), 5, 1), [plan], 4, 0.0, 1.0, True, eager
        )
        return found is not None

    assert at_once(allreduce("ring", 5, 1, 500))
    assert not at_once(one_round(5, *((rank, 0, 100) for rank in range(1, 5))))
    in_turn = [messages([rank], [1], 0, [100], False) for rank in (0, 2)]
    plan = Schedule("in turn", 5, 0, lambda: in_turn)
    assert at_once(plan)  # rank 2 waits until rank 1 is through with the first round
    assert not at_once(plan, eager=1000.0)


@settings(max_examples=40)
@given(st.integers(2, 24), st.integers(1, 50), st.data())
def test_on_a_ring_out_of_step_both_fidelities_agree_rank_by_rank(ranks, block, data):
    plan = schedule("ring", ranks, ranks * block)
    late = np.array(data.draw(st.lists(st.floats(0, 1e-3), min_size=ranks, max_size=ranks)))
    np.testing.assert_allclose(
        finish_times(plan, machine(FREE), ranks, 1, arrival=late, eager=np.inf),
        rounds.finish_times(plan, network(ranks, 1, FREE), arrival=late),
        rtol=1e-9,
    )


# ---- with contention


def test_eight_to_one_is_eight_times_as_long():
    incast = one_round(9, *((r, 0, 12_500_000) for r in range(1, 9)))
    shared = finish_times(incast, machine(), 9, 1, element_bytes=1)
    uncontended = finish_times(incast, machine(), 9, 1, element_bytes=1, sharing=False)
    assert max(uncontended) == pytest.approx(5e-6 + 1e-3, rel=1e-12)
    assert max(shared) == pytest.approx(5e-6 + 8e-3, rel=1e-12)


@pytest.mark.parametrize("g", [2, 4, 8, 16])
def test_recursive_doubling_shares_the_nic_among_the_devices_of_a_node(g):
    plan, elements = allreduce("recursive_doubling", 2, g, 1 << 20), 1 << 20
    here = machine(FREE)
    gap = finish_times(plan, here, 2, g).max() - finish_times(plan, here, 2, g, sharing=False).max()
    assert gap == pytest.approx((g - 1) * 4 * elements / BETWEEN.bandwidth, rel=1e-6)


@pytest.mark.parametrize("over", [1.0, 2.0, 4.0])
def test_oversubscription_slows_what_leaves_the_switch(over):
    tree = machine(FREE, topology="fat-tree", nodes_per_switch=4, oversubscription=over)
    bytes_each = 12_500_000
    leave = one_round(8, *((r, r + 4, bytes_each) for r in range(4)))
    stay = one_round(8, *((r, (r + 1) % 4, bytes_each) for r in range(4)))
    assert finish_times(stay, tree, 8, 1, 1).max() == pytest.approx(5e-6 + 1e-3)
    assert finish_times(leave, tree, 8, 1, 1).max() == pytest.approx(5e-6 + 1e-3 * over)


@pytest.mark.parametrize("topology", ["fat-tree", "torus", "dragonfly"])
@pytest.mark.parametrize("distance", [1, 2, 4, 8])
def test_an_exchange_at_a_distance_slows_down_as_predicted(topology, distance):
    here = machine(FREE, topology=topology, nodes_per_switch=4, oversubscription=3.0)
    swap = one_round(16, *((r, r ^ distance, 12_500_000) for r in range(16)))
    slower = congestion(here, 16, distance)
    assert finish_times(swap, here, 16, 1, 1).max() == pytest.approx(5e-6 + 1e-3 * slower)


@pytest.mark.parametrize(
    ("topology", "over"), [("fat-tree", 6.0), ("dragonfly", 1.0), ("dragonfly", 4.0)]
)
@pytest.mark.parametrize("algorithm", ["ring", "hierarchical_ring"])
def test_a_ring_slows_down_where_a_node_has_more_than_what_leads_to_the_next_group(
    algorithm, topology, over
):
    """Groups of 4 nodes; of 8 groups, those to one other group carry 4 / over / 7 of a node's NICs."""
    options = {"topology": topology, "nodes_per_switch": 4, "oversubscription": over}
    here = Machine(FREE, Link(0.0, 1e30), Link(0.0, 12.5e9), nodes=32, **options)
    slower = over / 4 * (7 if topology == "dragonfly" else 1)
    assert shifted(here, 16, 16, 1) == max(slower, 1)
    assert shifted(here, 4, 4, 1) == 1
    quiet = network(16, 2, FREE)._replace(
        inner=Level(2, 0.0, 0.0), outer=Level(16, 0.0, 1 / 12.5e9)
    )
    crowded = quiet._replace(neighbors=lambda distance: shifted(here, 16, 16, distance))
    elements = 32**2
    ends = finish_times(allreduce(algorithm, 16, 2, elements), here, 16, 2)
    expected = collectives.ALGORITHMS[algorithm](4.0 * elements, crowded).total
    assert max(ends) == pytest.approx(expected, rel=1e-9)
    assert expected == pytest.approx(
        max(slower, 1) * collectives.ALGORITHMS[algorithm](4.0 * elements, quiet).total
    )


GROUPS = [(16, 1, 16, 1), (16, 1, 4, 4), (16, 1, 8, 2), (16, 2, 8, 4), (12, 2, 6, 4), (8, 2, 16, 1)]
SWITCHES = [("fat-tree", 2, 2.0), ("fat-tree", 4, 4.0), ("dragonfly", 4, 2.0), ("torus", 4, 1.0)]


@pytest.mark.parametrize(("topology", "leaf", "over"), SWITCHES)
@pytest.mark.parametrize(("nodes", "g", "ranks", "apart"), GROUPS)
@pytest.mark.parametrize(
    "name", ["ring", "hierarchical_ring", "halving_doubling", "pairwise_all_to_all"]
)
def test_groups_whose_ranks_are_nodes_apart_share_uplinks_as_predicted(
    name, nodes, g, ranks, apart, topology, leaf, over
):
    """All groups at once, each of `ranks` ranks at a distance of `apart`."""
    options = {"topology": topology, "nodes_per_switch": leaf, "oversubscription": over}
    here = Machine(
        FREE, Link(0.0, 600e9), Link(0.0, 12.5e9), nodes=16, devices_per_node=g, **options
    )
    net, record, elements = network_on(here, g, nodes, ranks, apart), RECORDS[name], ranks**2 * 8
    plan = schedule(name, ranks, elements, **record.on_nodes(ranks, int(net.inner.ranks)))
    first = [b + o for b in range(0, nodes * g, ranks * apart) for o in range(apart)]
    groups = [[one + apart * k for k in range(ranks)] for one in first]
    both = tuple(beside(*(within(plan.rounds(), group) for group in groups)))
    whole = replace(plan, ranks=nodes * g, generate=lambda: both)
    ends = finish_times(whole, here, nodes, g, 40_000)
    assert max(ends) == pytest.approx(record.cost(4e4 * elements, net).total, rel=0.06)


@pytest.mark.parametrize("nodes", [8, 16])
def test_everyone_to_everyone_in_a_dragonfly_slows_down_as_predicted(nodes):
    """Each message of a node goes at its share of the links at once: all begin and end together."""
    here = Machine(
        *(FREE, Link(0.0, 1e30), Link(0.0, 12.5e9)),
        nodes=16,
        topology="dragonfly",
        nodes_per_switch=4,
        oversubscription=2.0,
    )
    links, _ = platform(here, nodes, 1).routes(*np.divmod(np.arange(nodes**2), nodes))
    on = platform(here, nodes, 1)
    busy = np.bincount(links[links != NO_LINK], minlength=len(on.capacity)) / on.capacity
    slower = busy[4 * nodes :].max() / (nodes / 12.5e9)
    assert float(all_to_all_congestion(here, nodes)) == pytest.approx(max(slower, 1))


def test_what_ends_early_leaves_its_share_to_the_others():
    """Two flows share 10 B/s: 10 B and 30 B. 5 + 5 for 2 s, then 10 for 2 s."""
    slow = Machine(FREE, Link(0.0, 1e9), Link(0.0, 10.0), nodes=3)
    two = one_round(3, (0, 2, 10), (1, 2, 30))
    np.testing.assert_allclose(finish_times(two, slow, 3, 1, 1), [2.0, 4.0, 4.0], rtol=1e-12)


def test_background_traffic_takes_its_share():
    plan = one_round(2, (0, 1, 12_500_000))
    for others in (1, 3):
        forever = [Traffic(2 + k, 1, np.inf) for k in range(others)]
        padded = Schedule("", 2 + others, 0, plan.generate)
        ends = finish_times(padded, machine(), 2 + others, 1, 1, background=forever)
        assert ends.max() == pytest.approx(1e-3 * (1 + others), rel=0.01)
    short = [Traffic(0, 1, 1_250_000, start=0.0, pause=4e-4)]  # comes again
    assert 1.1e-3 < finish_times(plan, machine(), 2, 1, 1, background=short).max() < 1.5e-3


@settings(max_examples=40)
@given(st.integers(2, 12), st.data())
def test_sharing_never_makes_a_round_faster_nor_slower_than_one_after_another(ranks, data):
    rank = st.integers(0, ranks - 1)
    sent = data.draw(
        st.lists(st.tuples(rank, rank, st.integers(0, 10**7)), min_size=1, max_size=20)
    )
    sent = [(s, t, n) for s, t, n in sent if s != t] or [(0, 1, 1)]
    topology = data.draw(st.sampled_from(["single-switch", "fat-tree", "torus"]))
    here = machine(FREE, topology=topology, nodes_per_switch=2, oversubscription=2.0)
    plan = one_round(ranks, *sent)
    shared = finish_times(plan, here, ranks, 1, 1).max()
    assert shared >= finish_times(plan, here, ranks, 1, 1, sharing=False).max() * (1 - 1e-9)
    assert shared <= sum(5e-6 + 1.01 * n / 12.5e9 for _, _, n in sent)


# ---- ranks out of step


def test_a_slow_rank_combines_slowly_and_all_wait_for_it():
    plan = schedule("ring", 8, 1 << 20)
    even = finish_times(plan, machine(), 8, 1)
    speed = np.ones(8)
    speed[3] = 0.25
    uneven = finish_times(plan, machine(), 8, 1, speed=speed)
    gamma_share = 3 * 7 / 8 * 4 * (1 << 20) / 9e11
    assert uneven.max() == pytest.approx(even.max() + 3 * gamma_share, rel=0.01)


def test_buckets_follow_each_other_and_wait_for_their_release():
    plan = schedule("ring", 4, 4096)
    once = finish_times(plan, machine(), 4, 1)
    releases = np.array([[0.0] * 4, [0.0] * 4, [1.0] * 4])
    ends = simulate_schedules([plan] * 3, machine(), 4, 1, arrivals=releases)
    np.testing.assert_allclose(ends, [once, 2 * once, 1 + once], rtol=1e-9)


def test_a_small_message_does_not_wait_for_a_late_receiver():
    plan, late = one_round(2, (0, 1, 1000)), [0.0, 1.0]
    uncontended = 5e-6 + 1000 / 12.5e9
    held = finish_times(plan, machine(FREE), 2, 1, 1, late)
    gone = finish_times(plan, machine(FREE), 2, 1, 1, late, eager=1000)
    np.testing.assert_allclose(held, [1 + uncontended, 1 + uncontended], rtol=1e-12)
    np.testing.assert_allclose(gone, [uncontended, 1.0], rtol=1e-12)


def test_a_ring_waits_for_its_latest_rank():
    plan, late = schedule("ring", 8, 800), np.zeros(8)
    late[5] = 2.0
    assert (finish_times(plan, machine(), 8, 1, arrival=late) > 2.0).all()


@pytest.mark.parametrize(
    "topology", ["single-switch", "fat-tree", "torus", "dragonfly", "rails", "rails-pxn"]
)
def test_the_same_run_gives_the_same_bytes(topology):
    here = machine(topology=topology, nodes_per_switch=2, oversubscription=2.0)
    plan = allreduce("recursive_doubling", 8, 4, 10_000)
    late = np.random.default_rng(7).random(32) * 1e-3
    first, second = (finish_times(plan, here, 8, 4, arrival=late).tobytes() for _ in range(2))
    assert first == second


def test_messages_are_recorded_when_they_have_arrived():
    rows = []
    plan = schedule("ring", 4, 400)
    ends = finish_times(plan, machine(FREE), 4, 1, record=lambda *row: rows.append(row))
    assert len(rows) == 4 * 6
    source, target, start, stop, size, number = map(np.array, zip(*rows, strict=True))
    assert (target == (source + 1) % 4).all() and (size == 400).all()
    assert (stop > start).all() and stop.max() == ends.max() and set(number) == set(range(6))


# ---- nothing can move; stop


def waiting_for(sim, rank, peer):
    yield sim.until(0.5)
    yield sim.exchange(rank, [], sim.messages(peer, rank, 8.0), number=3)


def test_a_circle_of_ranks_is_named():
    sim = Simulation(platform(machine(), 4, 1))
    for rank, peer in ((0, 1), (1, 2), (2, 1)):
        sim.start(waiting_for(sim, rank, peer))
    with pytest.raises(DeadlockError) as caught:
        sim.run()
    text = str(caught.value)
    assert "after 0.5 s" in text and "1 -> 2 -> 1" in text
    assert "rank 0, round 3, waits for rank 1" in text
    assert [wait.peers for wait in caught.value.waits] == [(1,), (2,), (1,)]


def test_a_rank_that_fails_is_named_by_those_who_wait_for_it():
    plan = schedule("recursive_doubling", 8, 1 << 20)
    with pytest.raises(
        DeadlockError, match=r"stopped: rank 5\n[^$]*rank 4, round 0, waits for rank 5"
    ) as caught:
        finish_times(plan, machine(), 8, 1, failures={5: 0.0})
    assert caught.value.stopped == (5,)


def test_others_traffic_does_not_hide_a_deadlock():
    plan = schedule("ring", 4, 400)
    forever = [Traffic(0, 1, 1e6, pause=1e-3), Traffic(1, 2, np.inf)]
    with pytest.raises(DeadlockError, match="stopped: rank 2"):
        finish_times(plan, machine(), 4, 1, background=forever, failures={2: 0.0})


def test_a_sender_that_nobody_listens_to_is_named():
    sim = Simulation(platform(machine(), 2, 1))

    def talks():
        yield sim.exchange(0, sim.messages(0, 1, 8.0), [], number=2)

    sim.start(talks())
    with pytest.raises(
        DeadlockError, match=r"nothing more to send or receive: 1\n.*rank 0, round 2"
    ):
        sim.run()


def test_a_failure_after_the_end_harms_nobody():
    plan = schedule("ring", 4, 400)
    assert np.isfinite(finish_times(plan, machine(), 4, 1, failures={2: 1e3})).all()


def test_progress_is_reported_and_may_cancel():
    reports = []
    plan = schedule("ring", 64, 6400)
    finish_times(plan, machine(), 64, 1, progress=lambda time, n: reports.append((time, n)))
    assert len(reports) > 2 and reports == sorted(reports)
    with pytest.raises(Cancelled) as caught:
        finish_times(plan, machine(), 64, 1, progress=lambda time, n: n < 1000)
    assert 1000 <= caught.value.messages < 64 * 126


def test_errors_name_what_is_wrong():
    with pytest.raises(SpecError, match=r"4 nodes x 2 devices: 8 ranks, .* ring is for 6"):
        finish_times(schedule("ring", 6, 6), machine(), 4, 2)
    with pytest.raises(SpecError, match="round 0: no rank 7; there are 0 to 1"):
        finish_times(one_round(2, (0, 7, 1)), machine(), 2, 1)
    with pytest.raises(SpecError, match="speed = 0"):
        finish_times(schedule("ring", 2, 6), machine(), 2, 1, speed=[1.0, 0.0])


# ---- cost, counted in events and in rates set


def cost(plan, here, nodes, g, **options):
    sim = Simulation(platform(here, nodes, g))
    start_schedules(sim, [plan], 4, **options)
    sim.run()
    return sim.steps + sim.flows.work, sim.delivered


@pytest.mark.parametrize(
    ("algorithm", "g", "topology"),
    [
        ("ring", 1, "single-switch"),
        ("ring", 4, "fat-tree"),
        ("recursive_doubling", 4, "fat-tree"),
        ("rabenseifner", 2, "torus"),
        ("parameter_server", 2, "single-switch"),
    ],
)
def test_work_a_message_grows_no_faster_than_the_logarithm(algorithm, g, topology):
    here = machine(topology=topology, nodes_per_switch=4, oversubscription=2.0)
    each = []
    for nodes in (2, 8, 32):
        plan = allreduce(algorithm, nodes, g, 1 << 16)
        late = np.random.default_rng(0).random(nodes * g) * 1e-6
        work, sent = cost(plan, here, nodes, g, arrivals=late)
        each.append(work / sent / np.log2(sent))
    assert each[2] <= 1.1 * each[0]


def test_everyone_to_everyone_at_once_costs_as_little_a_message():
    each = []
    for ranks in (4, 12, 36):
        rank = range(ranks)
        plan = one_round(ranks, *((s, t, 1000) for s in rank for t in rank if s != t))
        work, sent = cost(plan, machine(FREE), ranks, 1)
        each.append(work / sent)
    assert max(each) <= 1.5 * min(each)


def test_an_uncontended_message_costs_a_handful_of_events():
    work, sent = cost(schedule("ring", 64, 6400), machine(FREE), 64, 1)
    assert work <= 5 * sent
