"""What a program must say to train is proved of every legal split, and no mutant of a program passes."""

import dataclasses

import pytest
from frozen_steps import CASES, run_of

from lib_dlhpc import parallel
from lib_dlhpc.program import (
    Barrier,
    Block,
    Collective,
    Compute,
    PairAllreduce,
    Template,
    Update,
    Wait,
    gathers,
    prove,
    sums,
)
from lib_dlhpc.program.gradient_contention import GRADIENTS
from lib_dlhpc.schedules.checks import ProofError
from lib_dlhpc.schedules.pipeline import Backward, Forward, WeightGradients


def only(model, **ways):
    found = next(each for each in CASES if each["model"] == model and each["strategy"] == ways)
    return parallel.steps(run_of(found))


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case['model']} {case['strategy']}")
def test_every_step_trains(case):
    prove(parallel.steps(run_of(case)))


def test_the_average_of_local_updates_may_come_after_steps_without_one():
    wanted = {"data": 4, "microbatches": 4}
    run = run_of(next(each for each in CASES if each["strategy"] == wanted))
    local = {"strategy.update": "local", "strategy.local_steps": 3, "strategy.microbatches": 1}
    cycle = parallel.steps(run.set(local))
    prove(cycle)
    with pytest.raises(ProofError, match="replicas never sum"):
        prove(cycle[:1])


def blocks(cycle, which, keep):
    """Return the steps with the instructions of some blocks replaced: keep(instruction) -> a list."""

    def changed(chunk):
        def block(name):
            old = getattr(chunk, name)
            variants = tuple(
                Template(tuple(new for each in one.instructions for new in keep(each)))
                for one in old.variants
            )
            return Block(variants, old.prices)

        return dataclasses.replace(chunk, **{name: block(name) for name in which})

    return [
        dataclasses.replace(step, stages=tuple(tuple(map(changed, stage)) for stage in step.stages))
        for step in cycle
    ]


def ends(cycle, keep):
    """Return the steps with the rows at their end replaced: keep(row) -> a list of rows."""
    return [
        dataclasses.replace(step, end=tuple(new for row in step.end for new in keep(row)))
        for step in cycle
    ]


def streams(cycle, change):
    """Return the steps with the streams of their schedule changed."""
    step = cycle[0]
    schedule = dataclasses.replace(step.schedule, streams=tuple(map(change, step.schedule.streams)))
    return [dataclasses.replace(step, schedule=schedule)]


def drop(kind, **having):
    def keep(each):
        wrong = isinstance(each, kind) and all(getattr(each, k) == v for k, v in having.items())
        return [] if wrong else [each]

    return keep


def drop_rows(kind):
    return lambda row: [] if any(isinstance(each, kind) for each in row) else [row]


def twice(kind):
    return lambda each: [each, each] if isinstance(each, kind) else [each]


def first_waits(row):
    """Only the first stage waits."""
    return [
        (row[0], *(None if isinstance(each, Barrier | PairAllreduce) else each for each in row[1:]))
    ]


def shifted(each):
    """A bucket says that it holds a layer less."""
    if isinstance(each, Collective) and each.layers:
        return [each._replace(layers=(*each.layers[:2], each.layers[2] - 1))]
    return [each]


def early(instructions):
    """All collectives before all work."""
    return sorted(instructions, key=lambda each: not isinstance(each, Collective))


def whole_backward(each):
    """All of a layer's backward where its weight gradients are computed apart."""
    apart = isinstance(each, Compute) and each.phase == "input_grad"
    return [each._replace(phase="backward")] if apart else [each]


def posts(each):
    """The buckets of the last weight gradients at the end of backward as well."""
    if each != Compute(0, "backward"):
        return [each]
    last = SPLIT[0].stages[0][0].last.variants[0].instructions
    return [each, *filter(sums, last), Wait("data", GRADIENTS, "", "")]


def renumbered(stream):
    """The last microbatch first."""
    most = max(each.microbatch for each in stream)
    return tuple(dataclasses.replace(e, microbatch=most - e.microbatch) for e in stream)


def changed(strategy, changes):
    """The steps of a case with other settings."""
    case = next(each for each in CASES if each["strategy"] == strategy)
    return parallel.steps(run_of(case).set(changes))


ZERO = only("gpt", data=4, microbatches=2, zero=3)
TWO = only("gpt", data=4, microbatches=2, zero=2)
ONE = only("gpt", data=4, microbatches=2, zero=1)
ONCE = changed(
    {"data": 4, "microbatches": 2, "zero": 1},
    {"strategy.gather": "forward", "strategy.bucket": 1e4},
)
LATE = only("gpt", data=4, microbatches=4, overlap=False)
PLAIN = only("gpt", data=4, microbatches=4, bucket=1e4)
AGAIN = only("gpt", data=2, tensor=2, recompute="full")
AWAY = only("gpt", data=2, microbatches=2, offload="all")
PIPE = only("gpt", data=2, pipeline=2, microbatches=4)
STAGES = {"data": 2, "pipeline": 2, "microbatches": 4}
SPLIT = changed(STAGES, {"strategy.schedule": "zb-h1"})
SPLIT_ZERO = changed(STAGES, {"strategy.schedule": "zb-h1", "strategy.zero": 3})
DUAL = changed(STAGES, {"strategy.schedule": "dualpipe"})
HYBRID = changed({"data": 4, "microbatches": 2, "zero": 3}, {"strategy.shards": 2})
# The last layer reads the embedding's table.
KEY = [e.key for e in ZERO[0].stages[0][0].forward.variants[0].instructions if gathers(e)][-1]
LAST_KEY = [e.key for e in ONCE[0].stages[0][0].first.variants[0].instructions if gathers(e)][-1]
LAST = PIPE[0].schedule.streams[-1]
BACK = ("backward", "last")
MUTANTS = {
    "a layer left out": (blocks(PLAIN, ["forward"], drop(Compute, layer=1)), "every layer once"),
    "a layer twice": (blocks(PLAIN, BACK, twice(Compute)), "every layer once"),
    "weights not gathered": (blocks(ZERO, BACK, drop(Collective, goal="allgather")), "not posted"),
    "weights not waited for": (blocks(ZERO, ["forward"], drop(Wait)), "ahead|without its weights"),
    "a gather that nobody waits for": (
        blocks(ZERO, ["forward"], drop(Wait, key=KEY)),
        "ends before gradients|without its weights",
    ),
    "the head of a tied network not gathered": (
        blocks(
            ZERO,
            ["forward"],
            lambda each: drop(Wait, key=KEY)(each) and drop(Collective, key=KEY)(each),
        ),
        "without its weights",
    ),
    "gradients freed in flight": (blocks(TWO, ["backward"], drop(Wait)), "ends before gradients"),
    "gradients dropped": (blocks(PLAIN, ["last"], drop(Collective)), "replicas never sum"),
    "gradients summed twice": (blocks(PLAIN, ["last"], twice(Collective)), "2 times over"),
    "a layer's gradients left out": (blocks(PLAIN, ["last"], shifted), "0 times over"),
    "a wait for nothing": (
        blocks(PLAIN, ["last"], lambda each: [Wait("x", "data", "nothing", ""), each]),
        "'nothing', which was not posted",
    ),
    "exchange not waited for": (ends(LATE, drop_rows(Wait)), "being summed"),
    "weights not gathered after the update": (
        ends(ONE, lambda row: [] if getattr(row[0], "goal", "") == "allgather" else [row]),
        "gathers layer 0 0 times",
    ),
    "weights not gathered in the first forward pass": (
        blocks(
            ONCE, ["first"], lambda each: [] if getattr(each, "key", "") == "weights 1" else [each]
        ),
        "without its weights",
    ),
    "first weights not waited for": (
        blocks(ONCE, ["first"], drop(Wait, key="weights 0")),
        "ends before gradients|without its weights",
    ),
    "last weights not waited for": (
        blocks(ONCE, ["first"], drop(Wait, key=LAST_KEY)),
        "ends before gradients|without its weights",
    ),
    "no update": (ends(PLAIN, drop_rows(Update)), "updates the weights once"),
    "two updates": (
        ends(PLAIN, lambda row: [row, row] if isinstance(row[0], Update) else [row]),
        "updates the weights once",
    ),
    "moved state not waited for": (
        ends(AWAY, lambda row: [] if getattr(row[0], "stream", "") == "copy" else [row]),
        "ends before copy",
    ),
    "one stage alone": (ends(PIPE, first_waits), "they wait forever|stage that does not"),
    "weight gradients left out": (
        blocks(SPLIT, ["weights"], drop(Compute, layer=3)),
        "layer 3 has no weight gradients",
    ),
    "weight gradients twice": (blocks(SPLIT, ["last"], twice(Compute)), "every layer once"),
    "weight gradients in both parts": (
        blocks(SPLIT, ["backward"], whole_backward),
        "no weight gradients, or has them twice",
    ),
    "weight gradients before backward": (
        streams(SPLIT, lambda one: tuple(sorted(one, key=lambda e: isinstance(e, Backward)))),
        "no pass before it",
    ),
    "weight gradients of no microbatch": (
        streams(
            SPLIT,
            lambda one: tuple(
                e for e in one if e not in (WeightGradients(1, 0), WeightGradients(2, 0))
            ),
        ),
        "2 microbatches have no pass back",
    ),
    "a split backward that posts": (blocks(SPLIT, ["backward"], posts), "too early"),
    "buckets that leave before weight gradients": (
        blocks(blocks(SPLIT_ZERO, ["backward"], posts), ["weights", "last"], drop(Collective)),
        "too early",
    ),
    "weights not gathered for gradients of inputs": (
        blocks(SPLIT_ZERO, ["backward"], drop(Collective)),
        "not posted",
    ),
    "weight gradients freed in flight": (
        blocks(SPLIT_ZERO, ["weights"], drop(Wait)),
        "ends before gradients",
    ),
    "copies of the network that never sum": (
        ends(DUAL, drop_rows(PairAllreduce)),
        "sums its gradients 0 times with the other copy",
    ),
    "copies of a shard that never sum": (
        blocks(HYBRID, BACK, drop(Collective, group="copies")),
        "never sum their gradients, or not all",
    ),
    "shards that never sum": (
        blocks(HYBRID, BACK, drop(Collective, goal="reduce_scatter")),
        "never sum their gradients, or not all",
    ),
    "a pass left out": (
        streams(PIPE, lambda one: tuple(e for e in one if not isinstance(e, Backward))),
        "no pass back",
    ),
    "backward before forward": (
        streams(PIPE, lambda one: tuple(sorted(one, key=lambda e: isinstance(e, Forward)))),
        "no pass before it",
    ),
    "stages that wait for each other": (
        streams(PIPE, lambda one: renumbered(one) if one is LAST else one),
        "waits forever",
    ),
}


@pytest.mark.parametrize("name", MUTANTS)
def test_a_mutant_is_refused(name):
    mutant, words = MUTANTS[name]
    with pytest.raises(ProofError, match=words):
        prove(mutant)


def test_gradients_are_posted_when_they_are_complete():
    step = PLAIN[0]
    (chunk,) = step.stages[0]
    last = Block(
        tuple(Template(tuple(early(one.instructions))) for one in chunk.last.variants),
        chunk.last.prices,
    )
    mutant = dataclasses.replace(step, stages=((dataclasses.replace(chunk, last=last),),))
    with pytest.raises(ProofError, match="too early"):
        prove([mutant])


def test_what_is_repeated_comes_before_its_backward_pass():
    def late(each):
        repeated = isinstance(each, Compute) and each.phase == "backward"
        return [each, each._replace(phase="forward")] if repeated else [each]

    with pytest.raises(ProofError, match="repeated after its backward pass"):
        prove(blocks(AGAIN, BACK, late))


def test_recomputation_gathers_no_third_layer():
    """At the end of a segment a layer is visited twice in a row; the next gather is posted after the second."""
    run = run_of(next(c for c in CASES if c["strategy"].get("zero") == 3))
    prove(parallel.steps(run.set({"strategy.recompute": "full"})))
