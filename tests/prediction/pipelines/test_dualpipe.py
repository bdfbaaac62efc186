"""DualPipe predicted: the bubble, weights and activations of the paper's table, and what is legal with it."""

import pytest
from split_runs import EQUAL, GPT, split

from lib_dlhpc.errors import SpecError
from lib_dlhpc.parallel import pipeline, program, step
from lib_dlhpc.prediction import predict
from lib_dlhpc.prediction.memory.rank_memory import moments
from lib_dlhpc.prediction.pipelines.bubbles import PassTimes, bubbles
from lib_dlhpc.prediction.pipelines.pipelined import explain_bubble
from lib_dlhpc.prediction.reports.explain_split import explain_split
from lib_dlhpc.program import PairAllreduce
from lib_dlhpc.spec.experiment import read_experiment
from lib_dlhpc.training.check import check

FREE = {"latency": 0.0, "bandwidth": 1e30}
DEEPSEEK = {
    "model": "deepseek-v3",
    "machine": "h800-pod",
    "dataset": "webtext",
    "strategy": {
        "nodes": 256,
        "experts": 64,
        "pipeline": 16,
        "batch": 120,
        "microbatches": 120,
        "precision": "bf16",
        "optimizer": "adam",
        "schedule": "dualpipe",
        "zero": 1,
    },
}
SCHEDULES = {"1F1B": "1f1b", "ZB-H1": "zb-h1", "DualPipe": "dualpipe"}


def run_of(schedule, p, m, model=EQUAL, **ways):
    return split(model, FREE, pipeline=p, microbatches=m, batch=64 * m, schedule=schedule, **ways)


@pytest.mark.parametrize("p", [2, 4, 8])
def test_the_idle_time_of_the_paper(p):
    """DeepSeek-AI 2024, table 2, with F = W and B = 2W."""
    first = program(run_of("zb-h1", p, 2 * p)).stages[0][0]
    f, i, w = (float(each.alone(1.0)[0]) for each in (first.forward, first.backward, first.weights))
    assert f == i == w
    for name, paper in bubbles(p, PassTimes(f, i + w, w)).items():
        step = predict(run_of(SCHEDULES[name], p, 2 * p))
        assert float(step.pipeline_bubble) == pytest.approx(paper.idle, rel=1e-9, abs=1e-15), name


@pytest.mark.parametrize("p", [4, 8])
def test_the_memory_of_the_paper(p):
    """Of ranks whose stages are alike: weights once or twice, activations of p microbatches, or p + 1.

    Rank 1 of a 1F1B pipeline holds one less than rank 0, whose stage stores no message. In ZB-H1 what waits for weight
    gradients keeps gradients beside activations, which the paper does not count.
    """
    held = {}
    for name, schedule in SCHEDULES.items():
        every = moments(run_of(schedule, p, 2 * p))
        held[name] = next(each.terms for each in every if each.rank == 1 and "back" in each.when)
    each = held["1F1B"]["activations"] / (p - 1)
    for name, paper in bubbles(p, PassTimes(1.0, 2.0, 1.0)).items():
        for term in ("weights", "gradients", "optimizer state"):
            assert held[name][term] == paper.weights * held["1F1B"][term] > 0, (name, term)
        kept = held[name]["activations"] / each + (name == "1F1B") - (name == "ZB-H1")
        assert kept == pytest.approx(paper.activations), name


def test_a_moment_says_how_many_activations_are_stored():
    (_, backward, _, *_) = moments(run_of("gpipe", 4, 1))
    assert backward.when.endswith("with the activations of 1 microbatch stored")
    chunked = run_of("interleaved", 4, 8).set({"strategy.chunks": 2})
    assert "of 11 microbatches, one chunk each, stored" in moments(chunked)[1].when


def test_the_batch_comes_in_at_both_ends():
    run = run_of("dualpipe", 4, 8)
    backward = [moment for moment in moments(run) if "backward" in moment.when]
    assert all(
        "with the activations of 5 microbatches stored" in moment.when for moment in backward
    )
    reads = [moment.terms["input batch"] for moment in backward]
    assert reads[0] == reads[3] > 0 == reads[1] == reads[2]
    (whole, *_) = [moment.terms["input batch"] for moment in moments(run_of("1f1b", 4, 8))]
    assert reads[0] == whole / 2


@pytest.mark.parametrize("zero", [0, 1, 3])
def test_both_copies_sum_their_gradients(zero):
    """Ranks r and p - 1 - r have the same two stages; a rank has the gradients of its shard."""
    run = run_of("dualpipe", 4, 8, GPT, data=2, zero=zero)
    swaps = [
        row for row in program(run).end if any(isinstance(each, PairAllreduce) for each in row)
    ]
    places = [next(each.places for each in row if each) for row in swaps]
    assert sorted(places) == [(0, 3), (1, 2)]  # the tied table is in the first of them
    sent = sum(next(each.bytes for each in row if each) for row in swaps)
    tables = GPT["vocabulary"] * GPT["hidden"]  # counted in both stages that read it
    whole = 4 * (run.model.parameters + tables)
    assert sent == pytest.approx(whole / (2 if zero else 1))


def swaps_of(run):
    """Return each pair of places with what it swaps."""
    rows = [[each for each in row if isinstance(each, PairAllreduce)] for row in program(run).end]
    return {row[0].places: row[0] for row in rows if row}


@pytest.mark.parametrize(
    ("p", "tensor", "node", "shared"),
    [
        (8, 1, 4, 4),  # every rank of a node has its copy on the other
        (4, 2, 4, 4),
        (2, 4, 4, 4),
        (2, 1, 1, 1),
        (8, 1, 8, 0),  # one node
        (6, 1, 2, 2),
    ],
)
def test_copies_swap_at_once_and_share_the_nics_that_they_leave_by(p, tensor, node, shared):
    model = EQUAL | {"layers": EQUAL["layers"][:6]} if p == 6 else EQUAL
    ways = {"pipeline": p, "tensor": tensor, "microbatches": 16, "schedule": "dualpipe"}
    run = split(model, devices_per_node=node, batch=16, **ways)
    inside, link = run.machine.intra_node, run.machine.inter_node
    for (place, other), swap in swaps_of(run).items():
        leaves = place * tensor // node != other * tensor // node
        assert leaves == bool(shared) or (p, place) == (6, 2)  # the two in the middle
        rate = link.bandwidth * link.efficiency * run.machine.nics / max(shared, 1)
        if not leaves:
            rate = inside.bandwidth * inside.efficiency
        assert swap.cost.bandwidth == pytest.approx(swap.bytes / rate)
        assert swap.cost.latency == (link if leaves else inside).latency


def test_a_copy_with_less_to_send_leaves_the_nics_to_the_others():
    """Of two ranks of a node the one that sends less is through after twice that, the other after the sum of both."""
    layers = [{"kind": "dense", "features": 64 if k < 4 else 128} for k in range(8)]
    run = split(
        EQUAL | {"layers": layers},
        devices_per_node=2,
        pipeline=4,
        microbatches=8,
        schedule="dualpipe",
    )
    less, most = sorted(swaps_of(run).values(), key=lambda each: each.bytes)
    assert less.bytes < most.bytes
    link = run.machine.inter_node
    rate = link.bandwidth * link.efficiency * run.machine.nics
    assert less.cost.bandwidth == pytest.approx(2 * less.bytes / rate)
    assert most.cost.bandwidth == pytest.approx((less.bytes + most.bytes) / rate)


def test_what_arrives_is_added():
    """Reading both addends and writing the sum: three times the bytes."""
    run = split(GPT, pipeline=2, microbatches=4, schedule="dualpipe")
    (swap,) = swaps_of(run).values()
    added = 3 * swap.bytes / run.machine.device.memory_bandwidth
    assert swap.cost.reduction == pytest.approx(added, rel=1e-12) != 0


def test_the_explanation_says_how_overlapping_passes_are_priced():
    words = explain_bubble(predict(run_of("dualpipe", 4, 8)))
    assert "(p/2-1)(F&B + B - 3W)" in words.formula and "F&B = F + B" in words.formula
    assert "2412.19437" in words.source
    assert "free messages and W <= F = B - W" in words.assumes
    assert "F is within a fifth of B - W and W is 0.4 to 0.5 of B" in words.assumes
    assert (
        "With other times the bubble can be a third shorter or several times as long."
        in words.assumes
    )
    assert ("stages of a rank", "2", "one of each copy of the network") in words.inputs
    data = next(
        each
        for each in explain_split(predict(run_of("dualpipe", 4, 8)))
        if each.name == "data messages"
    )
    assert any(name == "copies of each stage" for name, _, _ in data.inputs)


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        (
            {"strategy.pipeline": 3},
            "strategy.pipeline = 3: .*'dualpipe'.*legal: 1, .*or even numbers",
        ),
        (
            {"strategy.microbatches": 9},
            "strategy.microbatches = 9: .*'dualpipe'.*legal: even numbers from .* = 8",
        ),
        ({"strategy.microbatches": 6}, "strategy.microbatches = 6: .*legal: even numbers from"),
        ({"strategy.chunks": 2}, "strategy.chunks = 2: .*'dualpipe' the legal value is 1"),
        ({"strategy.offload": "all"}, "strategy.schedule = 'dualpipe' there are two"),
    ],
)
def test_what_is_not_legal(changes, says):
    with pytest.raises(SpecError, match=says):
        run_of("dualpipe", 4, 8, GPT).set({"strategy.nodes": 12, **changes})


def test_it_is_not_run():
    with pytest.raises(
        SpecError,
        match="'dualpipe': it is predicted and simulated, not run; schedules that run: 'gpipe', '1f1b',"
        " 'interleaved', 'zb-h1'",
    ):
        check(run_of("dualpipe", 2, 4, GPT).set({"strategy.precision": "fp32"}))


def test_without_a_pipeline_there_are_no_two_ends():
    """One rank is legal, as the error for odd numbers says."""
    alone = split(GPT, microbatches=4, schedule="dualpipe")
    other = split(GPT, microbatches=4)
    assert float(predict(alone).step_time) == float(predict(other).step_time)
    assert float(predict(alone).memory_total) == float(predict(other).memory_total)


@pytest.mark.parametrize(
    ("precision", "recompute", "overlap", "seconds", "exposed", "memory", "fits"),
    [
        ("bf16", "full", True, 40.7, 13.1, 98.0, False),
        ("bf16", "full", False, 52.4, 25.1, 98.0, False),
        ("bf16", "none", True, 24.3, 4.8, 148.2, False),
        ("bf16", "none", False, 36.6, 16.8, 148.2, False),
        ("bf16", "light", True, 24.7, 4.8, 97.5, False),
        ("fp8", "light", True, 23.2, 7.5, 85.3, True),
        ("fp8 sent", "light", True, 18.9, 3.9, 85.3, True),
        ("fp8 sent by-node", "light", True, 15.2, 0.96, 85.3, True),
    ],
)
def test_what_the_documentation_says_of_deepseeks_layout(
    precision, recompute, overlap, seconds, exposed, memory, fits, monkeypatch
):
    """DeepSeek-AI 2024, section 3.2: 16 stages, 64 expert ranks in 8 nodes, ZeRO 1; without overlap as before it."""
    if not overlap:
        for module in (step, pipeline):
            monkeypatch.setattr(module, "overlaps_passes", lambda experiment: False)
    run = read_experiment(DEEPSEEK).set({"strategy.recompute": recompute})
    name, *how = precision.split()
    run = run.set({"strategy.precision": name, "strategy.expert_wire": "fp8" if how else "same"})
    run = run.set({"strategy.expert_exchange": "by-node" if "by-node" in how else "direct"})
    found = predict(run)
    assert float(found.step_time) == pytest.approx(seconds, abs=0.05)
    assert float(found.exposed["experts"]) == pytest.approx(exposed, abs=0.05)
    assert float(found.memory_total) == pytest.approx(memory * 1e9, abs=0.1e9)
    assert bool(found.fits) == fits
