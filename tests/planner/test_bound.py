"""A bound is never above what predict says, of the step, of the memory and of the energy."""

import random
from itertools import product

import numpy as np
import pytest

from lib_dlhpc.errors import SpecError
from lib_dlhpc.planner import plan
from lib_dlhpc.planner.block_bound import least_rounds
from lib_dlhpc.planner.bound import bound
from lib_dlhpc.planner.result import value
from lib_dlhpc.planner.search_space import space
from lib_dlhpc.prediction import predict
from lib_dlhpc.spec.experiment import Experiment

GPT = {"family": "gpt", "layers": 6, "hidden": 64, "heads": 4, "sequence": 32, "vocabulary": 64}
DECODER = {
    "family": "decoder",
    "layers": 6,
    "hidden": 256,
    "sequence": 64,
    "vocabulary": 64,
    "attention": {"heads": 4},
    "feed_forward": {"features": 512},
}
MIXTURE = {**DECODER, "experts": {"experts": 16, "chosen": 4, "features": 512, "groups": 8}}
LATENT = {"heads": 4, "latent": 64, "plain": 32, "rotated": 16, "values": 32, "queries": 96}
BOTH = {"recompute": ["none", "light"], "expert_exchange": ["direct", "by-device", "by-node"]}
RUNS = {
    "gpt": (
        {**GPT},
        "h100-pod",
        {"nodes": 2, "batch": 3, "precision": "bf16", "optimizer": "adam"},
        {},
    ),
    "uplinks": (
        {**GPT, "hidden": 1024},
        {"name": "h100-pod", "nodes_per_switch": 2, "oversubscription": 8.0},
        {"nodes": 4, "devices_per_node": 2, "batch": 4, "precision": "bf16"},
        {"schedule": ["1f1b", "dualpipe"]},
    ),
    "wide": ({**GPT, "hidden": 4096, "layers": 5}, "selene", {"batch": 8, "precision": "fp16"}, {}),
    "fp8": (
        {**GPT, "hidden": 1024},
        "h100-pod",
        {"nodes": 2, "batch": 4, "precision": "fp8", "optimizer": "adam"},
        {"zero": [0, 1, 3], "precision": ["fp8", "bf16"]},
    ),
    "fp8 alone": ({**GPT, "hidden": 1024}, "h100-pod", {"batch": 4, "precision": "fp8"}, {}),
    "jitter": ({**GPT}, {"name": "selene", "jitter": 0.1}, {"batch": 4, "overlap": False}, {}),
    "context": ({**GPT}, "h100-pod", {"batch": 4, "optimizer": "adam"}, {"context": [1, 2, 4]}),
    "pieces": ({**GPT, "hidden": 1024}, "selene", {"batch": 4}, {"tensor_pieces": [1, 2, 8]}),
    "PyTorch's pipelines": (
        *({**GPT}, "selene"),
        {
            "nodes": 2,
            "batch": 16,
            "pipeline_runtime": "pytorch",
            "wire": "fp32",
            "precision": "bf16",
        },
        {"schedule": ["gpipe", "1f1b", "interleaved"], "gather": ["usual", "forward"]},
    ),
    "async TP": (
        *({**GPT, "hidden": 1024}, "selene"),
        {"batch": 4, "tensor_overlap": "async-tp"},
        {"tensor_pieces": [1, 2, 8], "sequence_parallel": [False, True]},
    ),
    "space": ("resnet18", "summit", {"nodes": 2, "devices_per_node": 4, "batch": 4}, {}),
    "experts": ("moe-tiny", "h100-pod", {"batch": 8}, {"experts": [1, 2, 4], "zero": [0, 1, 3]}),
    "shards": (
        {**GPT},
        "selene",
        {"nodes": 2, "batch": 4, "optimizer": "adam"},
        {"shards": [0, 2, 8], "offload": ["none", "activations"]},
    ),
    "copies": (
        {**GPT},
        "selene",
        {"nodes": 2, "batch": 4, "shards": 4, "zero": 1},
        {"zero": [1, 2, 3]},
    ),
    "slow network": (
        {**GPT, "hidden": 1024},
        {"name": "summit", "inter_node": "ethernet-25g", "nics": 1},
        {"nodes": 4, "batch": 4, "precision": "fp16", "optimizer": "adam"},
        {"zero": [0, 1, 2, 3], "power_limit": [0, 180], "gather": ["usual", "forward"]},
    ),
    "wire": (
        {**GPT, "hidden": 1024},
        "summit",
        {"nodes": 4, "batch": 4, "wire": "fp8"},
        {"zero": [0]},
    ),
    "both ends": (
        {**GPT, "hidden": 1024, "layers": 8},
        "selene",
        {"nodes": 2, "batch": 16, "precision": "fp16", "optimizer": "adam"},
        {"schedule": ["dualpipe"], "pipeline": [2, 4], "microbatches": [4, 8, 16, 32]},
    ),
    "both ends, experts": (
        {**GPT, "hidden": 1024, "layers": 8, "experts": 8, "chosen": 2},
        {"name": "selene", "nics": 1},
        {"nodes": 2, "batch": 16, "precision": "fp16", "experts": 4, "zero": 1},
        {"schedule": ["dualpipe"], "pipeline": [2, 4], "tensor": [1], "microbatches": [8, 16, 32]},
    ),
    "light": ({**GPT}, "h100-pod", {"batch": 4, "optimizer": "adam"}, {"recompute": ["light"]}),
    "light, latent": (
        {**DECODER, "attention": LATENT},
        "selene",
        {"batch": 4, "precision": "bf16"},
        {"recompute": ["light"], "zero": [0, 1]},
    ),
    "light, alike stages": (  # which a cut behind each activation spares its recomputation
        {
            "family": "sequential",
            "input": [4096],
            "layers": [*({"kind": "dense", "features": 4096}, {"kind": "gelu"})] * 4,
        },
        {"name": "h100-pod", "jitter": 0.0, "intra_node": {"latency": 0.0, "bandwidth": 1e30}},
        {"devices_per_node": 4, "batch": 64, "optimizer": "sgd"},
        {"recompute": ["light"], "microbatches": [128, 256], "tensor": [1], "zero": [0]},
    ),
    "light, images": (
        "resnet18",
        "summit",
        {"devices_per_node": 4, "batch": 4},
        {"recompute": ["light"], "spatial": [1], "tensor": [1], "zero": [0]},
    ),
    "early stop, alike stages": (  # each of which stops earlier than all layers in one
        {
            "family": "sequential",
            "input": [512],
            "layers": [*({"kind": "dense", "features": 512}, {"kind": "relu"})] * 8,
        },
        {"name": "h100-pod", "jitter": 0.0, "intra_node": {"latency": 0.0, "bandwidth": 1e30}},
        {"devices_per_node": 4, "batch": 4096, "optimizer": "sgd"},
        {"recompute": ["early-stop"], "tensor": [1], "zero": [0]},
    ),
    "early stop": (
        {**GPT},
        "h100-pod",
        {"batch": 4, "precision": "bf16", "loss": "separate"},
        {"recompute": ["early-stop"]},
    ),
    "stages by work": (
        {**GPT, "vocabulary": 4000},
        "h100-pod",
        {"batch": 4, "precision": "bf16", "stage_cut": "work"},
        {"pipeline": [2, 4], "tensor": [1], "zero": [0, 1]},
    ),
    "gathered keys": (
        {**GPT},
        "h100-pod",
        {"batch": 4, "precision": "bf16", "context_exchange": "gather"},
        {"context": [1, 2, 4]},
    ),
    "wide wire": (
        {**GPT, "hidden": 1024},
        "summit",
        {"nodes": 4, "batch": 4, "precision": "bf16", "wire": "fp32"},
        {"shards": [0, 2], "zero_unit": ["block", "layer"]},
    ),
    "copies by node": (
        {**MIXTURE},
        {"name": "selene", "nics": 1},
        {"nodes": 4, "devices_per_node": 4, "batch": 4, "precision": "bf16"},
        {**BOTH, "experts": [1, 8, 16], "zero": [0, 1], "tensor": [1, 2]},
    ),
    "copies by node in fp8": (
        {**MIXTURE},
        "h800-pod",
        {
            "nodes": 4,
            "devices_per_node": 4,
            "batch": 16,
            "precision": "fp8",
            "experts": 8,
            "expert_wire": "fp8",
            "expert_exchange": "by-node",
        },
        {**BOTH, "schedule": ["1f1b", "dualpipe"], "pipeline": [1, 2], "tensor": [1]},
    ),
    "stages across nodes": (  # some are inside one
        {**GPT, "hidden": 384, "heads": 12},
        {"name": "selene", "nics": 1},
        {"nodes": 3, "devices_per_node": 4, "batch": 12, "precision": "fp16"},
        {"pipeline": [2, 4], "tensor": [1, 3], "spatial": [1], "zero": [0, 1, 3]},
    ),
    "no weights": (
        {
            "family": "sequential",
            "input": [512],
            "layers": [{"kind": "gelu"}, {"kind": "tanh"}] * 4,
        },
        "h100-pod",
        {"batch": 4, "precision": "bf16"},
        {"tensor": [1]},
    ),
    "local": (
        {**GPT, "hidden": 1024},
        "summit",
        {"nodes": 4, "batch": 4, "update": "local", "local_steps": 8},
        {"tensor": [1], "pipeline": [1], "zero": [0], "microbatches": [1]},
    ),
    "local, computing most of the time": (  # they wait for the slowest every eighth step
        {**GPT, "hidden": 1024},
        {"name": "summit", "jitter": 0.1},
        {"nodes": 4, "batch": 64, "update": "local", "local_steps": 8},
        {"tensor": [1], "pipeline": [1], "zero": [0], "microbatches": [1]},
    ),
    "fewer nodes": (  # of fewer devices the slowest is less slow
        {**GPT},
        {"name": "selene", "jitter": 0.1},
        {"nodes": 8, "batch": 64, "optimizer": "sgd"},
        {"nodes": [1, 8], "tensor": [1], "pipeline": [1], "recompute": ["none"]},
    ),
}


def test_a_bound_does_not_depend_on_what_else_is_asked():
    run = Experiment(model=GPT, machine="selene", strategy={"nodes": 2, "batch": 4})
    every, dice = space(run), random.Random(1)
    some = np.array(sorted(dice.sample(range(len(every)), 40)))
    whole, part = (vars(bound(run, each)).values() for each in (every, every.only(some)))
    for all_of_them, few in zip(whole, part, strict=True):
        assert few == pytest.approx(all_of_them[some], rel=1e-15)


@pytest.mark.parametrize("name", RUNS)
def test_no_prediction_is_below_its_bound(name):
    model, machine, strategy, choose = RUNS[name]
    run = Experiment(model=model, machine=machine, strategy=strategy)
    combinations = space(run, choose)
    rows = random.Random(name).sample(range(len(combinations)), min(30, len(combinations)))
    some, seen = combinations.only(np.array(rows)), 0
    every, of_cuts = bound(run, combinations), bound(run, some, cuts=True)
    for at, row in enumerate(rows):
        try:
            one = run.set(combinations.changes(row))
            prediction = predict(one)
        except SpecError:
            continue
        seen += 1
        drawn = sum(j for cause, j in prediction.energy.items() if cause.startswith("devices"))
        idle = run.machine.device.idle_power * prediction.step_time
        above = drawn / one.devices - idle
        for least, own in ((every, row), (of_cuts, at)):
            assert least.step[own] > 0
            within = not prediction.fits or least.step[own] <= prediction.step_time
            assert within, combinations.changes(row)
            most = prediction.memory_total * (1 + 1e-12)
            assert least.memory[own] <= most, combinations.changes(row)
            assert 0 < least.joules[own] <= above * (1 + 1e-9), combinations.changes(row)
    assert seen > len(rows) / 3
    assert max(every.step) > 0


def small_network(dice):
    """A few blocks, or a list of layers of which some are added to one another."""
    if dice.random() < 0.6:
        wide = {"hidden": dice.choice([64, 256]), "sequence": dice.choice([16, 128])}
        own = {"layers": dice.choice([1, 2, 3]), "heads": 4, "vocabulary": dice.choice([64, 4096])}
        llama = {"family": "llama", "kv_heads": 2, "feed_forward": dice.choice([64, 2048])}
        return {**dice.choice([{"family": "gpt"}, llama]), **wide, **own}
    layers, widths = [], {}
    for number in range(dice.randint(3, 10)):
        kind = dice.choice(["dense", "dense", "relu", "gelu", "tanh", "layer_norm", "add"])
        name, last = f"x{number}", list(widths)[-1:]
        alike = [each for each in widths if [widths[each]] == [widths[one] for one in last]][:-1]
        if kind == "add" and alike:
            layers.append({"kind": "add", "inputs": [*last, dice.choice(alike)], "name": name})
            widths[name] = widths[last[0]]
            continue
        kind = "dense" if kind == "add" else kind
        wide = dice.choice([256, 512, 1024]) if kind == "dense" else 0
        layers.append({"kind": kind, "name": name, **({"features": wide} if wide else {})})
        widths[name] = wide or (widths[last[0]] if last else 512)
    return {"family": "sequential", "input": [512], "layers": layers}


@pytest.mark.parametrize("recompute", ["early-stop", "per-op", "full", "none"])
@pytest.mark.parametrize("seed", range(16))
def test_no_prediction_is_below_its_bound_where_stages_are_cut_anywhere(seed, recompute):
    """More stages than places where a single output is live: a stage may end within a block, or have none."""
    dice = random.Random(seed)
    link = {"latency": 0.0, "bandwidth": 1e30}
    machine = {"name": "h100-pod", "jitter": 0.0, "devices_per_node": 16, "intra_node": link}
    strategy = {"devices_per_node": 16, "batch": dice.choice([16, 4096]), "precision": "bf16"}
    run = Experiment(model=small_network(dice), machine=machine, strategy=strategy)
    choose = {"recompute": [recompute], "pipeline": [1, 4, 8, 16], "microbatches": [1, 2, 128]}
    choose |= {"tensor": [1], "spatial": [1], "zero": [0], "chunks": [1, 4]}
    combinations, seen = space(run, choose), 0
    rows = dice.sample(range(len(combinations)), 10)
    every = bound(run, combinations)
    of_cuts = bound(run, combinations.only(np.array(rows)), cuts=True)
    for at, row in enumerate(rows):
        try:
            prediction = predict(run.set(combinations.changes(row)))
        except SpecError:
            continue  # fewer layers than stages
        seen += 1
        drawn = sum(j for cause, j in prediction.energy.items() if cause.startswith("devices"))
        above = drawn / run.devices - run.machine.device.idle_power * prediction.step_time
        for least, own in ((every, row), (of_cuts, at)):
            assert least.step[own] <= prediction.step_time, combinations.changes(row)
            assert least.memory[own] <= prediction.memory_total, combinations.changes(row)
            assert least.joules[own] <= above * (1 + 1e-9), combinations.changes(row)
    assert seen or len(run.model.layers) < 4


@pytest.mark.parametrize("recompute", ["early-stop", "per-op"])
@pytest.mark.parametrize("objective", ["time", "energy"])
def test_a_certificate_is_that_of_all_predictions(objective, recompute):
    link = {"latency": 0.0, "bandwidth": 1e30}
    machine = {"name": "h100-pod", "jitter": 0.0, "devices_per_node": 16, "intra_node": link}
    model = {"family": "llama", "layers": 3, "hidden": 256, "heads": 4, "kv_heads": 2}
    model |= {"feed_forward": 2048, "sequence": 128, "vocabulary": 64}
    strategy = {"devices_per_node": 16, "batch": 64, "precision": "bf16"}
    run = Experiment(model=model, machine=machine, strategy=strategy)
    choose = {"recompute": [recompute], "pipeline": [2, 4, 8, 16], "microbatches": [1, 4, 64]}
    choose |= {"tensor": [1], "zero": [0], "chunks": [1, 2], "schedule": ["gpipe", "interleaved"]}
    found = plan(run, objective, choose=choose, best=1)
    every = space(run, choose)
    costs = []
    for row in range(len(every)):
        try:
            one = predict(run.set(every.changes(row)))
        except SpecError:
            continue
        costs.append(value(one, objective))
    assert found.gap == 0
    assert value(found.best.prediction, objective) == pytest.approx(min(costs), rel=1e-12)


def test_a_stage_of_one_block_more_is_not_averaged_away():
    """12 blocks on 8 stages: one of them has two, and takes as long as twelve blocks would on six."""
    model = {**GPT, "layers": 12, "hidden": 4096, "sequence": 2048}
    strategy = {"devices_per_node": 8, "batch": 64, "precision": "bf16"}
    run = Experiment(model=model, machine={"name": "selene", "jitter": 0.0}, strategy=strategy)
    choose = {"pipeline": [8], "tensor": [1], "microbatches": [64], "zero": [0], "chunks": [1]}
    every = space(run, choose | {"schedule": ["1f1b", "zb-h1"], "recompute": ["none", "full"]})
    least = bound(run, every).step
    for row in range(len(every)):
        assert 0.95 < least[row] / predict(run.set(every.changes(row))).step_time <= 1


@pytest.mark.parametrize(
    ("pipeline", "microbatches", "zero", "above"), [(32, 96, 1, "step"), (16, 32, 3, "memory")]
)
def test_stages_that_hold_many_microbatches_have_few_blocks(pipeline, microbatches, zero, above):
    """The first stage holds as many microbatches as there are stages: the more it has to store, the more the last has
    to compute, if that fits at all."""
    strategy = {"nodes": 128, "tensor": 8, "batch": 12, "precision": "fp16", "optimizer": "adam"}
    run = Experiment(model="gpt3-175b", machine="selene", strategy=strategy)
    choose = {"pipeline": [pipeline], "microbatches": [microbatches], "zero": [zero]}
    choose |= {"tensor": [4], "schedule": ["zb-h1"], "recompute": ["none"], "chunks": [1]}
    every = space(run, choose | {"sequence_parallel": [False]})
    (changes,), least = [every.changes(row) for row in range(len(every))], bound(run, every)
    prediction, room = predict(run.set(changes)), run.machine.device.memory
    assert not prediction.fits
    assert (least.memory[0] > room) == (above == "memory")
    assert least.step[0] > prediction.step_time


@pytest.mark.parametrize(
    ("pipeline", "microbatches", "schedule", "chunks"),
    [
        (64, 192, "interleaved", 2),
        (16, 96, "interleaved", 2),
        (16, 96, "zb-h1", 1),
        (16, 96, "1f1b", 1),
    ],
)
def test_stages_bound_what_a_pipeline_of_them_takes(pipeline, microbatches, schedule, chunks):
    """64 ranks of two stages each have fewer blocks than stages: some have a whole one, others a half."""
    strategy = {"nodes": 128, "tensor": 4, "batch": 6, "precision": "fp16", "optimizer": "adam"}
    run = Experiment(model="gpt3-175b", machine="selene", strategy=strategy)
    choose = {"pipeline": [pipeline], "microbatches": [microbatches], "schedule": [schedule]}
    choose |= {"tensor": [4], "zero": [1], "chunks": [chunks], "sequence_parallel": [True]}
    every = space(run, choose | {"recompute": ["none", "selective", "full"]})
    least = bound(run, every, cuts=True)
    for row in range(len(every)):
        prediction = predict(run.set(every.changes(row)))
        if prediction.fits:
            assert 0.93 < least.step[row] / prediction.step_time <= 1
        held = least.memory[row] / prediction.memory_total
        assert (0.75 if every.columns["recompute"][row] == "none" else 0.3) < held <= 1


def test_what_the_host_has_still_to_issue_delays_no_other_stage():
    """16 experts are issued one by one; the layer behind them waits for that, unless it is on another rank."""
    model, machine, strategy, _ = RUNS["copies by node"]
    run = Experiment(model=model, machine=machine, strategy=strategy)
    choose = {"pipeline": [8], "microbatches": [32], "schedule": ["interleaved"], "chunks": [2]}
    choose |= {"tensor": [1], "zero": [0], "recompute": ["none"], "experts": [1]}
    every = space(run, choose)
    least = bound(run, every, cuts=True)
    assert least.step[0] <= predict(run.set(every.changes(0))).step_time


@pytest.mark.parametrize("last", [0.0, 0.4])
@pytest.mark.parametrize("forward", [0.0, 0.3, 1.0])
def test_blocks_are_done_no_sooner_than_the_best_of_all_cuts_does_them(forward, last):
    """last: what the last rank does besides, in blocks."""
    for stages, blocks, many in product((1, 2, 3, 4), (4, 5, 7), (1, 2, 5)):
        besides = [*[0.0] * (stages - 1), last]
        best = min(
            max(many * (own + besides[at]) + forward * sum(cut[:at]) for at, own in enumerate(cut))
            for cut in product(range(blocks + 1), repeat=stages)
            if sum(cut) == blocks
        )
        holds = np.full((stages, 1), np.inf)
        found = least_rounds(*np.array([[many], [blocks], [forward], [0.0], [last]]), holds)
        assert found <= best
        assert last * forward or found == pytest.approx(best, rel=1e-3)


@pytest.mark.parametrize("zero", [0, 1])
@pytest.mark.parametrize("experts", [1, 2, 4])
def test_weights_of_experts_are_bounded_by_the_replicas_that_share_them(experts, zero):
    """Their gradients are most of what a slow network carries, and their state most of what a device holds."""
    model = {**GPT, "hidden": 1024, "experts": 8, "chosen": 1}
    machine = {"name": "summit", "inter_node": "ethernet-25g", "nics": 1}
    strategy = {"nodes": 8, "batch": 1, "precision": "fp16", "optimizer": "adam"}
    run = Experiment(model=model, machine=machine, strategy=strategy)
    choose = {"pipeline": [1, 2], "tensor": [1], "microbatches": [1, 2], "experts": [1, 2, 4]}
    every = space(run, choose | {"zero": [0, 1], "schedule": ["1f1b"], "recompute": ["none"]})
    some = every.only(np.flatnonzero(every.has("experts", experts) & every.has("zero", zero)))
    for cuts in (False, True):
        least = bound(run, some, cuts=cuts)
        for row in range(len(some)):
            prediction = predict(run.set(some.changes(row)))
            assert 0.8 < least.step[row] / prediction.step_time <= 1, some.changes(row)
            assert 0.8 < least.memory[row] / prediction.memory_total <= 1, some.changes(row)
