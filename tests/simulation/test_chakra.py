"""A step that is exported and simulated takes as long as predicted; any trace is simulated by the same rules.

Tolerance: 1e-9 of the step, as both sum the same numbers in another order.
"""

import numpy as np
import pytest
from chakra_files import SAMPLES, strip_ours, written
from split_runs import GPT, IMAGES, split

from lib_dlhpc import SpecError
from lib_dlhpc.costs.network import flat
from lib_dlhpc.prediction import predict
from lib_dlhpc.schedules import schedule
from lib_dlhpc.schedules.choice import cheapest
from lib_dlhpc.simulation import rounds
from lib_dlhpc.simulation.chakra import export, report, simulate_trace
from lib_dlhpc.simulation.chakra.prices import Prices
from lib_dlhpc.spec.machine import load_machine, read_machine
from lib_dlhpc.timeline import breakdown
from lib_dlhpc.timeline.chakra import Node, read_trace

pytest.importorskip("google.protobuf")

WORDS = GPT | {"vocabulary": 512}
MODELS = {"gpt": WORDS, "experts": WORDS | {"experts": 8, "chosen": 2}, "images": IMAGES}
PIPELINE = {"pipeline": 2, "microbatches": 4}
HYBRID = {"data": 2, "tensor": 2, **PIPELINE}
KINDS = {
    "data": {"data": 4, "bucket": 1e4},
    "ring": {"data": 4, "allreduce": "ring"},
    "no overlap": {"data": 2, "overlap": False},
    "tensor": {"tensor": 4},
    "sequence": {"tensor": 2, "sequence_parallel": True},
    "pieces": {"tensor": 2, "tensor_pieces": 3},
    "pieces, sequence": {**PIPELINE, "tensor": 2, "sequence_parallel": True, "tensor_pieces": 2},
    "context": {"data": 2, "context": 2, "tensor": 2},
    "experts": {"data": 4, "experts": 2},
    "1f1b": {"pipeline": 4, "microbatches": 8},
    "gpipe": {**PIPELINE, "schedule": "gpipe"},
    "interleaved": {**PIPELINE, "chunks": 2, "schedule": "interleaved"},
    "zero bubble": {**PIPELINE, "schedule": "zb-h1"},
    "both ends": {**PIPELINE, "schedule": "dualpipe"},
    "both ends, experts": {**PIPELINE, "schedule": "dualpipe", "data": 4, "experts": 2},
    "zero 1": {"data": 4, "zero": 1},
    "hybrid sharding": {"data": 4, "zero": 3, "shards": 2},
    "zero 2": {"data": 4, "zero": 2},
    "zero 3": {"data": 4, "zero": 3},
    "recomputed": {"data": 2, "recompute": "full"},
    "offloaded": {"data": 2, "offload": "all"},
    "hybrid": HYBRID,
    "hybrid, zero 1": {**HYBRID, "zero": 1},
    "tensor, zero 3": {"data": 2, "tensor": 2, "zero": 3},
}
CASES = [
    (kind, model) for kind in KINDS for model in MODELS if "experts" not in kind or model != "gpt"
]
POD = load_machine("h100-pod")
LINK = POD.inter_node
ALPHA, BETA = LINK.latency, 1 / (LINK.bandwidth * LINK.efficiency * POD.nics)


def run_of(kind, model="gpt", node=2):
    try:
        run = split(MODELS[model], devices_per_node=node, **{"batch": 16} | KINDS[kind])
        predict(run)
    except SpecError:
        return None
    return run


def again(run, folder):
    """Return the timeline of a run that was exported and read."""
    export(run, folder)
    return simulate_trace(read_trace(folder), run.machine, int(run.devices_per_node))


@pytest.mark.parametrize("kind, model", CASES)
def test_an_exported_step_takes_as_long_as_predicted(kind, model, tmp_path, without_meeting):
    """The format has no time for exchanges that slow each other down: see the next test."""
    nodes = [1, 2, 4]
    # Each kind and each model meets each size of nodes, but not all three.
    del nodes[(list(KINDS).index(kind) + list(MODELS).index(model)) % 3]
    runs = [run for node in nodes if (run := run_of(kind, model, node))]
    for number, run in enumerate(runs):
        timeline = again(run, tmp_path / str(number))
        predicted = predict(run)
        assert timeline.stop.max() == pytest.approx(float(predicted.step_time), rel=1e-9)
        measured = breakdown(timeline)
        for name in ("forward", "backward", "update"):
            expected = pytest.approx(float(predicted.terms[name]), rel=1e-9)
            assert measured.terms[name] == expected, name


def test_an_exported_step_lacks_what_exchanges_that_meet_add(tmp_path):
    run = run_of("tensor, zero 3")
    step = float(predict(run).step_time)
    assert (1 - 1e-4) * step <= again(run, tmp_path / "trace").stop.max() <= (1 + 1e-9) * step


def test_the_cases_are_not_empty():
    assert all(any(run_of(kind, model) for model in MODELS) for kind in KINDS)


KEYS = {"context": 4, "context_exchange": "ring", "fused_attention": "auto"}


@pytest.mark.parametrize(
    "model, strategy",
    [
        (IMAGES, {"spatial": 4}),
        (IMAGES, {"spatial": 2, **PIPELINE}),
        (WORDS, KEYS),
        (WORDS, {**KEYS, "recompute": "full", **PIPELINE}),
    ],
)
def test_messages_of_neighbors_take_about_as_long_as_in_closed_form(model, strategy, tmp_path):
    for node in (1, 2, 4):
        run = split(model, devices_per_node=node, batch=16, **strategy)
        timeline = again(run, tmp_path / str(node))
        assert timeline.stop.max() == pytest.approx(float(predict(run).step_time), rel=1e-3)


def test_rounded_to_the_units_of_the_format_a_step_is_right_to_a_microsecond_a_node(tmp_path):
    run = run_of("data")
    exact = again(run, tmp_path / "trace").stop.max()
    strip_ours(tmp_path / "trace")
    trace = read_trace(tmp_path / "trace")
    rounded = simulate_trace(trace, run.machine, 2).stop.max()
    assert 0 < abs(rounded - exact) < 1e-6 * len(trace.nodes[0])


def test_some_ranks_alone_are_exported_but_not_simulated(tmp_path):
    run = run_of("hybrid")
    assert export(run, tmp_path / "trace", [1, 0, 1]) == 2
    with pytest.raises(SpecError, match=r"comm_group\.json: rank \d of group \d+ has no trace"):
        read_trace(tmp_path / "trace")
    with pytest.raises(SpecError, match="ranks: 8: expected ranks from 0 to 7"):
        export(run, tmp_path / "trace", [0, 8])


def test_only_synchronous_steps_are_exported(tmp_path):
    run = split(GPT, data=2, update="local", local_steps=4)
    with pytest.raises(SpecError, match=r"strategy\.update = 'local'"):
        export(run, tmp_path / "trace")


def test_every_rank_can_follow_its_own_file(tmp_path):
    """A node stands after all that it depends on, and every computation after the one before it."""
    export(run_of("zero 3"), tmp_path / "trace")
    for nodes in read_trace(tmp_path / "trace").nodes:
        assert [node.id for node in nodes] == list(range(len(nodes)))
        assert all(each < node.id for node in nodes for each in node.after)
        work = sum(node.flop for node in nodes)
        assert work > 0 and all(node.bytes > 0 for node in nodes if node.flop)


def test_flop_of_all_ranks_are_those_of_the_model(tmp_path):
    run = run_of("1f1b")
    export(run, tmp_path / "trace")
    nodes = [node for own in read_trace(tmp_path / "trace").nodes for node in own]
    forward = sum(node.flop for node in nodes if node.kind == "forward")
    assert forward == pytest.approx(16 * run.model.layer_forward_flop.sum())


# Published traces, on nodes of one device each.


@pytest.mark.parametrize(
    "name, goal, size",
    [
        ("all_reduce", "allreduce", 2**20),
        ("all_gather", "allgather", 4 * 2**20),  # what each rank gives is in the file
        ("reduce_scatter", "reduce_scatter", 2**20),
        ("all_to_all", "all_to_all", 4 * 2**20),
    ],
)
def test_a_published_collective_costs_its_closed_form(name, goal, size):
    gamma = 3 / POD.device.memory_bandwidth
    expected = cheapest(goal, size, flat(4, ALPHA, BETA, gamma)).total
    timeline = simulate_trace(read_trace(SAMPLES / name), POD, 1)
    assert timeline.stop.max() == pytest.approx(float(expected), rel=1e-12)


def test_a_published_ring_takes_what_its_messages_and_reductions_do():
    """14 messages of 128 KiB in a row, and after each of the first 7 a reduction of 7 us."""
    timeline = simulate_trace(read_trace(SAMPLES / "ring"), POD, 1)
    rounds = 14 * (ALPHA + 2**17 * BETA) + 7 * 7e-6
    assert timeline.stop.max() == pytest.approx(rounds, rel=1e-12)
    found = report.as_dict(timeline, "pod", 8)
    for each in found["terms"]:
        assert each["compute"] == pytest.approx(49e-6)
        assert each["exposed communication"] == pytest.approx(rounds - 49e-6)


# Crafted traces.


def work(number, seconds, *after, **more):
    return Node(number, f"work {number}", "COMP_NODE", after, seconds, **more)


def talk(number, *after, size=1e6, collective="ALL_REDUCE", **more):
    one = Node(number, f"talk {number}", "COMM_COLL_NODE", after, bytes=size)
    return one._replace(collective=collective, **more)


def message(number, kind, peer, *after, size=1e6, tag=0):
    one = Node(number, f"{kind} {number}", f"COMM_{kind.upper()}_NODE", after, bytes=size)
    return one._replace(peer=peer, tag=tag)


def played(tmp_path, *ranks, machine=POD, devices=1, groups=None):
    trace = read_trace(written(tmp_path / "trace", *ranks, groups=groups))
    return simulate_trace(trace, machine, devices)


def ends(timeline, name):
    return timeline.stop[[timeline.names[at] == name for at in timeline.name]]


def test_a_device_computes_one_thing_at_a_time_beside_its_host(tmp_path):
    nodes = [work(0, 2.0), work(1, 3.0), work(2, 4.0, host=True), work(3, 1.0, 1)]
    timeline = played(tmp_path, nodes)
    assert [ends(timeline, f"work {n}")[0] for n in range(4)] == [2.0, 5.0, 4.0, 6.0]


def test_a_computation_without_a_time_takes_that_of_a_roofline(tmp_path):
    device = POD.device
    rate = device.peak["bf16"] * device.efficiency
    nodes = [work(0, 0.0, flop=1e15), work(1, 0.0, 0, bytes=1e12), work(2, 0.0, 1)]
    timeline = played(tmp_path, nodes)
    expected = 1e15 / rate + 1e12 / device.memory_bandwidth
    assert timeline.stop.max() == pytest.approx(expected, rel=1e-12)


def test_a_receiver_waits_for_a_late_sender(tmp_path):
    sends = [work(0, 1.0), message(1, "send", 1, 0), work(2, 1.0, 0)]
    receives = [message(5, "recv", 0), work(6, 0.5, 5)]
    timeline = played(tmp_path, sends, receives)
    arrives = 1.0 + ALPHA + 1e6 * BETA
    assert ends(timeline, "recv 5")[0] == pytest.approx(arrives, rel=1e-12)
    assert ends(timeline, "wait for recv 5")[0] == pytest.approx(arrives, rel=1e-12)
    terms = report.as_dict(timeline, "pod", 2)["terms"][1]
    assert terms["compute"] == 0.5 and terms["idle"] == pytest.approx(1.5 - (arrives - 1.0))
    assert terms["exposed communication"] == pytest.approx(arrives - 1.0)


def test_messages_of_a_sender_follow_one_another(tmp_path):
    sends = [message(n, "send", 1, tag=n) for n in range(3)]
    receives = [message(n, "recv", 0, tag=n) for n in (2, 1, 0)]
    timeline = played(tmp_path, sends, receives)
    found = [ends(timeline, f"recv {n}")[0] for n in range(3)]
    assert found == pytest.approx([ALPHA + (n + 1) * 1e6 * BETA for n in range(3)], rel=1e-12)


def test_messages_of_one_tag_match_in_order(tmp_path):
    sends = [message(0, "send", 1), message(1, "send", 1, 0, size=2e6)]
    receives = [message(0, "recv", 0), message(1, "recv", 0, 0)]
    timeline = played(tmp_path, sends, receives)
    assert timeline.stop.max() == pytest.approx(2 * ALPHA + 3e6 * BETA, rel=1e-12)


def test_ranks_of_a_node_that_send_equally_far_share_its_nics(tmp_path):
    """Two of a node send two ranks on, into the next; of stride 1 only one does."""
    link = POD.intra_node
    apart = [[message(0, "send", rank + 2)] for rank in (0, 1)]
    apart += [[message(0, "recv", rank)] for rank in (0, 1)]
    timeline = played(tmp_path, *apart, devices=2)
    assert timeline.stop.max() == pytest.approx(ALPHA + 1e6 * 2 * BETA, rel=1e-12)
    chain = [[message(0, "send", 1)], [message(0, "recv", 0), message(1, "send", 2, 0)]]
    chain += [[message(0, "recv", 1)], []]
    timeline = played(tmp_path, *chain, devices=2)
    inside = link.latency + 1e6 / (link.bandwidth * link.efficiency)
    assert timeline.stop.max() == pytest.approx(inside + ALPHA + 1e6 * BETA, rel=1e-12)


def test_nodes_of_a_domain_send_over_the_links_inside_it():
    prices = Prices(load_machine("gb200-nvl72"), ranks=144, devices=4)
    inside, tray, away = (prices.message(0, to, 1e9, 1).total for to in (1, 4, 72))
    assert inside == tray < away


def test_a_collective_starts_with_its_last_rank_and_those_of_a_group_follow_one_another(tmp_path):
    ranks = [[work(0, 1.0 + rank), talk(1, 0), talk(2)] for rank in range(2)]
    timeline = played(tmp_path, *ranks)
    price = float(
        cheapest("allreduce", 1e6, flat(2, ALPHA, BETA, 3 / POD.device.memory_bandwidth)).total
    )
    # `talk 2` depends on nothing, and is the second of the group all the same.
    assert ends(timeline, "talk 1") == pytest.approx([2.0 + price] * 2, rel=1e-12)
    assert ends(timeline, "talk 2") == pytest.approx([2.0 + 2 * price] * 2, rel=1e-12)


def test_groups_exchange_side_by_side(tmp_path):
    one = [[talk(0, group="1")], [talk(0, group="1")], [talk(0, group="2")], [talk(0, group="2")]]
    both = [[*own, talk(1, group=f"{3 + rank % 2}")] for rank, own in enumerate(one)]
    timeline, more = played(tmp_path, *one), played(tmp_path, *both)
    assert len(set(timeline.stop.tolist())) == 1
    assert more.stop.max() == timeline.stop.max()


@pytest.mark.parametrize(
    "collective, algorithm", [("BROADCAST", "binomial_broadcast"), ("REDUCE", "binomial_reduce")]
)
@pytest.mark.parametrize("ranks", [2, 4, 5, 8])
def test_a_tree_costs_what_its_schedule_takes_in_rounds(collective, algorithm, ranks, tmp_path):
    timeline = played(tmp_path, *[[talk(0, collective=collective)] for _ in range(ranks)])
    net = flat(ranks, ALPHA, BETA, 3 / POD.device.memory_bandwidth)
    known = rounds.program(schedule(algorithm, ranks, 1000)), net, 1000.0
    through = rounds.finish_times(*known, np.zeros(ranks))
    assert timeline.stop.max() == pytest.approx(through.max(), rel=1e-12)


@pytest.mark.parametrize("collective, size", [("GATHER", 3e6), ("SCATTER", 0.75e6)])
def test_a_root_sends_or_receives_the_parts_of_all_others(collective, size, tmp_path):
    timeline = played(tmp_path, *[[talk(0, collective=collective)] for _ in range(4)])
    assert timeline.stop.max() == pytest.approx(ALPHA + size * BETA, rel=1e-12)


def test_a_barrier_and_a_group_of_one_take_no_time(tmp_path):
    ranks = [
        [talk(0, group=f"{rank}"), talk(1, 0, collective="BARRIER"), work(2, 1.0, 1)]
        for rank in (3, 4)
    ]
    assert played(tmp_path, *ranks).stop.max() == 1.0


def test_a_load_without_a_time_takes_the_link_to_the_host(tmp_path):
    link = POD.host_link
    node = Node(0, "load", "MEM_LOAD_NODE", bytes=1e9)
    expected = link.latency + 1e9 / (link.bandwidth * link.efficiency)
    assert played(tmp_path, [node]).stop.max() == pytest.approx(expected, rel=1e-12)


def test_an_empty_trace_takes_no_time(tmp_path):
    timeline = played(tmp_path, [], [])
    assert timeline.ranks == 2 and len(timeline) == 0
    assert report.as_text(timeline, "pod", 2).startswith("2 ranks on 2 nodes of pod: 0 s")


BROKEN = {
    "dangling": ([[work(3, 1.0, 9)]], ["step.0.et: node 3 (work 3) depends on node 9"]),
    "self": ([[work(3, 1.0, 3)]], ["node 3 (work 3): a cycle"]),
    "cycle": (
        [[], [work(0, 1.0), work(1, 1.0, 3), work(2, 1.0, 1, 0), work(3, 1.0, 2), work(4, 1.0, 3)]],
        ["step.1.et: node", ": a cycle: it depends on node"],
    ),
    "twice": ([[work(1, 1.0), work(1, 2.0)]], ["node 1 (work 1): another node"]),
    "send": (
        [[message(4, "send", 1)], []],
        ["step.0.et: node 4", "rank 1 has no receive of tag 0"],
    ),
    "receive": (
        [[message(4, "recv", 1)], []],
        ["step.0.et: node 4", "rank 1 has no send of tag 0"],
    ),
    "tag": (
        [[message(4, "send", 1, tag=1)], [message(5, "recv", 0, tag=2)]],
        ["step.0.et: node 4", "no receive of tag 1"],
    ),
    "more sends": (
        [[message(4, "send", 1), message(5, "send", 1)], [message(5, "recv", 0)]],
        ["step.0.et: node 5"],
    ),
    "no such rank": ([[message(4, "send", 7)]], ["node 4", "rank 7: expected 0 to 0"]),
    "a rank without": ([[talk(0)], []], ["step.1.et: 0 collectives", "expected 1"]),
    "other kinds": (
        [[talk(0)], [talk(0, collective="ALL_GATHER")]],
        ["step.1.et: node 0", "ALL_GATHER", "expected ALL_REDUCE, as", "step.0.et"],
    ),
    "algorithm": ([[talk(0, algorithm="magic")]] * 2, ["node 0 (talk 0)", "'magic' is not known"]),
    "deadlock": (
        [
            [message(0, "recv", 1), message(1, "send", 1, 0)],
            [message(0, "recv", 0), message(1, "send", 0, 0)],
        ],
        ["node 0 (recv 0): a deadlock"],
    ),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_trace_that_does_not_fit_together_is_refused_with_file_and_node(name, tmp_path):
    ranks, words = BROKEN[name]
    with pytest.raises(SpecError) as error:
        played(tmp_path, *ranks)
    assert all(word in str(error.value) for word in words), str(error.value)


def test_a_cycle_is_reported_at_a_node_of_it(tmp_path):
    ranks, _ = BROKEN["cycle"]
    with pytest.raises(
        SpecError, match=r"node [123] \(work [123]\): a cycle: it depends on node [123],"
    ):
        played(tmp_path, *ranks)


def test_listed_process_groups_are_binding(tmp_path):
    ranks = [[talk(0, group="1")], [talk(0, group="1")], []]
    assert played(tmp_path, *ranks, groups={"1": [0, 1]}).stop.max() > 0
    with pytest.raises(
        SpecError, match=r"step\.2\.et: 0 collectives in process group 1; expected 1"
    ):
        played(tmp_path, *ranks, groups={"1": [0, 1, 2]})
    with pytest.raises(SpecError, match=r"step\.1\.et: node 0 .* rank 1 is not in process group 1"):
        played(tmp_path, *ranks, groups={"1": [0]})


def test_a_machine_that_is_too_small_is_refused(tmp_path):
    small = read_machine({"name": "h100-pod", "nodes": 1})
    with pytest.raises(SpecError, match=r"16 ranks, 8 on each node, need 2 nodes; h100-pod has 1"):
        played(tmp_path, *[[]] * 16, machine=small, devices=0)
    with pytest.raises(SpecError, match="devices_per_node = 9; legal: 1 to 8"):
        played(tmp_path, [], devices=9)


def test_the_timeline_is_one_that_other_tools_read(tmp_path):
    from lib_dlhpc.timeline.analysis import analyze
    from lib_dlhpc.timeline.analysis import report as words
    from lib_dlhpc.timeline.formats import read, write

    timeline = again(run_of("hybrid"), tmp_path / "trace")
    write(timeline, tmp_path / "trace.npz")
    assert np.array_equal(read(tmp_path / "trace.npz").stop, timeline.stop)
    assert "computes" in words.as_text(analyze(timeline))
    assert sorted({timeline.rank.min(), timeline.rank.max()}) == [0, 7]
