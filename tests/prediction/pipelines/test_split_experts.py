"""Laws of experts in zero-bubble pipelines: their backward pass is input gradients with all messages, then weights'."""

import pytest
from split_runs import MOE, split

from lib_dlhpc.costs.stored_activations import waiting_bytes
from lib_dlhpc.layers.experts import Experts
from lib_dlhpc.layout import parts
from lib_dlhpc.parallel import program
from lib_dlhpc.prediction import predict
from lib_dlhpc.prediction.memory.rank_memory import peak_of
from lib_dlhpc.prediction.pipelines.bubbles import PassTimes, bubbles
from lib_dlhpc.program import Compute
from lib_dlhpc.simulation import simulate
from lib_dlhpc.spec.experiment import Experiment
from lib_dlhpc.timeline import breakdown

FREE = {"latency": 0.0, "bandwidth": 1e30}
GATED = {
    "family": "decoder",
    "layers": 4,
    "hidden": 64,
    "sequence": 32,
    "vocabulary": 64,
    "attention": {"heads": 4},
    "feed_forward": {"features": 64},
    "experts": {"experts": 8, "chosen": 2, "features": 48},
}
POSITIONS, WIDTH, INNER, CHOSEN = 64, 256, 512, 2
ROWS = POSITIONS * CHOSEN  # of a sample


def equal_blocks(many, kind="experts", inner=INNER):
    """Blocks of a router and experts alone, all alike."""
    layers, last = [], "input"
    for number in range(many):
        router, name = f"router{number}", f"block{number}"
        layers.append({"kind": "dense", "features": 8, "bias": False, "name": router})
        options = {"experts": 8, "chosen": CHOSEN, "features": inner, "inputs": [last, router]}
        layers.append({"kind": kind, "name": name, **options})
        last = name
    return {"family": "sequential", "input": [POSITIONS, WIDTH], "layers": layers}


def run_of(schedule, p, m, model=None, links=FREE, **ways):
    ways = {"pipeline": p, "microbatches": m, "batch": 16 * m, "schedule": schedule} | ways
    return split(model or equal_blocks(p), links, **ways)


def prices_of(run):
    chunk = program(run).stages[0][0]
    return chunk.backward.prices[0]


@pytest.mark.parametrize("precision", ["bf16", "fp8"])
@pytest.mark.parametrize("model", [MOE, GATED])
def test_both_parts_are_the_whole(model, precision):
    """In FLOP and s; the products of both cost the same, and copies of rows and the activation are in the first."""
    run = run_of("zb-h1", 2, 4, model, None, precision=precision)
    prices = prices_of(run)
    model, device = prices.model, run.machine.device
    ones = [at for at, layer in enumerate(model.layers) if "experts" in layer.kind]
    assert ones
    for at in ones:
        layer = model.layers[at]
        whole, first, second = (
            prices.work(Compute(at, phase)) for phase in ("backward", "input_grad", "weight_grad")
        )
        assert first[0] == second[0] == whole[0] / 2 == 16 * layer.forward_flop
        assert first[1] + second[1] == pytest.approx(whole[1])
        assert prices.input_grad[at] + prices.weight_grad[at] == pytest.approx(prices.backward[at])
        moved = 16 * layer.traits.beside(layer, 2)[1]
        moved /= device.memory_bandwidth * (float(device.streaming) or 1.0)
        found = prices.input_grad[at] - prices.weight_grad[at]
        assert found == pytest.approx(moved, rel=1e-9) != 0


@pytest.mark.parametrize("kind", ["experts", "gated_experts"])
@pytest.mark.parametrize("p", [2, 4, 8])
def test_the_bubble_of_experts_is_the_papers(kind, p):
    """(p - 1)(F + B - W), with B the input gradients alone: Qi et al. 2024, section 2.3."""
    run = run_of("zb-h1", p, 2 * p, equal_blocks(p, kind))
    first = program(run).stages[0][0]
    f, i, w = (float(each.alone(1.0)[0]) for each in (first.forward, first.backward, first.weights))
    assert w > 0.3 * (i + w)  # experts dominate, and the router is split anyway
    paper = bubbles(p, PassTimes(f, i + w, w))["ZB-H1"].idle
    found = predict(run)
    assert float(found.pipeline_bubble) == pytest.approx(paper, rel=1e-9)
    assert paper == pytest.approx((p - 1) * (f + i - w))
    other = predict(run.set({"strategy.schedule": "1f1b"}))
    assert float(other.pipeline_bubble) == pytest.approx((p - 1) * (f + i + w), rel=1e-9)


def test_experts_that_are_not_split_miss_the_papers_bubble(monkeypatch):
    """By what the weight gradients of experts could have filled: the law above would see it."""
    right = float(predict(run_of("zb-h1", 4, 8)).pipeline_bubble)
    monkeypatch.setattr(Experts, "splits_backward", False)
    # Another network, as what is known of one is kept.
    late = float(predict(run_of("zb-h1", 4, 8, equal_blocks(4, inner=INNER + 8))).pipeline_bubble)
    assert late > 1.5 * right


@pytest.mark.parametrize("fidelity", ["rounds", "events"])
@pytest.mark.parametrize(
    ("schedule", "ways"),
    [
        ("zb-h1", {}),
        ("zb-h1", {"data": 2, "experts": 2, "zero": 3}),
        ("dualpipe", {"data": 2, "experts": 2}),
    ],
)
def test_simulated_as_predicted(schedule, ways, fidelity):
    run = run_of(schedule, 2, 4, GATED, None, **ways)
    found, expected = breakdown(simulate(run, fidelity)), float(predict(run).step_time)
    assert found.step_time == pytest.approx(expected, rel=0.05 if fidelity == "events" else 1e-6)


def operands(layer):
    """Elements of rows and activations, and of the gradients of what all products of the networks give."""
    inward = 2 if layer.kind == "gated_experts" else 1
    return ROWS * (2 * WIDTH + (1 + inward) * layer.attributes["features"])


@pytest.mark.parametrize("kind", ["experts", "gated_experts"])
@pytest.mark.parametrize(("precision", "size"), [("fp32", 4), ("bf16", 2)])
def test_what_weight_gradients_need_stays_stored(kind, precision, size):
    """On the last rank of a ZB-H1 pipeline one microbatch is kept, and p - 1 wait for their weight gradients."""
    p = 4
    run = run_of("zb-h1", p, 2 * p, equal_blocks(p, kind), None, precision=precision)
    held, before = (
        peak_of(each, p - 1).terms["activations"] / 16
        for each in (run, run.set({"strategy.schedule": "1f1b"}))
    )
    router = POSITIONS * (WIDTH + 8)
    found = (held - before) / (p - 1)
    assert found == size * (operands(run.model.layers[-1]) + router)


def test_operands_in_fp8_wait_in_fp8():
    wide, narrow = (
        parts(run_of("zb-h1", 2, 4, GATED, None, precision=precision), 0)[0]
        for precision in ("bf16", "fp8")
    )
    before, after = (waiting_bytes(part, 2) for part in (wide, narrow))
    experts = sum(
        sum(layer.traits.operands(layer))
        for layer in narrow.model.layers
        if layer.narrow and layer.kind == "gated_experts"
    )
    assert before - after >= experts > 0.25 * before


@pytest.mark.parametrize("zero", [2, 3])
def test_gradients_of_experts_are_not_early(zero):
    """Only norms, tables and positions have theirs before the buckets of weight gradients; these wait unsharded."""
    ways = {"data": 4, "experts": 2, "zero": zero, "precision": "fp32"}
    run = run_of("zb-h1", 2, 4, GATED, None, **ways)
    held, before = (
        peak_of(each, 0).terms["gradients"]
        for each in (run, run.set({"strategy.schedule": "1f1b"}))
    )
    early = [each for each in parts(run, 0)[0].model.layers if not each.traits.splits_backward]
    assert held - before == 4 * sum(each.parameters for each in early) > 0
    assert not any("experts" in each.kind for each in early)


@pytest.mark.parametrize("recompute", ["none", "light", "full"])
def test_overlapped_passes_leave_the_operands_of_a_leg_at_most(recompute):
    """What waits at any input gradient of DualPipe's overlapped passes is of layers between the same two exchanges."""
    ways = {"data": 2, "experts": 2, "recompute": recompute}
    run = run_of("dualpipe", 2, 4, GATED, None, **ways)
    block = program(run).stages[0][0].overlapped
    layers, waits = block.prices[0].parts[1].model.layers, set()
    for each in block.variants[0].instructions:
        index = each.layer - block.ahead if isinstance(each, Compute) else -1
        if index < 0:
            continue
        if each.phase == "weight_grad":
            waits.remove(index)
        elif each.phase != "forward":
            for late in waits:
                assert not any(layer.traits.own_operands for layer in layers[index : late + 1])
            waits |= {index} if each.phase == "input_grad" else set()
    assert not waits


@pytest.mark.parametrize(
    ("schedule", "recompute", "bubble", "memory"),
    [
        ("zb-h1", "none", 0.24, 114),
        ("1f1b", "none", 0.49, 108),
        ("zb-h1", "full", 0.38, 114),
        ("1f1b", "full", 0.63, 78),
    ],
)
def test_what_the_documentation_says_of_mixtral(schedule, recompute, bubble, memory):
    """Mixtral 8x7B in 8 stages on one node, 16 microbatches of a sequence each."""
    how = {"precision": "bf16", "pipeline": 8, "microbatches": 16, "batch": 16}
    how |= {"schedule": schedule, "recompute": recompute}
    run = Experiment(model="mixtral-8x7b", machine="h100-pod")
    found = predict(run.set({f"strategy.{name}": value for name, value in how.items()}))
    assert float(found.pipeline_bubble) == pytest.approx(bubble, abs=0.005)
    assert float(found.memory_total) == pytest.approx(memory * 1e9, abs=0.5e9)
