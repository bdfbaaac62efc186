"""Networks that are split, played: the papers' bubbles, both fidelities alike, what contention adds."""

import numpy as np
import pytest
from split_runs import EQUAL, GPT, IMAGES, MOE, split

from lib_dlhpc import layout
from lib_dlhpc.parallel import program
from lib_dlhpc.prediction import predict
from lib_dlhpc.simulation import simulate
from lib_dlhpc.simulation.compare import why
from lib_dlhpc.simulation.watchdog import Cancelled
from lib_dlhpc.timeline import breakdown, waits
from lib_dlhpc.timeline.table import COLUMNS

FREE = {"latency": 0.0, "bandwidth": 1e30}


@pytest.mark.parametrize("schedule", ["gpipe", "1f1b"])
@pytest.mark.parametrize(("p", "m"), [(2, 1), (2, 5), (4, 4), (8, 8)])
def test_without_communication_the_bubble_is_the_formula(schedule, p, m):
    """(p-1)/m of the work."""
    run = split(EQUAL, FREE, pipeline=p, microbatches=m, schedule=schedule)
    found = breakdown(simulate(run))
    work = found.per_rank["forward"] + found.per_rank["backward"]
    np.testing.assert_allclose(
        found.per_rank["pipeline bubble"], (p - 1) / m * work, rtol=1e-9, atol=0
    )
    assert found.terms["exposed communication"] <= 1e-9 * found.step_time


@pytest.mark.parametrize(("p", "v", "m"), [(2, 2, 4), (2, 4, 2), (4, 2, 8)])
def test_without_communication_chunks_divide_the_bubble(p, v, m):
    run = split(EQUAL, FREE, pipeline=p, chunks=v, microbatches=m, schedule="interleaved")
    found = breakdown(simulate(run))
    work = found.per_rank["forward"] + found.per_rank["backward"]
    np.testing.assert_allclose(
        found.per_rank["pipeline bubble"], (p - 1) / (v * m) * work, rtol=1e-9, atol=0
    )


@pytest.mark.parametrize("fidelity", ["rounds", "events"])
@pytest.mark.parametrize(
    "ways", [{"tensor": 4}, {"data": 4, "zero": 3}, {"data": 4, "microbatches": 4}], ids=str
)
def test_without_a_pipeline_who_is_quicker_waits_for_the_slowest(ways, fidelity):
    run = split(EQUAL, jitter=0.1, **ways)
    terms = breakdown(simulate(run, fidelity, seed=3, steps=4)).terms
    assert terms["pipeline bubble"] == 0
    assert terms["waiting for the slowest"] > 0.01 * terms["backward"]
    words = " ".join(why(run, fidelity, terms, {name: 0.9 * terms[name] for name in terms}))
    assert "pipeline" not in words and "slowest of 4" in words


def test_what_is_waited_for_in_a_pipeline_is_reported():
    run = split(EQUAL, jitter=0.1, pipeline=4, microbatches=4)
    terms = breakdown(simulate(run, seed=3)).terms
    assert terms["waiting for the slowest"] == 0 < terms["pipeline bubble"]
    reasons = why(run, "rounds", terms, {name: 0.9 * terms[name] + 1e-4 for name in terms})
    assert any("no rank waits for the slowest" in reason for reason in reasons)


def test_one_rank_is_the_slowest_of_nobody():
    run = split(EQUAL, jitter=0.1, microbatches=2)
    terms = breakdown(simulate(run, seed=3)).terms
    reasons = " ".join(why(run, "rounds", terms, {name: 0.9 * terms[name] for name in terms}))
    assert "takes the mean" in reasons and "slowest" not in reasons


def test_what_messages_add_is_exposed_and_the_bubble_stays():
    ways = {"pipeline": 4, "microbatches": 8}
    free, slow = (
        breakdown(simulate(split(EQUAL, links, **ways)))
        for links in (FREE, {"latency": 1e-4, "bandwidth": 1e9})
    )
    np.testing.assert_allclose(
        slow.per_rank["pipeline bubble"], free.per_rank["pipeline bubble"], rtol=1e-9
    )
    late = slow.step_time - free.step_time
    assert late > 0.1 * free.step_time
    np.testing.assert_allclose(slow.per_rank["exposed communication"], late, rtol=1e-6)


SPLITS = [
    (GPT, {"tensor": 4}),
    (GPT, {"tensor": 2, "sequence_parallel": True, "data": 2}),
    (GPT, {"data": 4, "microbatches": 2, "zero": 1}),
    (GPT, {"data": 4, "microbatches": 2, "zero": 2}),
    (GPT, {"data": 4, "microbatches": 2, "zero": 3}),
    (GPT, {"data": 2, "tensor": 2, "recompute": "full"}),
    (GPT, {"data": 2, "microbatches": 2, "offload": "all"}),
    (GPT, {"data": 2, "tensor": 2, "recompute": "selective", "allreduce": "rabenseifner"}),
    (MOE, {"data": 4, "experts": 4}),
    (MOE, {"data": 4, "experts": 2, "tensor": 2, "overlap": False}),
    (GPT, {"context": 2, "data": 2, "microbatches": 2}),
    (GPT, {"context": 4, "context_exchange": "ring", "fused_attention": "auto"}),
    (IMAGES, {"spatial": 2, "data": 2}),
    (IMAGES, {"tensor": 2, "data": 2, "split": "column"}),
]


@pytest.mark.parametrize(("model", "ways"), SPLITS)
def test_both_fidelities_are_one_without_contention(model, ways):
    """Each rank has a node to itself: no message gets in another's way."""
    run = split(model, **ways)
    rounds, events = (breakdown(simulate(run, fidelity)) for fidelity in ("rounds", "events"))
    assert events.step_time == pytest.approx(rounds.step_time, rel=1e-9)
    for name in ("forward", "backward"):
        # Some ranks of a group may have an element less; rounds counts them with the first.
        assert events.terms[name] == pytest.approx(rounds.terms[name], rel=2e-3)


@pytest.mark.parametrize(
    ("model", "ways"),
    [
        (GPT, {"tensor": 4}),
        (GPT, {"data": 2, "tensor": 2, "recompute": "full"}),
        (GPT, {"data": 4, "zero": 1}),
        (GPT, {"tensor": 4, "sequence_parallel": True}),
        (GPT, {"tensor": 4, "sequence_parallel": True, "overlap": False}),
        (IMAGES, {"spatial": 2, "data": 2}),
        (GPT, {"data": 4, "microbatches": 3, "batch": 6}),
    ],
)
def test_it_takes_what_is_predicted(model, ways):
    run = split(model, **ways)
    assert breakdown(simulate(run)).step_time == pytest.approx(predict(run).step_time, rel=1e-9)


def test_weights_on_their_way_get_in_the_way_of_positions():
    """ZeRO 3 gathers over the NIC by which positions go to their experts; rounds gives each a link of its own."""
    run = split(MOE, data=4, experts=2, zero=3)
    rounds, events = (breakdown(simulate(run, fidelity)) for fidelity in ("rounds", "events"))
    assert rounds.step_time < events.step_time < 1.01 * rounds.step_time


def test_groups_in_one_node_get_in_each_others_way():
    """Replicas of different tensor ranks exchange over the same NICs at once."""
    run = split(GPT, tensor=2, data=4, devices_per_node=2, overlap=False)
    alone = split(GPT, tensor=2, data=4, overlap=False).set({"machine.nodes": 64})
    shared, own = (breakdown(simulate(each, "events")) for each in (run, alone))
    assert shared.step_time != own.step_time
    predicted = breakdown(simulate(run, "rounds"))
    assert shared.step_time == pytest.approx(predicted.step_time, rel=0.05)


def test_a_slow_rank_holds_up_its_pipeline_and_its_group():
    run = split(GPT, pipeline=2, data=2, microbatches=4)
    speed = np.ones(4)
    speed[3] = 0.5
    even, slowed = breakdown(simulate(run)), breakdown(simulate(run, speed=speed))
    assert slowed.step_time > 1.4 * even.step_time
    assert slowed.slowest == 3


def test_jitter_is_drawn_from_the_seed():
    run = split(GPT, jitter=0.05, pipeline=2, tensor=2, microbatches=2)
    first, again, other = (simulate(run, seed=seed, steps=2) for seed in (1, 1, 2))
    for column in COLUMNS:
        assert getattr(first, column).tobytes() == getattr(again, column).tobytes()
    assert first.stop.max() != other.stop.max()


@pytest.mark.parametrize("fidelity", ["rounds", "events"])
def test_the_timeline_holds_together(fidelity):
    """A rank does one thing at a time without a gap, through all steps, and the causes add up."""
    run = split(GPT, pipeline=2, tensor=2, data=2, microbatches=3, batch=6)
    timeline = simulate(
        run, fidelity, steps=2, checkpoint=lambda step: 1e-3, input=lambda s, r: 1.0
    )
    for rank in range(8):
        mine = timeline.select(timeline.where("compute") & (timeline.rank == rank))
        assert mine.start[0] == 0
        np.testing.assert_allclose(mine.start[1:], mine.stop[:-1], atol=1e-12)
    found = breakdown(timeline)
    assert found.steps == 2
    assert sum(found.terms.values()) == pytest.approx(found.step_time)
    assert found.terms["checkpoint"] == pytest.approx(1e-3) and found.terms["input stall"] > 0.9
    assert (waits(timeline) > 0).all()
    sent = timeline.where("communication")
    assert {"forward", "bucket", "tensor"} <= {name.split()[0] for name in timeline.names}
    assert timeline.bytes[sent].min() > 0


def test_messages_are_recorded_and_a_simulation_can_be_stopped():
    run = split(GPT, pipeline=2, data=2, microbatches=4)
    timeline = simulate(run, "events", messages=20)
    assert (timeline.peer >= 0).sum() == 20
    with pytest.raises(Cancelled):
        simulate(split(GPT, tensor=8, data=2), "events", steps=4, progress=lambda *_: False)


def test_a_tied_table_is_swapped_between_its_stages():
    run = split(GPT | {"vocabulary": 20000}, pipeline=2, microbatches=2)
    assert layout.parts(run, 0)[0].shared
    link, nics = run.machine.inter_node, run.machine.nics
    swap = 20000 * 64 * 4 / (link.bandwidth * link.efficiency * nics)
    for fidelity in ("rounds", "events"):
        found = breakdown(simulate(run, fidelity))
        assert found.per_rank["exposed communication"].min() > swap


@pytest.mark.parametrize("rate", [2e8, 1e9, 4e9, 2e10, 1e15])
def test_what_the_update_moves_has_the_rest_of_the_last_backward_pass_as_well(rate):
    run = split(GPT, offload="all", batch=64, optimizer="adam")
    linked = run.set({"machine.host_link": {"latency": 0.0, "bandwidth": rate}})
    for fidelity in ("rounds", "events"):
        found = breakdown(simulate(linked, fidelity))
        assert found.step_time == pytest.approx(predict(linked).step_time, rel=1e-9)


def test_a_slow_way_to_what_is_offloaded_shows():
    run = split(GPT, offload="activations", batch=64)
    slow = run.set({"machine.host_link": {"latency": 0.0, "bandwidth": 1e9}})
    quick = run.set({"machine.host_link": {"latency": 0.0, "bandwidth": 1e15}})
    for fidelity in ("rounds", "events"):
        waited, hidden = (breakdown(simulate(each, fidelity)) for each in (slow, quick))
        assert hidden.terms["exposed communication"] < 1e-9
        assert waited.terms["exposed communication"] > 0.1 * waited.step_time
        assert waited.step_time == pytest.approx(predict(slow).step_time, rel=1e-9)


SLOW = {"latency": 1e-5, "bandwidth": 2e9}


@pytest.mark.parametrize("link", [FREE, {"latency": 1e-6, "bandwidth": 1e11}, SLOW], ids=str)
@pytest.mark.parametrize(
    ("schedule", "p", "m", "v"),
    [
        ("gpipe", 2, 1, 1),
        ("gpipe", 4, 8, 1),
        ("gpipe", 3, 5, 1),
        ("1f1b", 2, 1, 1),
        ("1f1b", 4, 8, 1),
        ("1f1b", 8, 3, 1),
        ("interleaved", 4, 8, 2),
        ("interleaved", 2, 4, 3),
    ],
)
def test_a_rank_sends_one_message_after_another(schedule, p, m, v, link):
    """Rounds is never below the time that a port is busy, and is what is predicted."""
    ways = {"schedule": schedule, "pipeline": p, "microbatches": m, "chunks": v, "batch": 16 * m}
    run = split({"name": "resnet50"}, link, **ways)
    timeline = simulate(run)
    step, predicted = breakdown(timeline).step_time, float(predict(run).step_time)
    assert step == pytest.approx(predicted, rel=1e-9)
    nic = link["bandwidth"] * run.machine.nics
    parts = [layout.parts(run, rank) for rank in range(p)]
    sizes = [[4 * 16 * part.elements(part.sends) for part in rank] for rank in parts]
    for rank in range(p):
        # Forward what each chunk makes goes to the next rank; the gradients of its inputs go to the rank before.
        before = sizes[rank - 1][: v - (rank == 0)]
        assert step >= m * (sum(sizes[rank]) + sum(before)) / nic * (1 - 1e-9)


@pytest.mark.parametrize(
    ("schedule", "p", "v"), [("1f1b", 4, 1), ("interleaved", 4, 2), ("interleaved", 2, 3)]
)
@pytest.mark.parametrize("bandwidth", [2e8, 2e9])
def test_ports_that_stages_share_are_shared_in_rounds_too(schedule, p, v, bandwidth):
    """Within 10% of events: activations and gradients leave a rank by one port, one after another."""
    ways = {"schedule": schedule, "pipeline": p, "chunks": v, "microbatches": 8, "batch": 256}
    run = split({"name": "resnet50"}, {"latency": 1e-5, "bandwidth": bandwidth}, **ways)
    rounds, events = (
        breakdown(simulate(run, fidelity)).step_time for fidelity in ("rounds", "events")
    )
    assert rounds == pytest.approx(events, rel=0.1)


@pytest.mark.parametrize(("p", "m"), [(2, 4), (4, 8), (4, 16), (8, 16)])
@pytest.mark.parametrize(("bandwidth", "off"), [(2e8, 0.2), (1e10, 0.01), (1e11, 0.01)])
def test_microbatches_from_both_ends_take_as_long_in_rounds_as_with_events(p, m, bandwidth, off):
    """Within 1% where links are faster than stages; else events find that both neighbors send to a rank at once."""
    link = {"latency": 1e-5, "bandwidth": bandwidth}
    ways = {"schedule": "dualpipe", "pipeline": p, "microbatches": m, "batch": 256}
    run = split({"name": "resnet50"}, link, **ways)
    rounds, events = (
        breakdown(simulate(run, fidelity)).step_time for fidelity in ("rounds", "events")
    )
    assert rounds == pytest.approx(float(predict(run).step_time), rel=1e-9)
    assert (1 - off) * events <= rounds <= events * (1 + 1e-9)


@pytest.mark.parametrize(
    ("p", "tensor", "nodes", "topology", "low", "high"),
    [
        (2, 1, 1, "fat-tree", 1e-4, 1e-4),  # nothing leaves the node: what is left is the addition
        (4, 2, 1, "fat-tree", 1e-4, 1e-4),
        (2, 2, 2, "fat-tree", 0.002, 0.0),
        (4, 2, 2, "fat-tree", 0.0, 0.02),
        (8, 1, 2, "fat-tree", 0.0, 0.02),
        (16, 1, 2, "fat-tree", 0.0, 0.04),
        (8, 1, 2, "rails", 0.002, 0.0),
    ],
)
def test_copies_of_stages_share_the_nics_of_their_node(p, tensor, nodes, topology, low, high):
    """As with events, or slower by at most 4%: stages that are through early have the NICs to themselves."""
    run = copies(p, tensor, nodes, topology)
    if nodes == 1:  # each rank has its own positions: no gather beside the messages between stages
        run = run.set({"strategy.sequence_parallel": tensor > 1})
    rounds, events = both(run)
    assert rounds == pytest.approx(float(predict(run).step_time), rel=1e-9)
    assert (1 - low) * events <= rounds <= (1 + high) * events


@pytest.mark.parametrize(("p", "tensor", "nodes"), [(16, 1, 2), (8, 2, 2), (8, 2, 4)])
@pytest.mark.parametrize(
    ("topology", "leaf", "over"),
    [("dragonfly", 2, 4.0), ("fat-tree", 1, 4.0), ("fat-tree", 2, 4.0), ("torus", 1, 1.0)],
)
def test_copies_of_stages_share_the_links_between_switches(p, tensor, nodes, topology, leaf, over):
    """Within 5% of events; no node sends to one beyond the last."""
    switches = {"machine.nodes_per_switch": leaf, "machine.oversubscription": over}
    run = copies(p, tensor, nodes, topology).set(switches)
    events = breakdown(simulate(run, "events")).step_time
    assert float(predict(run).step_time) == pytest.approx(events, rel=0.05)


def test_slices_of_messages_share_a_port_with_their_gather():
    """In events alone, so rounds are faster by a thousandth; not where the link inside a node costs no time."""
    run = copies(4, 2, 1, "fat-tree")
    rounds, events = both(run)
    assert (1 - 1e-3) * events <= rounds < (1 - 1e-4) * events
    rounds, events = both(run.set({"machine.intra_node.bandwidth": 1e15}))
    assert rounds == pytest.approx(events, rel=1e-6)


def copies(p, tensor, nodes, topology):
    """Return a run with DualPipe, whose stages are held twice."""
    large = GPT | {"layers": 16, "hidden": 2048, "sequence": 512, "vocabulary": 4096}
    node = min(8, p * tensor)
    ways = {"pipeline": p, "tensor": tensor, "data": nodes * node // (p * tensor)}
    ways |= {"microbatches": 2 * p, "batch": 2 * p * ways["data"], "precision": "bf16"}
    run = split(large, schedule="dualpipe", devices_per_node=node, **ways)
    assert int(run.strategy.nodes) == nodes
    return run.set({"machine.topology": topology})


def both(run):
    """Return the time of a step in rounds and in events."""
    return (breakdown(simulate(run, fidelity)).step_time for fidelity in ("rounds", "events"))


@pytest.mark.parametrize("fidelity", ["rounds", "events"])
@pytest.mark.parametrize(("p", "m"), [(2, 4), (4, 8), (4, 14), (8, 16)])
def test_the_bubble_of_dualpipe_is_the_papers(p, m, fidelity):
    """Equal stages and free messages: (p/2 - 1)(F&B + B - 3W), DeepSeek-AI 2024, table 2, of every rank."""
    ways = {"pipeline": p, "microbatches": m, "batch": 1024 * m, "schedule": "dualpipe"}
    run = split(EQUAL, FREE, **ways)
    step, found = predict(run), breakdown(simulate(run, fidelity))
    chunk = program(run).stages[0][0]
    f, i, w = (
        float(block.alone(1.0)[0]) for block in (chunk.forward, chunk.backward, chunk.weights)
    )
    assert w <= f and f == pytest.approx(i, rel=1e-9)
    paper = (p / 2 - 1) * (f + 2 * (i + w) - 3 * w)
    assert float(step.pipeline_bubble) == pytest.approx(paper, rel=1e-9, abs=1e-15)
    assert found.terms["pipeline bubble"] == pytest.approx(paper, rel=1e-4, abs=1e-9)


@pytest.mark.parametrize("fidelity", ["rounds", "events"])
def test_messages_of_two_ranks_follow_one_another(fidelity):
    """GPipe's first stage sends quicker than the link carries: the last message waits for all others."""
    run = split({"name": "resnet50"}, SLOW, pipeline=2, microbatches=8, schedule="gpipe", batch=128)
    timeline = simulate(run, fidelity, messages=1000 * (fidelity == "events"))
    sent = timeline.where("communication") & (timeline.rank == 0)
    sent &= np.char.startswith(np.array(timeline.names)[timeline.name], "activation")
    arrived = np.sort(timeline.stop[sent])
    size = timeline.bytes[sent].max() / (SLOW["bandwidth"] * run.machine.nics)
    assert len(arrived) == 8
    assert (np.diff(arrived) >= size * (1 - 1e-9)).all()


def test_where_links_are_the_limit_1f1b_is_quicker_than_gpipe():
    """Its activations and gradients move at the same time, in opposite directions."""
    ways = {"pipeline": 4, "microbatches": 8, "batch": 256}
    links = {"latency": 1e-5, "bandwidth": 2e8}
    gpipe, one = (
        breakdown(simulate(split({"name": "resnet50"}, links, schedule=name, **ways))).step_time
        for name in ("gpipe", "1f1b")
    )
    assert one < gpipe


ZERO = [
    {"zero": zero, "bucket": bucket, "overlap": overlap}
    for zero in (1, 2, 3)
    for bucket in (1e3, 25e6)
    for overlap in (True, False)
]


@pytest.mark.parametrize("link", [{"latency": 1e-6, "bandwidth": 1e9}, SLOW], ids=str)
@pytest.mark.parametrize("ways", ZERO, ids=str)
def test_zero_takes_as_long_in_all_three(ways, link):
    """Weights are gathered two layers ahead at most, in the prediction as in rounds and events."""
    run = split(GPT, link, data=4, microbatches=2, **ways)
    rounds, events = (
        breakdown(simulate(run, fidelity)).step_time for fidelity in ("rounds", "events")
    )
    assert rounds == pytest.approx(predict(run).step_time, rel=1e-9)
    # Tensors that do not cut evenly make a block of some rounds an element longer.
    assert events == pytest.approx(rounds, rel=2e-3)
