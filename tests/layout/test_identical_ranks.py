"""Places of a pipeline that are alike: one stands for all, and nothing that is priced differs."""

from dataclasses import fields, replace

import pytest
from frozen_steps import CASES, run_of

from lib_dlhpc.layout import chain, parts, representative, represented
from lib_dlhpc.layout.parts import stages_of
from lib_dlhpc.layout.stage_parts import RankLayers
from lib_dlhpc.parallel import step
from lib_dlhpc.prediction import predict
from lib_dlhpc.prediction.memory import rank_parts
from lib_dlhpc.spec.experiment import loads
from lib_dlhpc.spec.model import Model

PIPELINES = [case for case in CASES if "pipeline" in case["strategy"]]
GPT = loads("""
[model]
name = "gpt3-175b"
[dataset]
name = "webtext"
[machine]
name = "selene"
[strategy]
nodes = 128
devices_per_node = 8
tensor = 8
pipeline = 16
microbatches = 32
batch = 32
""")


def alike(experiment):
    """Return, for each place in the pipeline, the first place that has the same parts."""
    every = [id(held) for held in represented(experiment)]
    return [every.index(held) for held in every]


def test_most_stages_of_a_transformer_are_alike():
    like = alike(GPT)
    assert len(set(like)) <= 6 and like.count(like[0]) == like.count(like[-1]) == 1
    first, other = (parts(GPT, 64 * place)[0].model for place in (like[7], 7))
    assert first.layers[0].name != other.layers[0].name and like[7] != 7
    assert first.parameters == other.parameters


def test_no_part_keeps_texts_of_its_own_for_its_layers():
    """Caches hold thousands of parts: a name for the block of each layer took 4 MB of 3,000 splits."""
    predict(GPT)
    stated = {each.name for each in fields(Model)}
    for part in {part for held in represented(GPT) for part in held}:
        derived = [value for name, value in vars(part.model).items() if name not in stated]
        assert derived and not any(type(one) is tuple and type(one[0]) is str for one in derived)


@pytest.mark.parametrize(
    "changes",
    [
        {"pipeline": 5, "nodes": 125},
        {"microbatches": 8},
        {"schedule": "interleaved", "chunks": 2},
        {"schedule": "interleaved", "chunks": 5, "pipeline": 4},
    ],
    ids=str,
)
def test_places_that_are_alike_have_equal_layers(changes):
    """Also where stages have different lengths, and the last holds the table of the first."""
    run = GPT.set({f"strategy.{name}": value for name, value in changes.items()})
    for place, first in enumerate(alike(run)):
        here, there = parts(run, 64 * place), parts(run, 64 * first)
        for one, other in zip(here, there, strict=True):
            pairs = zip(one.model.layers, other.model.layers, strict=True)
            for a, b in pairs:
                same = {"name": a.name, "inputs": a.inputs, "attributes": a.attributes}
                assert replace(b, **same) == a and a.attributes.keys() == b.attributes.keys()
            assert len(one.receives) == len(other.receives) and len(one.sends) == len(other.sends)


def test_pipelines_with_equal_stages_share_what_stands_for_them():
    """Their middle stages are the same objects; the last holds a table of the first, a stage of another number."""
    chunks = {"pipeline": 4, "chunks": 4, "schedule": "interleaved"}
    run = GPT.set({"strategy.recompute": "full"})  # fits in memory with equal stages
    four = run.set({f"strategy.{name}": value for name, value in chunks.items()})

    def stages(split):
        held = [part for chunk in zip(*represented(split), strict=True) for part in chunk]
        return [representative(run.model, part) for part in held]

    deep, chunked, short = (stages(each) for each in (run, four, run.set({"strategy.pipeline": 8})))
    assert all(one is other for one, other in zip(deep, chunked, strict=True))
    assert not {*map(id, deep)} & {*map(id, short)}


@pytest.mark.parametrize("case", PIPELINES, ids=lambda case: f"{case['model']} {case['strategy']}")
def test_stages_of_equal_likeness_have_like_parts(case):
    stages, found = stages_of(run_of(case)), {}
    for stage in range(len(stages)):
        first = found.setdefault(stages.likeness(stage), stage)
        assert stages[stage].likeness == stages[first].likeness


def test_one_stage_of_each_kind_is_made(monkeypatch):
    """A pipeline of 96 stages has three kinds: the first, the last, and all others."""
    made, part = [], RankLayers.part
    monkeypatch.setattr(RankLayers, "part", lambda *given: made.append(given[1]) or part(*given))
    run = GPT.set({"strategy.pipeline": 96, "strategy.nodes": 96, "strategy.batch": 33})
    represented(run.set({"strategy.microbatches": 33}))
    assert made == [0, 1, 95]


def test_a_rank_has_no_part_twice():
    """Layers of its chunks keep their own names: units of weights differ by these."""
    chunks = {"pipeline": 4, "chunks": 4, "schedule": "interleaved"}
    run = GPT.set({f"strategy.{name}": value for name, value in chunks.items()})
    for held in represented(run):
        names = [layer.name for part in held for layer in part.model.layers if layer.parameters]
        assert len(names) == len({*names})


@pytest.mark.parametrize("case", PIPELINES, ids=lambda case: f"{case['model']} {case['strategy']}")
def test_one_that_stands_for_all_changes_nothing(case, monkeypatch):
    run = run_of(case)
    shared = predict(run)
    for room in (step, rank_parts):
        monkeypatch.setattr(room, "represented", chain)
    step._passes.cache_clear()
    apart = predict(run)
    assert shared.terms == pytest.approx(apart.terms, rel=1e-12)
    assert shared.memory == pytest.approx(apart.memory, rel=1e-15)
    assert [one.total for one in shared.moments] == [one.total for one in apart.moments]
