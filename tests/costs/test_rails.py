"""Rails: a closed form, a schedule's price, rounds and events agree on NICs that each belong to some devices."""

from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lib_dlhpc.costs.groups import network_on
from lib_dlhpc.prediction import predict
from lib_dlhpc.schedules import ALGORITHMS, COLLECTIVES, Schedule, beside, price, schedule, within
from lib_dlhpc.simulation import rounds, simulate
from lib_dlhpc.simulation.events import finish_times
from lib_dlhpc.spec.experiment import Experiment
from lib_dlhpc.spec.machine import Device, Link, Machine
from lib_dlhpc.timeline import breakdown

FREE = Device({"fp32": 1e13}, 1e10, 1e30, 100.0, 300.0)  # combining costs nothing
NODES, EACH, ELEMENTS = 4, 4, 16 * 16 * 4096
LEVELS = ("hierarchical_ring", "rabenseifner", "recursive_doubling", "hierarchical_all_to_all")
LEADERS = ("hierarchical", "binomial")
SPREAD = ("parameter_server", "pairwise_all_to_all")  # whose closed forms spread messages evenly
GOALS = ("allreduce", "reduce_scatter", "allgather", "all_to_all")
PRICED = sorted(
    name
    for goal in GOALS
    for name, record in COLLECTIVES[goal].items()
    if record.cost is not None and name not in SPREAD
)


def machine(topology, nics=EACH, leaf=NODES, over=1.0, nodes=NODES, each=EACH):
    options = {"topology": topology, "nodes_per_switch": leaf, "oversubscription": over}
    links = Link(2e-6, 100e9), Link(5e-6, 12.5e9)
    return Machine(FREE, *links, nodes=nodes, devices_per_node=each, nics=nics, **options)


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
    # The closed form spreads the messages that change rails evenly over all steps.
    assert pairs[3] == pytest.approx(pairs[0], rel=0.025)
    assert levels[3] == pytest.approx(levels[0], rel=1e-6) and levels[3] < pairs[3]


@pytest.mark.parametrize("over", [1.0, 4.0])
@pytest.mark.parametrize(("topology", "fast"), [("rails", 0.91), ("rails-pxn", 0.95)])
@pytest.mark.parametrize("nics", [2, 3])
def test_pairs_on_few_nics_are_as_near(nics, topology, fast, over):
    """They are faster than priced, by at most 9%, through a relay 5%."""
    on = machine(topology, nics, over=over)
    pairs, levels = times("pairwise_all_to_all", on), times("hierarchical_all_to_all", on)
    assert fast * pairs[0] <= pairs[3] * (1 + 1e-9) <= pairs[0] * 1.01
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


@st.composite
def cases(draw):
    """A machine, its devices a node, a collective's schedule, and how many groups lie beside each other in a node."""
    ranks, groups, nodes = (
        draw(st.sampled_from(of)) for of in ((1, 2, 3, 4, 5, 6, 8), (1, 1, 2, 3, 4), (2, 3, 4))
    )
    each, topology = ranks * groups, draw(st.sampled_from(["rails", "rails-pxn"]))
    on = machine(topology, draw(st.integers(1, each + 1)), nodes, nodes=nodes, each=each)
    p, name = ranks * nodes, draw(st.sampled_from(PRICED))
    elements = 16 * 16 * p * (p if name in COLLECTIVES["all_to_all"] else 1)
    return on, each, groups, schedule(name, p, elements, **ALGORITHMS[name].on_nodes(p, ranks))


def bytes_of_the_busiest_nic(plan, on, each, groups):
    """Count B, NIC by NIC in each round, while each group of a node sends the messages of `plan`; sum the most."""
    ranks, many, total = each // groups, min(on.nics, each), 0
    for part in plan.rounds():
        leaves, enters = Counter(), Counter()
        for source, target, count, reduces in zip(
            part.source, part.target, part.count, part.reduce, strict=True
        ):
            if source // ranks == target // ranks:
                continue
            if part.switch and not reduces:
                continue  # the sum comes back while the parts go up
            for group in range(groups):
                first, last = (rank % ranks * groups + group for rank in (source, target))
                by, to = (device * many // each for device in (first, last))
                leaves[source // ranks, to if on.topology == "rails-pxn" else by] += 4 * int(count)
                if not part.switch:  # it merges what goes to one rank
                    enters[target // ranks, to] += 4 * int(count)
        total += max([*leaves.values(), *enters.values()], default=0)
    return total


@settings(max_examples=150)
@given(cases())
def test_price_closed_form_and_rounds_are_a_count_of_what_the_busiest_nic_carries(case):
    """Also with NICs that do not divide the devices, and with groups that share the NIC of a node's edge."""
    on, each, groups, plan = case
    free = Link(0.0, 1e30), Link(0.0, 1e9)
    on = Machine(
        FREE, *free, on.nodes, each, nics=on.nics, topology=on.topology, nodes_per_switch=on.nodes
    )
    net = network_on(on, each, on.nodes, plan.ranks, groups)
    expected = bytes_of_the_busiest_nic(plan, on, each, groups) / 1e9
    closed = ALGORITHMS[plan.name].priced(4.0 * plan.elements, net).total
    assert float(closed) == pytest.approx(expected, rel=1e-9)
    assert price(plan, network=net).total == pytest.approx(expected, rel=1e-9)
    assert rounds.finish_times(plan, net).max() == pytest.approx(expected, rel=1e-9)


@settings(max_examples=60)
@given(cases())
def test_groups_beside_each_other_take_as_long_as_all_of_their_messages_on_the_node(case):
    """One group's network knows the others; the network of all ranks, and the links of events, carry them all."""
    on, each, groups, plan = case
    net = network_on(on, each, on.nodes, plan.ranks, groups)
    whole = network_on(on, each, on.nodes, plan.ranks * groups, 1)
    places = np.arange(plan.ranks * groups).reshape(plan.ranks, groups)
    of_all = list(beside(*(within(plan.rounds(), places[:, group]) for group in range(groups))))
    together = Schedule(plan.name, places.size, plan.elements, lambda: of_all)
    found = [
        float(ALGORITHMS[plan.name].priced(4.0 * plan.elements, net).total),
        rounds.finish_times(plan, net).max(),
        price(together, network=whole).total,
        rounds.finish_times(together, whole).max(),
    ]
    assert found == pytest.approx([found[0]] * 4, rel=1e-9)
    near = 1e-2 if ALGORITHMS[plan.name].needs else 1e-9  # a switch waits for nobody
    assert finish_times(together, on, on.nodes, each).max() == pytest.approx(found[0], rel=near)


@pytest.mark.parametrize(
    ("topology", "each", "nics", "split", "low"),
    [
        ("rails-pxn", 8, 4, {"tensor": 2, "zero": 3, "allreduce": "ring"}, 0.0),
        ("rails", 8, 3, {"zero": 3, "allreduce": "ring"}, 0.0),
        ("rails", 8, 5, {}, 0.0),
        ("rails", 8, 3, {"tensor": 2, "zero": 1}, 0.01),
        ("rails", 6, 2, {"tensor": 2}, 0.01),
        ("rails-pxn", 6, 4, {"tensor": 3, "allreduce": "rabenseifner"}, 0.0),
        ("rails", 4, 3, {"pipeline": 2, "microbatches": 4}, 0.05),
        ("rails-pxn", 8, 3, {"tensor": 2, "pipeline": 2, "microbatches": 4}, 0.05),
    ],
)
def test_a_step_on_few_nics_is_the_simulation_in_rounds_and_near_the_links(
    topology, each, nics, split, low, without_meeting
):
    run = on_few_nics(topology, each, nics, split)
    step = float(predict(run).step_time)
    in_rounds, events = (breakdown(simulate(run, f, 1)).step_time for f in ("rounds", "events"))
    assert in_rounds == pytest.approx(step, rel=1e-9)
    assert (1 - low - 1e-9) * events <= step <= (1 + 1e-9) * events


@pytest.mark.parametrize(
    ("topology", "each", "nics", "split"),
    [
        ("rails-pxn", 8, 4, {"tensor": 2, "zero": 3, "allreduce": "ring"}),
        ("rails-pxn", 6, 4, {"tensor": 3, "allreduce": "rabenseifner"}),
    ],
)
def test_exchanges_on_few_nics_are_taken_to_meet_evenly(topology, each, nics, split):
    run = on_few_nics(topology, each, nics, split)
    events = breakdown(simulate(run, "events", 1)).step_time
    assert float(predict(run).step_time) == pytest.approx(events, rel=1e-4)


def on_few_nics(topology, each, nics, split):
    """Return a step of a small GPT on four nodes."""
    slow = {"inter_node": {"bandwidth": 2e9, "latency": 5e-6}, "topology": topology, "jitter": 0.0}
    own = {"name": "selene", "nics": nics, "devices_per_node": each, "nodes_per_switch": 64, **slow}
    run = {"nodes": 4, "batch": 8, "precision": "bf16", **split}
    few = {"family": "gpt", "layers": 4, "hidden": 1536, "heads": 16, "sequence": 2048}
    few |= {"vocabulary": 51200, "dropout": 0.1}  # gpt-1536x16 with a quarter of the layers
    return Experiment(model=few, dataset="webtext", machine=own, strategy=run)


def test_four_nics_of_eight_devices_halve_the_ring_of_groups_that_lie_beside_each_other():
    """The example of docs/machines.md: each of two groups leaves the node by the last NIC."""
    own, shared = (network_on(machine("rails", n, each=8), 8, NODES, 16, 2) for n in (8, 4))
    one, two = (float(ALGORITHMS["ring"].priced(4e9, net).bandwidth) for net in (own, shared))
    assert two == pytest.approx(2 * one)


@pytest.mark.parametrize("allreduce", ["auto", "rabenseifner", "ring", "hierarchical_ring"])
def test_arrays_of_nics_and_of_devices_have_the_price_of_each_value(allreduce):
    run = Experiment(
        model="vgg16",
        machine={"name": "selene", "devices_per_node": 12, "topology": "rails"},
        strategy={"nodes": 4, "allreduce": allreduce},
    )
    for key, values in (
        ("machine.nics", (1, 2, 4, 5, 12, 16)),
        ("strategy.devices_per_node", (1, 3, 7, 12)),
    ):
        run = run.set({"machine.nics": 4})
        found = predict(run.set({key: np.array(values)})).communication.total
        one = [float(predict(run.set({key: value})).communication.total) for value in values]
        assert np.ravel(found) == pytest.approx(one, rel=1e-12)


def test_devices_of_a_node_that_are_not_used_change_nothing():
    """Also between stages: each device in use has a NIC of its own where there are as many."""
    split = {
        "nodes": 2,
        "devices_per_node": 4,
        "tensor": 4,
        "pipeline": 2,
        "batch": 8,
        "microbatches": 8,
    }
    few, many = (
        Experiment(
            model="gpt-1536x16",
            dataset="webtext",
            machine={"name": "selene", "topology": "rails", "nics": 4, "devices_per_node": each},
            strategy=split,
        )
        for each in (4, 8)
    )
    assert predict(few).step_time == predict(many).step_time
