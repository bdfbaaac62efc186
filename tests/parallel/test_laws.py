"""A step is one program: prediction and simulation in rounds are the same path, term by term, for every legal pair.

Tolerance: 1e-9 of the step, as both sum the same numbers in another order.
"""

from functools import cache
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from plain_step import ends
from same_terms import assert_same_terms
from split_runs import GPT, IMAGES, split

from lib_dlhpc import SpecError
from lib_dlhpc.parallel import program, steps
from lib_dlhpc.prediction import predict
from lib_dlhpc.program import Barrier, Collective, gathers, prove, sums
from lib_dlhpc.simulation import simulate, simulate_terms
from lib_dlhpc.timeline import breakdown

WORDS = GPT | {"vocabulary": 512}
MODELS = {"gpt": WORDS, "experts": WORDS | {"experts": 8, "chosen": 2}, "images": IMAGES}
KINDS = {
    "data": {"data": 4},
    "small buckets": {"data": 2, "bucket": 1e4},
    "no overlap": {"overlap": False},
    "wire": {"data": 4, "wire": "fp8"},
    "tensor": {"tensor": 2},
    "sequence": {"tensor": 2, "sequence_parallel": True},
    "pieces": {"tensor": 2, "tensor_pieces": 3},
    "pieces of sequences": {"tensor": 2, "sequence_parallel": True, "tensor_pieces": 2},
    "async TP": {
        "tensor": 2,
        "sequence_parallel": True,
        "tensor_pieces": 2,
        "tensor_overlap": "async-tp",
    },
    "column": {"tensor": 2, "split": "column"},
    "spatial": {"spatial": 4},
    "heads": {"data": 2, "context": 2},
    "ring of keys": {"context": 4, "context_exchange": "ring", "fused_attention": "auto"},
    "experts": {"data": 4, "experts": 2},
    "experts, zero 1": {"data": 4, "experts": 2, "zero": 1},
    "experts, zero 3": {"data": 4, "experts": 2, "zero": 3},
    "gpipe": {"pipeline": 2, "microbatches": 4, "schedule": "gpipe"},
    "1f1b": {"pipeline": 2, "microbatches": 4},
    "interleaved": {"pipeline": 2, "microbatches": 4, "chunks": 2, "schedule": "interleaved"},
    "zero bubble": {"pipeline": 2, "microbatches": 4, "schedule": "zb-h1"},
    "both ends": {"pipeline": 2, "microbatches": 4, "schedule": "dualpipe"},
    "microbatches": {"microbatches": 4},
    "adapters": {"data": 4, "lora": 4},
    "fp8": {"data": 4, "precision": "fp8"},
    "zero 1": {"data": 4, "zero": 1},
    "zero 2": {"data": 4, "zero": 2},
    "zero 3": {"data": 4, "zero": 3},
    "hybrid sharding": {"data": 4, "zero": 3, "shards": 2},
    "gathered once": {"data": 4, "zero": 3, "gather": "forward"},
    "by layer": {"data": 4, "zero": 3, "zero_unit": "layer"},
    "full": {"recompute": "full"},
    "selective": {"recompute": "selective"},
    "light": {"recompute": "light"},
    "per operator": {"recompute": "per-op"},
    "up to the last output that is read": {"recompute": "early-stop"},
    "offloaded activations": {"offload": "activations"},
    "offloaded state": {"offload": "all"},
}


def run_of(model, jitter=0.0, node=1, **strategy):
    ways = {"batch": 16} | strategy
    return split(MODELS[model], jitter=jitter, devices_per_node=node, **ways)


PAIRS = list(combinations(KINDS, 2))


def predicted_with(models, ways):
    """Return the first of the models that allows these settings, the experiment and its prediction, or None."""
    for model in models:
        try:
            run = run_of(model, **ways)
            return model, run, predict(run)
        except SpecError:
            continue
    return None


@cache
def legal(pair):
    """Return the model, experiment and prediction of a pair of kinds, or None; pairs take turns with the models."""
    one, other = (KINDS[name] for name in pair)
    if any(one[name] != other[name] for name in one.keys() & other.keys() - {"data"}):
        return None
    first = PAIRS.index(pair) % len(MODELS)
    return predicted_with([*MODELS][first:] + [*MODELS][:first], {**one, **other})


@pytest.mark.parametrize("pair", PAIRS, ids=" + ".join)
def test_prediction_is_simulation_in_rounds_term_by_term(pair):
    if found := legal(pair):
        _, run, prediction = found
        assert_same_terms(run, prediction)


def test_most_pairs_are_legal():
    """The table above says something: a kind that is legal with nothing, or left out with a model, would be seen."""
    allowed = {pair: found[0] for pair in PAIRS if (found := legal(pair))}
    assert len(allowed) > 0.6 * len(PAIRS)
    for name, ways in KINDS.items():
        models = [model for pair, model in allowed.items() if name in pair]
        assert len(models) >= 5, name
        assert set(models) == {model for model in MODELS if predicted_with([model], ways)}, name


@st.composite
def splits(draw):
    """Settings that are legal together, but for what only the layout knows."""
    tensor, pipeline = draw(st.sampled_from([1, 2, 4])), draw(st.sampled_from([1, 2, 4]))
    schedule = draw(st.sampled_from(["gpipe", "1f1b", "interleaved", "zb-h1", "dualpipe"]))
    apart = schedule in ("zb-h1", "dualpipe")
    offload = ["none"] if apart else ["none", "activations", "all"]
    counts = [8, 16] if schedule == "dualpipe" else [4, 8, 16]
    zero = draw(st.integers(0, 3))
    return {
        "tensor": tensor,
        "pipeline": pipeline,
        "data": draw(st.sampled_from([1, 2, 8])),
        "microbatches": draw(st.sampled_from(counts if pipeline > 1 else [1, 4, 8])),
        "schedule": schedule,
        "chunks": draw(st.sampled_from([1, 2])) if schedule == "interleaved" else 1,
        "sequence_parallel": tensor > 1 and draw(st.booleans()),
        "tensor_pieces": draw(st.sampled_from([1, 2, 4])),
        "recompute": draw(
            st.sampled_from(["none", "light", "selective", "per-op", "early-stop", "full"])
        ),
        "fused_attention": draw(st.sampled_from(["on", "off"])),
        "overlap": draw(st.booleans()),
        "zero": zero,
        "gather": draw(st.sampled_from(["usual", "forward"])) if zero else "usual",
        "zero_unit": draw(st.sampled_from(["block", "layer"])) if zero == 3 else "block",
        "offload": draw(st.sampled_from(offload)),
        "bucket": draw(st.sampled_from([1e4, 25e6])),
        "node": draw(st.sampled_from([1, 2, 4])),
    }


@settings(max_examples=60)
@given(splits())
def test_any_legal_split_trains_and_is_the_same_in_both(strategy):
    run = run_of("gpt", **strategy)
    assert_same_terms(run)
    prove(steps(run))


@pytest.mark.parametrize("microbatches", [4, 16, 64])
def test_time_grows_by_a_microbatch_a_period(microbatches):
    """Beyond the fill each microbatch adds the same time: T(m + p) - T(m) is constant."""
    counts = (2 * microbatches + extra for extra in (0, 4, 8))
    runs = [run_of("gpt", microbatches=m, pipeline=4, batch=16 * m) for m in counts]
    steps = [float(predict(run).step_time) for run in runs]
    first, second = np.diff(steps)
    assert second == pytest.approx(first, rel=1e-6)


PLAIN = [
    {},
    {"overlap": False},
    {"wire": "fp16"},
    {"bucket": 1e4},
    {"allreduce": "rabenseifner"},
    {"node": 2},
]


@pytest.mark.parametrize("ways", PLAIN, ids=str)
def test_plain_data_parallelism_is_the_program_with_no_passes(ways):
    """Rank by rank, with jitter, step after step: no rank waits for others but in an exchange."""
    run = run_of("gpt", jitter=0.1, data=4, **ways)
    assert not run.strategy.is_split
    assert not any(isinstance(row[0], Barrier) for row in program(run).end)
    timeline = simulate(run, seed=5, steps=3)
    updates = timeline.select(timeline.where("compute", "update"))
    factor = np.random.default_rng(5).normal(1.0, 0.1, (3, 4))
    np.testing.assert_allclose(updates.stop.reshape(4, 3).T, ends(run, factor), rtol=1e-12)


@settings(max_examples=40)
@given(splits(), st.sampled_from([0.0, 0.1]), st.sampled_from([1, 2]))
def test_terms_without_rows_are_those_of_the_rows(strategy, jitter, steps):
    run = run_of("gpt", jitter=jitter, **strategy)
    rows, terms = breakdown(simulate(run, seed=2, steps=steps)), simulate_terms(run, 2, steps)
    assert terms.step_time == pytest.approx(rows.step_time, rel=1e-12) and terms.steps == steps
    for name, seconds in rows.per_rank.items():
        np.testing.assert_allclose(
            terms.per_rank[name], seconds, rtol=1e-9, atol=1e-9 * rows.step_time, err_msg=name
        )


def small(strategy):
    """At most 16 ranks and 8 microbatches. Offloaded state is a case of its own."""
    replica = strategy["tensor"] * strategy["pipeline"]
    fewer = {"data": min(strategy["data"], 16 // replica), "offload": "none"}
    return strategy | fewer | {"microbatches": min(strategy["microbatches"], 8)}


def rounds_and_events(run):
    return [breakdown(simulate(run, fidelity)).step_time for fidelity in ("rounds", "events")]


@settings(max_examples=25)
@given(splits())
def test_events_are_rounds_where_every_rank_has_a_node(strategy):
    """Within 1e-4: events take the time to sum a table that two stages share."""
    """Within 1%: blocks of a collective may be an element longer."""
    rounds, events = rounds_and_events(run_of("gpt", **small(strategy) | {"node": 1}))
    assert events == pytest.approx(rounds, rel=1e-4)


@settings(max_examples=25)
@given(splits())
def test_events_are_close_to_rounds_where_ranks_share_slow_ports(strategy):
    run = run_of("gpt", **small(strategy))
    slow = {"machine.inter_node": {"latency": 1e-6, "bandwidth": 1e8}}
    rounds, events = rounds_and_events(run.set(slow))
    assert events == pytest.approx(rounds, rel=0.1)


@pytest.mark.parametrize("zero", [1, 2, 3])
def test_sharding_over_all_replicas_is_what_zero_does_by_default(zero):
    run = run_of("gpt", data=4, zero=zero, microbatches=2)
    assert steps(run.set({"strategy.shards": 4}))[0].groups.keys() == steps(run)[0].groups.keys()
    assert predict(run.set({"strategy.shards": 4})).step_time == predict(run).step_time


@pytest.mark.parametrize("zero", [1, 2, 3])
@pytest.mark.parametrize("microbatches", [1, 4])
@pytest.mark.parametrize("pipeline", [1, 2])
def test_weights_gathered_once_hide_behind_the_first_forward_pass(zero, microbatches, pipeline):
    """ZeRO 1 and 2 send what they sent and wait less; ZeRO 3 gathers once for all passes, and holds all weights."""
    split = {"zero": zero, "microbatches": microbatches, "pipeline": pipeline, "bucket": 1e5}
    usual = run_of("gpt", data=4, **split)
    once = usual.set({"strategy.gather": "forward"})
    assert_same_terms(once)
    prove(steps(once))
    before, after = predict(usual), predict(once)
    assert float(after.step_time) < float(before.step_time)
    if zero < 3:
        assert after.messages["data"] == pytest.approx(before.messages["data"], rel=1e-12)
        assert after.memory == before.memory
    held = (chunk.last.prices[0].weights for stage in steps(once)[0].stages for chunk in stage)
    assert gathered(once) == sum(map(sum, held))
    # A tied table is gathered once more for each pass that reads it twice.
    assert gathered(usual) >= gathered(once) * (2 * microbatches if zero == 3 else 1)


@pytest.mark.parametrize("zero", [1, 2])
@pytest.mark.parametrize("fidelity", ["rounds", "events"])
def test_weights_of_later_chunks_arrive_behind_the_passes_of_earlier_ones(zero, fidelity):
    """A rank posts the buckets of all its chunks before its first pass, so it waits for those of the first chunk."""
    split = {"zero": zero, "microbatches": 4, "pipeline": 2, "chunks": 2, "bucket": 1e4}
    usual = run_of("gpt", data=4, schedule="interleaved", **split)
    once = usual.set({"strategy.gather": "forward"})
    assert_same_terms(once)
    prove(steps(once))
    before, after = (simulate(each, fidelity) for each in (usual, once))
    assert max(each.stop for each in after) < max(each.stop for each in before)
    (first, second), *_ = steps(once)[0].stages
    posted = [each for each in first.first.variants[0].instructions if gathers(each)]
    assert {each.layers[0] for each in posted} == {0, 1}
    assert not any(gathers(each) for each in second.first.variants[0].instructions)


def test_chunks_of_one_rank_are_not_ranks():
    """Runs with the same parts, in two chunks of a rank or on two ranks, one after the other."""
    chunks = run_of("gpt", data=1, schedule="interleaved", chunks=2, microbatches=4)
    ranks = run_of("gpt", data=1, pipeline=2, microbatches=4)
    for run in (chunks, ranks, chunks):
        predict(run)
        assert len(steps(run)[0].stages) == int(run.strategy.pipeline)


def gathered(run):
    """Elements of weights that a replica gathers in a step."""
    step = steps(run)[0]
    many, found = step.schedule.microbatches, [each for row in step.end for each in row]
    for chunk in (chunk for stage in step.stages for chunk in stage):
        for block, times in chunk.passes(many):
            found += times * list(block.variants[0].instructions)
    return sum(each.elements for each in found if gathers(each))


@pytest.mark.parametrize("zero", [2, 3])
@pytest.mark.parametrize("microbatches", [1, 4])
def test_zero_bubbles_send_what_1f1b_does_and_take_less_time(zero, microbatches):
    """Weights are gathered for F and B of each microbatch, none for W; gradients leave with each W."""
    one = run_of("gpt", data=4, pipeline=2, microbatches=microbatches, zero=zero)
    split = one.set({"strategy.schedule": "zb-h1"})
    assert gathered(split) == gathered(one)
    before, after = predict(one), predict(split)
    assert after.messages["data"] == pytest.approx(before.messages["data"], rel=1e-12)
    assert float(after.step_time) < float(before.step_time) or microbatches == 1
    for chunk in (chunk for stage in steps(split)[0].stages for chunk in stage):
        own = chunk.backward, chunk.weights, chunk.last
        posted = [[e for e in one.variants[0].instructions if hasattr(e, "goal")] for one in own]
        assert [any(map(gathers, each)) for each in posted] == [zero == 3, False, False]
        assert [any(map(sums, each)) for each in posted] == [False, True, True]


def test_hybrid_sharding_keeps_gathers_within_a_node_and_costs_memory():
    """Two nodes of four: neighbors gather weights, and gradients of a shard cross the network once."""
    run = run_of("gpt", data=8, zero=3, node=4)
    hybrid = run.set({"strategy.shards": 4})
    whole, shared = predict(run), predict(hybrid)
    for name in ("weights", "gradients", "optimizer state"):
        assert shared.memory[name] == pytest.approx(2 * whole.memory[name]), name
    last = steps(hybrid)[0].stages[0][0].last.variants[0].instructions
    found = {(each.goal, each.group) for each in last if isinstance(each, Collective)}
    assert found == {("allgather", "shards"), ("reduce_scatter", "shards"), ("allreduce", "copies")}
    assert float(shared.messages["data"].total) < float(whole.messages["data"].total)


@pytest.mark.parametrize(
    ("ways", "words"),
    [
        ({"data": 4, "zero": 1, "shards": 3}, "shards = 3: it must divide the 4 replicas"),
        ({"data": 4, "zero": 1, "shards": 8}, "shards = 8: it must divide"),
        ({"data": 4, "shards": 2}, "shards = 2: applies only with strategy.zero"),
        (
            {"data": 4, "zero": 2, "zero_unit": "layer"},
            "zero_unit = 'layer': applies only with strategy.zero = 3; with strategy.zero = 2 the legal value is",
        ),
        ({"data": 4, "gather": "forward"}, "gather = 'forward': applies only with strategy.zero"),
    ],
)
def test_shards_that_cannot_be_are_refused(ways, words):
    with pytest.raises(SpecError, match=words):
        predict(run_of("gpt", **ways))
