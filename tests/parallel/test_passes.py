"""Passes: what each adds, mutants of each that are caught, a new kind in one file, engines that know no kind."""

import ast
import dataclasses
from pathlib import Path

import pytest
from frozen_steps import CASES, run_of

import lib_dlhpc
from lib_dlhpc.parallel import KINDS, program, step
from lib_dlhpc.prediction import predict
from lib_dlhpc.prediction.price import price
from lib_dlhpc.prediction.split_step import split_step
from lib_dlhpc.program import (
    Barrier,
    Collective,
    Compute,
    PairAllreduce,
    StagePath,
    Update,
    Wait,
    prove,
)
from lib_dlhpc.program.gradient_contention import GRADIENTS
from lib_dlhpc.simulation import simulate
from lib_dlhpc.timeline import breakdown

HOUSE = Path(lib_dlhpc.__file__).parent
# "halo" is the goal of a collective as well.
NAMES = {"tensor", "spatial", "data", "experts", "alike", "zero", "sequence", "offload"}
NAMES |= {"recompute", "pipeline", "microbatch"}
READERS = [
    *sorted((HOUSE / "program").glob("*.py")),
    HOUSE / "simulation" / "program_rounds.py",
    HOUSE / "simulation" / "program_events.py",
    HOUSE / "simulation" / "program_rows.py",
    HOUSE / "simulation" / "ranked.py",
    HOUSE / "prediction" / "price.py",
]


@pytest.mark.parametrize("file", READERS, ids=lambda file: file.name)
def test_an_engine_imports_no_pass_and_holds_no_name_of_a_kind(file):
    tree = ast.parse(file.read_text())
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            assert not (node.module or "").startswith("lib_dlhpc.parallel")
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            assert node.value not in NAMES, node.lineno
        if isinstance(node, ast.Attribute):
            assert node.attr not in NAMES - {"microbatch"}, node.lineno


def only(case, **ways):
    return next(each for each in CASES if each["model"] == case and each["strategy"] == ways)


ZERO = only("gpt", data=4, microbatches=2, zero=3)
TWO = only("gpt", data=4, microbatches=2, zero=2)
TENSOR = only("gpt", tensor=4)
SPACE = only("images", spatial=2, data=2)
EXPERTS = only("experts", data=4, experts=2, microbatches=2)
AGAIN = only("gpt", data=2, tensor=2, recompute="full")
AWAY = only("gpt", data=2, microbatches=2, offload="all")
PIPE = only("gpt", data=2, pipeline=2, microbatches=4)
PLAIN = only("gpt", data=4, microbatches=4, bucket=1e4)
LATE = only("gpt", data=4, microbatches=4, overlap=False)
ONE = only("gpt", data=4, microbatches=2, zero=1)


def changed(which, keep):
    """Return a pass after all others that drops or replaces instructions: keep(instruction) -> a list."""

    def mutate(experiment, held, passes):
        for name in which:
            setattr(passes, name, [n for each in getattr(passes, name) for n in keep(each)])

    return mutate


def without(which, **having):
    return lambda each: (
        [] if isinstance(each, which) and having.items() <= each._asdict().items() else [each]
    )


def half(each):
    return [each._replace(elements=each.elements / 2)] if isinstance(each, Collective) else [each]


def waited(each):
    return [each, Wait("data", GRADIENTS, "", "x")] if getattr(each, "stream", "") else [each]


ALL = ("forward", "backward", "last")
MUTANTS = {
    "a forward exchange dropped": (TENSOR, changed(["forward"], without(Collective))),
    "a backward exchange dropped": (TENSOR, changed(["backward", "last"], without(Collective))),
    "a halo dropped": (SPACE, changed(["forward"], without(Collective, goal="halo"))),
    "one of two all-to-alls": (EXPERTS, changed(["forward"], without(Collective, kind="experts"))),
    "half of the bytes": (ZERO, changed(ALL, half)),
    "a gather dropped, with its wait": (
        ZERO,
        changed(["forward"], lambda each: without(Wait)(each) and without(Collective)(each)),
    ),
    "weights not waited for": (ZERO, changed(["forward"], without(Wait))),
    "gradients not waited for": (TWO, changed(["backward", "last"], without(Wait, key=""))),
    "a wait after each post": (PLAIN, changed(["last"], waited)),
    "gradients of a pass dropped": (PLAIN, changed(["last"], without(Collective, kind="data"))),
    "layers computed backward but once": (
        AGAIN,
        changed(["backward", "last"], without(Compute, phase="forward")),
    ),
    "recomputation with every pass": (
        PLAIN,
        changed(
            ["last"], lambda e: [e._replace(phase="forward")] if isinstance(e, Compute) else [e]
        ),
    ),
}


@pytest.mark.parametrize("name", MUTANTS)
def test_a_mutant_of_a_pass_is_caught(name, monkeypatch):
    """The frozen step would differ; links are slow, so that what is waited for shows."""
    case, mutate = MUTANTS[name]
    slow = {"machine.inter_node": {"latency": 1e-5, "bandwidth": 1e8}}
    run = run_of(case).set(slow)
    step._passes.cache_clear()
    was = breakdown(simulate(run))
    monkeypatch.setattr(step, "PASSES", (*step.PASSES, mutate))
    step._passes.cache_clear()
    now = breakdown(simulate(run))
    step._passes.cache_clear()
    most = max(abs(now.terms[term] - was.terms[term]) for term in was.terms)
    assert most > 1e-6 * was.step_time


END = {
    "no update": (PIPE, Update),
    "no meeting": (PIPE, Barrier),
    "no swap": (PIPE, PairAllreduce),
    "exchange not waited for": (LATE, Wait),
    "weights not gathered after the update": (ONE, Collective),
    "moved state not waited for": (
        {**AWAY, "host": {"machine.host_link": {"latency": 0.0, "bandwidth": 1e7}}},
        Wait,
    ),
}


@pytest.mark.parametrize("name", END)
def test_a_mutant_of_the_end_of_a_step_is_caught(name):
    case, kind = END[name]
    run = run_of(case).set(case.get("host", {}))
    whole = program(run)
    kept = tuple(row for row in whole.end if not any(isinstance(what, kind) for what in row))
    mutant = dataclasses.replace(whole, end=kept)
    if kind is Barrier:
        paths = []
        for each in (whole, mutant):
            path = StagePath(each, 1.0)
            path.run()
            path.finish()
            paths.append(path.clock)
        assert paths[0] != paths[1]
        return
    assert price(mutant).total < price(whole).total * (1 - 1e-9)


def test_a_kind_is_one_pass_and_one_line(monkeypatch):
    """A toy kind: an all-gather of 1000 numbers after each forward pass. Every engine has it."""

    def toy(experiment, held, passes):
        gathered = Collective("toy", "tensor", "allgather", 1000.0, "weights")
        passes.forward.append(gathered)

    run = run_of(TENSOR)
    before = float(predict(run).step_time)
    monkeypatch.setattr(step, "PASSES", (*step.PASSES, toy))
    monkeypatch.setitem(KINDS, "toy", "toy exchange")
    step._passes.cache_clear()
    try:
        found = predict(run)
        prove([program(run)])
        assert found.messages["toy"].total > 0
        assert found.exposed["toy"] == pytest.approx(float(found.messages["toy"].total))
        rounds, events = (simulate(run, fidelity) for fidelity in ("rounds", "events"))
        assert found.step_time == pytest.approx(before + found.exposed["toy"], rel=1e-9)
        for played in (rounds, events):
            assert breakdown(played).step_time == pytest.approx(float(found.step_time), rel=1e-9)
        assert any("toy exchange" in name for name in events.names)
    finally:
        step._passes.cache_clear()


def test_a_plain_network_has_no_message():
    whole = program(run_of(only("equal", pipeline=4, microbatches=8)).set({"strategy.pipeline": 1}))
    (stage,) = whole.stages
    for block in (stage[0].forward, stage[0].backward):
        assert all(isinstance(each, Compute) for each in block.variants[0].instructions)


def test_the_split_step_is_the_price_of_its_program():
    run = run_of(PIPE)
    assert split_step(run, 1.0).total == pytest.approx(float(predict(run).step_time), rel=1e-12)
