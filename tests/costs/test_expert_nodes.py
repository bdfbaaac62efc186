"""Laws of one copy of a token for a device or a node: to how many it is sent, what travels where, and when."""

from itertools import combinations

import numpy as np
import pytest
from same_terms import assert_same_terms
from split_runs import GPT, split

from lib_dlhpc.costs.roofline import streaming_rate
from lib_dlhpc.errors import SpecError
from lib_dlhpc.layers.base.copies import expected_places
from lib_dlhpc.layout import untrained
from lib_dlhpc.parallel import program, steps
from lib_dlhpc.prediction import predict
from lib_dlhpc.prediction.changes.no_effect import without_effect
from lib_dlhpc.prediction.reports.explain_split import explain_split
from lib_dlhpc.program import Collective, prove
from lib_dlhpc.simulation import simulate
from lib_dlhpc.timeline import breakdown
from lib_dlhpc.training.check import check

E, K, S, H, LAYERS = 16, 4, 32, 64, 2
FREE = {"latency": 0.0, "bandwidth": 1e30}
WAYS = [
    {"data": 4, "experts": 4, "node": 2},
    {"data": 8, "experts": 4, "node": 2, "zero": 3},
    {"data": 8, "experts": 8, "node": 2, "recompute": "full"},
    {"data": 4, "experts": 4, "node": 1},
    {"data": 4, "experts": 4, "node": 2, "pipeline": 2, "microbatches": 8, "schedule": "dualpipe"},
    {"data": 4, "experts": 4, "node": 2, "pipeline": 2, "microbatches": 4, "schedule": "zb-h1"},
    {"data": 4, "experts": 4, "node": 2, "recompute": "light"},
    {"data": 4, "experts": 4, "node": 2, "overlap": False},
]


def run_of(exchange="by-node", node=1, links=None, groups=1, chosen_groups=0, **ways):
    model = {
        "family": "decoder",
        "layers": LAYERS,
        "hidden": H,
        "sequence": S,
        "vocabulary": 64,
        "attention": {"heads": 4},
        "feed_forward": {"features": 96},
        "experts": {
            "experts": E,
            "chosen": K,
            "features": 32,
            "groups": groups,
            "chosen_groups": chosen_groups,
        },
    }
    ways = {"batch": 16, "precision": "bf16", "expert_exchange": exchange} | ways
    return split(model, links, devices_per_node=node, **ways)


def drawn(experts, chosen, groups, chosen_groups, nodes, tokens, seed):
    """Return the mean of the nodes of tokens by the rule: groups at random, then experts of them at random."""
    dice = np.random.default_rng(seed)
    total = 0
    for _ in range(tokens):
        of = dice.permutation(groups)[:chosen_groups]
        open_to = np.flatnonzero(np.isin(np.arange(experts) // (experts // groups), of))
        picked = dice.permutation(open_to)[:chosen]
        total += len(set((picked // (experts // nodes)).tolist()))
    return total / tokens


@pytest.mark.parametrize(
    ("experts", "chosen", "groups", "chosen_groups", "nodes"),
    [
        (256, 8, 8, 4, 8),  # DeepSeek-V3
        (256, 8, 1, 1, 8),
        (256, 8, 8, 8, 8),
        (16, 4, 8, 3, 4),  # a node has two groups
        (16, 4, 2, 1, 8),  # a group has four nodes
        (16, 1, 1, 1, 4),
        (12, 5, 6, 3, 3),
    ],
)
def test_nodes_are_what_tokens_drawn_by_the_rule_have(
    experts, chosen, groups, chosen_groups, nodes
):
    expected = expected_places(experts, chosen, groups, chosen_groups, nodes)
    found = drawn(experts, chosen, groups, chosen_groups, nodes, 4000, seed=7)
    assert found == pytest.approx(expected, abs=4 * 1.5 / 4000**0.5)
    assert 1 <= expected <= min(chosen, nodes)
    if groups == nodes:
        assert expected <= chosen_groups


@pytest.mark.parametrize(
    ("experts", "chosen", "groups", "chosen_groups", "places"),
    [
        (12, 3, 1, 1, 4),
        (12, 5, 1, 1, 6),
        (12, 4, 3, 2, 6),  # a group has two devices
        (12, 3, 6, 3, 3),  # a node has two groups
        (8, 8, 1, 1, 4),
        (6, 2, 1, 1, 6),
    ],
)
def test_places_are_the_mean_over_every_choice(experts, chosen, groups, chosen_groups, places):
    """All choices of groups are counted, and all choices of experts of each."""
    of_group, of_place = experts // groups, experts // places
    found = [
        len({expert // of_place for expert in picked})
        for some in combinations(range(groups), chosen_groups)
        for picked in combinations(
            [expert for expert in range(experts) if expert // of_group in some], chosen
        )
    ]
    expected = expected_places(experts, chosen, groups, chosen_groups, places)
    assert expected == pytest.approx(sum(found) / len(found), rel=1e-12)


def test_without_a_limit_it_is_the_count_of_occupied_cells():
    """Every one of E experts on a node of its own: k different nodes; all on one node: one."""
    assert expected_places(E, K, 1, 1, E) == pytest.approx(K)
    assert expected_places(E, K, 1, 1, 1) == 1
    for groups in (1, 2, 4, 8):  # groups that are all chosen limit nothing
        assert expected_places(E, K, groups, groups, 4) == pytest.approx(
            expected_places(E, K, 1, 1, 4)
        )


@pytest.mark.parametrize(("groups", "chosen_groups"), [(1, 0), (4, 2)])
def test_a_copy_for_each_node_crosses_the_network_and_one_for_each_device_the_node(
    groups, chosen_groups
):
    run = run_of(groups=groups, chosen_groups=chosen_groups, node=2, data=8, experts=8)
    held = program(run).stages[0][0]
    price = held.last.prices[0].bytes
    inside, between = (
        expected_places(E, K, groups, chosen_groups or groups, places) for places in (8, 4)
    )
    tokens = 16 * S * H * 2  # B of all positions of a rank
    for way in (held.forward, held.last):
        found = [each for each in way.variants[0].instructions if isinstance(each, Collective)]
        sizes = [price(each) for each in found if each.kind == "experts"]
        assert sizes == pytest.approx([inside * tokens, between * tokens] * (2 * LAYERS))


@pytest.mark.parametrize("many", [2, 4, 8, 16])
def test_a_device_gets_one_copy_however_many_experts_of_a_token_it_has(many):
    """All-to-alls shrink by the expected number of devices over the experts; with an expert on each, by nothing."""
    sent = {}
    for exchange in ("direct", "by-device"):
        held = program(run_of(exchange, node=2, data=16, experts=many)).stages[0][0]
        calls = [
            each for each in held.forward.variants[0].instructions if isinstance(each, Collective)
        ]
        (sent[exchange],) = {each.elements for each in calls if each.kind == "experts"}
    devices = expected_places(E, K, 1, 1, many)
    assert sent["by-device"] / sent["direct"] == pytest.approx(devices / K)
    assert (devices == pytest.approx(K)) == (many == E)


def test_within_one_node_a_copy_for_each_node_is_one_for_each_device():
    by_device, by_node = (
        predict(run_of(way, node=4, data=4, experts=4)) for way in ("by-device", "by-node")
    )
    assert float(by_device.step_time) == float(by_node.step_time)
    assert float(by_device.step_time) < float(
        predict(run_of("direct", node=4, data=4, experts=4)).step_time
    )


def test_an_imbalance_multiplies_the_copies():
    messages = [
        predict(run_of("by-device", data=4, experts=4, expert_imbalance=f)) for f in (1.0, 1.5)
    ]
    one, more = (float(each.messages["experts"].bandwidth) for each in messages)
    assert more == pytest.approx(1.5 * one)


def test_without_latency_and_inside_it_takes_what_crosses_the_nodes():
    """Links of a node are free: the network carries (N-1)/N of the copies instead of all pairs that leave a node."""
    slow = {"latency": 0.0, "bandwidth": 1e9}

    def seconds(exchange):
        run = run_of(exchange, node=2, data=8, experts=8)
        change = {f"machine.inter_node.{name}": value for name, value in slow.items()}
        change |= {f"machine.intra_node.{name}": value for name, value in FREE.items()}
        return float(predict(run.set(change)).messages["experts"].total)

    many = expected_places(E, K, 1, 1, 4)
    assert seconds("by-node") / seconds("direct") == pytest.approx(many / K, rel=1e-6)


@pytest.mark.parametrize("exchange", ["by-node", "by-device"])
@pytest.mark.parametrize("ways", WAYS, ids=str)
def test_predicted_is_what_is_played_and_the_program_trains(ways, exchange):
    run = run_of(exchange, groups=4, chosen_groups=2, **ways)
    prove(steps(run))
    assert_same_terms(run)


@pytest.mark.parametrize("exchange", ["by-node", "by-device"])
def test_with_events_it_takes_as_long(exchange):
    """One rank a node; with several, messages of two collectives share what each was priced for alone."""
    run = run_of(exchange, node=1, data=4, experts=4)
    rounds, events = (breakdown(simulate(run, each)) for each in ("rounds", "events"))
    assert events.step_time == pytest.approx(rounds.step_time, rel=1e-9)
    run = run_of(exchange, node=2, data=4, experts=4)
    rounds, events = (breakdown(simulate(run, each)) for each in ("rounds", "events"))
    assert events.step_time == pytest.approx(rounds.step_time, rel=0.1)


def test_copies_are_those_of_the_nodes_of_a_run_and_not_of_one_before_it():
    """The same ranks and parts in 4, 2 and 8 nodes, in any order: what crosses the network differs."""
    for node in (4, 2, 4, 8, 2):
        run = run_of(node=node, data=16, experts=16)
        held = program(run).stages[0][0]
        far = [
            each for each in held.forward.variants[0].instructions if isinstance(each, Collective)
        ]
        sent = {each.elements for each in far if each.group.endswith("between nodes")}
        (copies,) = sent
        assert copies == pytest.approx(expected_places(E, K, 1, 1, 16 // node) * S * H), node


def test_only_messages_of_experts_change_and_the_exchange_copies_rows_itself():
    """Positions copied to rows as they leave, and rows summed at home: two kernels less in each layer.

    Where they arrive, a copy becomes its rows, and rows become a copy.
    """
    direct, by_node = (
        predict(run_of(way, node=2, data=4, experts=4)) for way in ("direct", "by-node")
    )
    assert direct.memory == by_node.memory
    device, batch = direct.experiment.machine.device, int(direct.experiment.strategy.batch)
    rows = 1 + K + (K - expected_places(E, K, 1, 1, 4))
    moved = LAYERS * 2 * 2 * batch * rows * S * H / float(streaming_rate(device))
    launched = LAYERS * 2 * float(device.launch)
    forward, backward = (
        float(getattr(direct, way) - getattr(by_node, way)) for way in ("forward", "backward")
    )
    assert forward == pytest.approx(moved + launched, rel=1e-6)
    assert backward == pytest.approx(moved + 2 * launched, rel=1e-6)


def test_groups_of_a_model_move_nothing_in_a_direct_exchange():
    one, four = (
        predict(run_of("direct", groups=groups, chosen_groups=some, data=4, experts=4))
        for groups, some in ((1, 0), (4, 2))
    )
    assert float(one.step_time) == float(four.step_time)
    assert one.memory == four.memory


def test_the_explanation_says_to_how_many_nodes():
    run = run_of(groups=4, chosen_groups=2, node=2, data=8, experts=8)
    found = next(each for each in explain_split(predict(run)) if each.name == "experts messages")
    values = {name: value for name, value, _ in found.inputs}
    assert values["nodes of a group"] == "4"
    many = expected_places(E, K, 4, 2, 4)
    assert values["of which a token is sent to"] == f"{many:.3g}"
    devices = f"{expected_places(E, K, 4, 2, 8):.3g}"
    assert values["devices that a token is sent to"] == devices
    run = run.set({"strategy.expert_exchange": "by-device"})
    found = next(each for each in explain_split(predict(run)) if each.name == "experts messages")
    values = {name: value for name, value, _ in found.inputs}
    assert values["devices that a token is sent to"] == devices
    assert "nodes of a group" not in values


@pytest.mark.parametrize(
    ("ways", "says"),
    [
        ({"data": 4, "experts": 4, "tensor": 2}, "with strategy.tensor = 2: the legal value is 1"),
        ({"data": 12, "experts": 4, "node": 3}, "experts = 4: they must fill nodes of 3 replicas"),
        (
            {"data": 4, "experts": 4, "tensor": 2, "exchange": "by-device"},
            "'by-device' with strategy.tensor = 2: the legal value is 1",
        ),
        ({"data": 12, "experts": 4, "node": 3, "exchange": "by-device"}, ""),
        ({"data": 8, "experts": 8, "node": 1, "groups": 16}, ""),
        ({"data": 8, "experts": 8, "groups": 16, "chosen_groups": 8, "node": 1}, ""),
        ({"data": 8, "experts": 8, "node": 4, "groups": 1}, ""),
    ],
)
def test_what_is_legal(ways, says):
    if not says:
        assert float(predict(run_of(**ways)).step_time) > 0
        return
    with pytest.raises(SpecError, match=says):
        predict(run_of(**ways))


@pytest.mark.parametrize(
    ("groups", "chosen_groups", "says"),
    [
        (3, 0, "groups = 3: it must divide the 16 experts"),
        (8, 1, "chosen_groups = 1; legal: 2 to the 8 groups, or 0: all"),
        (4, 5, "chosen_groups = 5; legal: 1 to the 4 groups"),
    ],
)
def test_groups_that_are_not_legal(groups, chosen_groups, says):
    with pytest.raises(SpecError, match=says):
        run_of("direct", groups=groups, chosen_groups=chosen_groups)


@pytest.mark.parametrize("exchange", ["by-node", "by-device"])
def test_it_is_not_run_and_without_shared_experts_has_no_effect(exchange):
    with pytest.raises(SpecError, match=f"'{exchange}': it is predicted and simulated, not run"):
        check(run_of(exchange, precision="fp32", data=4, experts=4))
    said = untrained(run_of(exchange, data=4, experts=4))
    assert f"'{exchange}': it is predicted and simulated" in said
    for other in (
        split(GPT, data=4, batch=16, expert_exchange=exchange),
        run_of(exchange, data=4, experts=1),
    ):
        (note,) = without_effect(other)
        assert "no token travels" in note


def test_a_copy_for_each_node_in_one_node_is_said_to_be_one_for_each_device():
    (note,) = without_effect(run_of("by-node", node=4, data=4, experts=4))
    assert "in one node" in note and "'by-device'" in note
    assert without_effect(run_of("by-device", node=4, data=4, experts=4)) == []
