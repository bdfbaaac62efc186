"""In-network reduction: n bytes up and n down, however many ranks; only where the switches can."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lib_dlhpc.costs.buckets import buckets
from lib_dlhpc.costs.network import Level, Network, network_of
from lib_dlhpc.errors import SpecError
from lib_dlhpc.planner import plan as plan_run
from lib_dlhpc.prediction import predict
from lib_dlhpc.prediction.communication.collectives import bus_bandwidth
from lib_dlhpc.schedules import ALGORITHMS, Round, beside, messages, price, prove, schedule, within
from lib_dlhpc.schedules.choice import candidates, chosen, plan
from lib_dlhpc.schedules.rounds import COMBINE, MULTICAST, STREAM, one_by_one
from lib_dlhpc.simulation import rounds, simulate
from lib_dlhpc.simulation.events import finish_times
from lib_dlhpc.simulation.simulation import Traffic
from lib_dlhpc.spec.experiment import Experiment
from lib_dlhpc.spec.machine import IN_NETWORK, Device, Link, Machine
from lib_dlhpc.timeline import breakdown

NAMES = ("sharp", "nvls", "nvls_sharp")
DEVICE = Device({"fp32": 1e13}, 1e10, 9e11, 100.0, 300.0)
INSIDE, BETWEEN = Link(2e-6, 100e9), Link(5e-6, 12.5e9)
LEVELS = [(1, 1), (1, 2), (1, 16), (8, 1), (2, 2), (3, 4), (8, 3), (4, 16)]
RUN = Experiment(
    model="resnet50", dataset="imagenet", machine="summit", strategy={"nodes": 16, "overlap": False}
)
every_name = pytest.mark.parametrize("name", NAMES)


def network(g, nodes, can="both"):
    inner = Level(g, INSIDE.latency, 1 / INSIDE.bandwidth)
    outer = Level(nodes, BETWEEN.latency, 1 / BETWEEN.bandwidth)
    return Network(inner, outer, 3 / DEVICE.memory_bandwidth, combines=IN_NETWORK[can])


def machine(**options):
    return Machine(DEVICE, INSIDE, BETWEEN, nodes=4096, devices_per_node=16, **options)


def made(name, g, nodes, elements):
    return schedule(name, g * nodes, elements, node_size=g)


@every_name
@given(g=st.integers(1, 9), nodes=st.integers(1, 6), n=st.integers(0, 100))
def test_it_is_an_allreduce_on_nodes_of_any_size(name, g, nodes, n):
    prove(made(name, g, nodes, n))


@every_name
@pytest.mark.parametrize(("g", "nodes"), LEVELS)
def test_schedule_closed_form_and_both_simulations_agree(name, g, nodes):
    elements = 64 * (g * nodes) ** 2
    ours, net = made(name, g, nodes, elements), network(g, nodes)
    closed = ALGORITHMS[name].priced(4.0 * elements, net)
    assert tuple(price(ours, network=net)) == pytest.approx(tuple(map(float, closed)), rel=1e-12)
    assert rounds.finish_times(ours, net).max() == pytest.approx(float(closed.total), rel=1e-9)
    ends = finish_times(ours, machine(), nodes, g)
    assert max(ends) == pytest.approx(float(closed.total), rel=1e-9)


@pytest.mark.parametrize("p", [2, 3, 8, 100])
def test_every_rank_sends_and_receives_once_at_once_and_adds_nothing(p):
    for cost in (
        ALGORITHMS["sharp"].priced(1e9, network(1, p)),
        ALGORITHMS["nvls"].priced(1e9, network(p, 1)),
    ):
        level = INSIDE if cost.latency == 2 * INSIDE.latency else BETWEEN
        assert tuple(cost) == pytest.approx((2 * level.latency, 1e9 / level.bandwidth, 0))


@every_name
def test_arrays_are_the_scalars_one_by_one(name):
    g, nodes = np.array([1, 2, 8])[:, None], np.array([1, 2, 3, 36])
    whole = ALGORITHMS[name].priced(1e6, network(g, nodes))
    for i, j in np.ndindex(3, 4):
        one = ALGORITHMS[name].priced(1e6, network(int(g[i, 0]), int(nodes[j])))
        for many, single in zip(whole, one, strict=True):
            assert np.broadcast_to(many, (3, 4))[i, j] == pytest.approx(single, rel=1e-14)


# --- which machines have it ---


@pytest.mark.parametrize("can", IN_NETWORK)
@pytest.mark.parametrize("n", [8.0, 1e5, 1e9])
def test_it_is_chosen_only_where_the_switches_can(can, n):
    offered = {one.name for one in candidates("allreduce", combines=IN_NETWORK[can])}
    allowed = {"none": set(), "nvls": {"nvls"}, "sharp": {"sharp"}, "both": set(NAMES)}[can]
    assert offered & set(NAMES) == allowed
    for g, nodes in LEVELS[1:]:
        found = chosen("allreduce", n, network(g, nodes, can), "auto").name
        assert found not in set(NAMES) - allowed
        ours = plan("allreduce", n, network(g, nodes, can), g * nodes)
        assert ours.name == found
    assert (chosen("allreduce", n, network(1, 16, can)).name in NAMES) == ("sharp" in allowed)
    assert (chosen("allreduce", n, network(8, 1, can)).name in NAMES) == ("nvls" in allowed)


def test_a_machine_that_has_it_communicates_less():
    times = {
        can: float(predict(RUN.set({"machine.in_network": can})).communication.total)
        for can in IN_NETWORK
    }
    assert times["none"] > max(times["nvls"], times["sharp"])
    assert min(times.values()) == times["both"]
    assert network_of(RUN).combines == frozenset()


@pytest.mark.parametrize("can", IN_NETWORK)
@pytest.mark.parametrize("name", NAMES)
def test_a_run_may_name_it_where_the_switches_can(name, can):
    """Its price is the closed form of every bucket; the simulations agree in every kind of step."""
    named = {"machine.in_network": can, "strategy.allreduce": name}
    if not ALGORITHMS[name].needs <= IN_NETWORK[can]:
        wanted = f"'{name}': it needs switches that add .* summit has {can}. Legal here: auto, ring"
        with pytest.raises(SpecError, match=wanted) as refused:
            RUN.set(named)
        legal = str(refused.value).partition("Legal here: ")[2].rstrip(".").split(", ")
        assert set(legal) & set(NAMES) == {
            n for n in NAMES if ALGORITHMS[n].needs <= IN_NETWORK[can]
        }
        return
    run = RUN.set(named)
    net, cut = network_of(run), buckets(run.model, float(run.strategy.bucket), 4)
    sizes = cut.sizes[cut.sizes > 0]
    closed = sum(float(ALGORITHMS[name].priced(n, net).total) for n in sizes)
    assert float(predict(run).communication.total) == pytest.approx(closed, rel=1e-12)


@every_name
@pytest.mark.parametrize(
    "split",
    [{}, {"zero": 1}, {"zero": 3}, {"tensor": 2, "batch": 64}, {"pipeline": 2, "microbatches": 2}],
)
def test_a_step_with_it_takes_as_long_in_both_simulations(name, split):
    named = {"machine.in_network": "both", "machine.jitter": 0.0, "strategy.allreduce": name}
    run = RUN.set({**named, "strategy.nodes": 2, **{f"strategy.{k}": v for k, v in split.items()}})
    for fidelity in ("rounds", "events"):
        assert breakdown(simulate(run, fidelity)).step_time == pytest.approx(
            float(predict(run).step_time), rel=1e-9
        )


@pytest.mark.parametrize(
    ("can", "best"), [("none", "ring"), ("sharp", "sharp"), ("both", "nvls_sharp")]
)
def test_a_plan_takes_it_where_the_switches_can(can, best):
    run = RUN.set({"machine.in_network": can, "strategy.nodes": 2})
    one = {name: [1] for name in ("tensor", "pipeline", "spatial", "context", "microbatches")}
    found = plan_run(run, choose={**one, "zero": [0], "allreduce": ["ring", "sharp", "nvls_sharp"]})
    assert found.best.experiment.strategy.allreduce == best
    refused = "allreduce in switches that cannot add" in found.left_out
    assert refused == (can != "both") and "not legal: strategy.allreduce" not in found.left_out


def test_it_is_a_bound_that_eight_h200_stay_below():
    """482.26 GB/s were measured (published row arb8-h200); docs/machines.md and docs/limits.md state these figures."""
    run = RUN.set({"machine.name": "h200-pod", "strategy.nodes": 1, "strategy.devices_per_node": 8})
    net = network_of(run)
    nvls, ring = (
        float(bus_bandwidth(1e10, ALGORITHMS[name].priced(1e10, net).bandwidth, 8))
        for name in ("nvls", "ring")
    )
    assert nvls == pytest.approx(638e9, rel=1e-3) and ring == pytest.approx(365e9, rel=2e-3)
    assert nvls / 482.26e9 == pytest.approx(1.32, abs=0.005)


def test_a_torus_has_no_switches():
    with pytest.raises(SpecError, match="a torus has no switches between nodes; legal: none, nvls"):
        RUN.set({"machine.topology": "torus", "machine.in_network": "sharp"})
    RUN.set({"machine.topology": "torus", "machine.in_network": "nvls"})
    with pytest.raises(SpecError, match="Did you mean 'sharp'"):
        RUN.set({"machine.in_network": "shrap"})


# --- on the links ---


def test_a_late_rank_holds_up_all():
    ours, net = made("sharp", 1, 5, 1000), network(1, 5)
    arrival = np.array([0, 0, 0.5, 0, 0])
    alone = float(ALGORITHMS["sharp"].priced(4e3, net).total)
    for ends in (
        rounds.finish_times(ours, net, arrival=arrival),
        finish_times(ours, machine(), 5, 1, arrival=arrival),
    ):
        assert max(ends) == pytest.approx(0.5 + alone, rel=1e-12)
        assert min(ends) >= 0.5


def test_a_switch_passes_one_sum_up_the_tree():
    """Each leaf of a fat tree sends one sum, so an uplink of a NIC's rate is enough for its nodes; a star needs all."""
    tree = {"topology": "fat-tree", "nodes_per_switch": 4, "oversubscription": 4.0}
    ours = made("sharp", 1, 16, 10**6)
    free = max(finish_times(ours, machine(), 16, 1))
    assert max(finish_times(ours, machine(**tree), 16, 1)) == pytest.approx(free, rel=1e-9)
    star = schedule("binomial", 16, 10**6)
    assert max(finish_times(star, machine(**tree), 16, 1)) > free
    narrow = max(finish_times(ours, machine(**{**tree, "oversubscription": 8.0}), 16, 1))
    assert narrow - 2 * BETWEEN.latency == pytest.approx(2 * (free - 2 * BETWEEN.latency))


@pytest.mark.parametrize(("source", "target"), [(3, 0), (0, 3)])
def test_its_bytes_share_links_both_ways(source, target):
    """A flow that never ends halves the rate of one rank's bytes up, or down, and so of the sum."""
    ours, alpha = made("sharp", 1, 8, 10**6), 2 * BETWEEN.latency
    free = max(finish_times(ours, machine(), 8, 1)) - alpha
    other = Traffic(source, target, np.inf)
    assert max(finish_times(ours, machine(), 8, 1, background=[other])) - alpha == pytest.approx(
        2 * free, rel=1e-6
    )


# --- rounds of a switch ---


def test_such_rounds_stay_so_when_they_are_placed_and_put_side_by_side():
    part = messages([1, 2], 0, 0, 5, True, STREAM)
    (placed,) = within([part], [[3, 4, 5], [6, 7, 8]])
    assert placed.switch == STREAM and placed.source.tolist() == [4, 5, 7, 8]
    other = messages([4, 5], 3, 5, 5, True, STREAM)
    assert next(beside([part], [other])).switch == STREAM
    assert next(beside([part], [messages(3, 4, 0, 5, True)])).switch == ""


@given(g=st.integers(2, 6), nodes=st.integers(2, 4))
@settings(max_examples=10)
def test_one_by_one_no_two_messages_reach_one_place(g, nodes):
    for part in made("nvls_sharp", g, nodes, 30):
        found = list(one_by_one(part))
        merged = part.switch == COMBINE or (part.switch == STREAM and part.reduce.all())
        assert (len(found) > 1) == (merged and len(part) > len(found[0]))
        for once in found:
            places = zip(once.target.tolist(), once.offset.tolist(), strict=True)
            assert len(set(places)) == len(once)
        assert sorted(np.concatenate([once.source for once in found])) == sorted(part.source)
    assert part.switch == MULTICAST


def test_without_a_switch_two_sums_at_one_place_are_a_race():
    part = messages([1, 2], 0, 0, 5, True, STREAM)
    plain = Round(*part.arrays)
    with pytest.raises(SpecError, match="both write"):
        prove(schedule(lambda ranks, elements: [plain], 3, 5))
