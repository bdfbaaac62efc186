"""A plan finds what trying everything finds, and says what it has proved."""

import random

import pytest

from lib_dlhpc.errors import SpecError
from lib_dlhpc.planner import candidates, plan, search
from lib_dlhpc.planner.result import in_words, value
from lib_dlhpc.planner.search_space import met_before, space
from lib_dlhpc.prediction import predict
from lib_dlhpc.prediction.what_if import what_if
from lib_dlhpc.scale_out import place
from lib_dlhpc.spec.experiment import Experiment, dumps, loads


def drawn(dice):
    """Return a small run and the values to choose from."""
    model = {"family": "gpt", "layers": dice.choice([2, 4]), "hidden": dice.choice([16, 2048])}
    model |= {"heads": 4, "sequence": dice.choice([16, 256]), "vocabulary": 64}
    machine = dice.choice(["h100-pod", "selene", "summit"])
    strategy = {"nodes": dice.choice([1, 2]), "devices_per_node": 4, "batch": dice.choice([1, 4])}
    strategy |= {"optimizer": dice.choice(["sgd", "adam"])}
    choose = {
        "tensor": [1, 2],
        "pipeline": [1, 2],
        "sequence_parallel": [False],
        "schedule": dice.sample(["gpipe", "1f1b", "zb-h1"], 2),
        "zero": dice.sample([0, 1, 2, 3], 2),
        "recompute": dice.sample(["none", "selective", "full"], 2),
        "microbatches": [1, 2, 4],
    }
    return Experiment(model=model, machine=machine, strategy=strategy), choose


def everything(run, choose):
    combinations, found = space(run, choose), []
    for row in range(len(combinations)):
        try:
            prediction = predict(run.set(combinations.changes(row)))
        except SpecError:
            continue
        if prediction.fits:
            found.append(prediction)
    return found


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("objective", ["time", "energy"])
def test_the_best_is_the_best_of_all(seed, objective):
    run, choose = drawn(random.Random(seed))
    found = plan(run, objective, choose=choose)
    every = sorted(value(each, objective) for each in everything(run, choose))
    ranked = [value(choice.prediction, objective) for choice in found.ranked]
    assert found.gap == 0 and "proved" in found.certificate
    assert ranked[:11] == pytest.approx(every[:11], rel=1e-12)
    assert found.predicted + found.pruned <= found.legal


def test_the_best_alone_takes_fewer_predictions():
    run, choose = drawn(random.Random(5))
    alone, more = plan(run, choose=choose, best=1), plan(run, choose=choose)
    assert alone.gap == 0 and alone.best.changes == more.best.changes
    assert alone.predicted < more.predicted
    with pytest.raises(SpecError, match="legal: 1 and more"):
        plan(run, choose=choose, best=0)


def test_a_search_that_ends_early_says_how_far_it_may_be_off():
    run, choose = drawn(random.Random(3))
    best = value(plan(run, choose=choose).best.prediction, "time")
    early = plan(run, choose=choose, most=2)
    found = value(early.best.prediction, "time")
    assert early.predicted == 2 and early.pruned and found * (1 - early.gap) <= best


def test_a_choice_is_an_experiment_and_a_limit_holds():
    run, choose = drawn(random.Random(1))
    found = plan(run, ("time", "energy"), choose=choose)
    assert loads(dumps(found.best.experiment)) == found.best.experiment
    most = value(found.front[-1].prediction, "energy")
    limited = plan(run, "time", {"energy": most}, choose)
    assert all(value(choice.prediction, "energy") <= most for choice in limited.ranked)
    assert found.knee in found.front and len(found.along_the_front) == len(found.front) - 1
    assert "certificate" in repr(found) and "<table" in found._repr_html_()
    assert len({len(column) for column in found.to_columns().values()}) == 1


def test_a_plan_is_of_the_table_of_the_experiment_and_what_is_given_overrides_it():
    run, choose = drawn(random.Random(1))
    found = plan(run, ("time", "energy"), choose=choose, most=40)
    asked = run.set({"plan.objectives": ["time", "energy"], "plan.predictions": 40})
    asked = asked.set({f"plan.axes.{name}": values for name, values in choose.items()})
    assert plan(asked) == found and found.base.plan == asked.plan
    fewer = plan(asked, "energy", choose={"tensor": [2]})
    assert fewer.objectives == ("energy",)
    assert {choice.experiment.strategy.tensor for choice in fewer.ranked} == {2}


def test_the_fullest_device_of_a_plan_holds_no_more_than_its_limit():
    run, choose = drawn(random.Random(1))
    held = sorted(float(each.memory_total) for each in everything(run, choose))
    most = held[len(held) // 2]
    found = plan(run, limit={"memory": most}, choose=choose)
    assert max(float(c.prediction.memory_total) for c in found.ranked) <= most
    assert found.gap == 0 and found.left_out["over the limit of memory"]


def test_limits_that_only_exclude_all_layouts_at_once_are_named_with_what_was_reached():
    run, choose = drawn(random.Random(1))
    pairs = [(value(p, "time"), value(p, "memory")) for p in everything(run, choose)]
    least = [min(column) for column in zip(*pairs, strict=True)]
    assert tuple(least) not in pairs
    with pytest.raises(SpecError, match="each is met by some layout, all by none: ") as error:
        plan(run, limit={"time": least[0], "memory": least[1]}, choose=choose)
    assert all(
        in_words(*each) in str(error.value) for each in zip(least, ("time", "memory"), strict=True)
    )


def test_a_measured_rate_is_of_one_layout():
    """A plan prices other layouts as a change of that run does: to recompute costs time."""
    strategy = {"devices_per_node": 4, "batch": 64}
    run = Experiment("resnet50", machine="dlperf-v100", strategy=strategy)
    run = run.set({"calibration.rate": 300.0, "calibration.batch": 64})
    found = plan(run, choose={"recompute": ["none", "full"], "zero": [0], "microbatches": [1]})
    assert found.best.changes["strategy.recompute"] == "none"
    for choice in found.ranked[:8]:
        expected = predict(what_if(run, choice.changes)).step_time
        assert choice.prediction.step_time == pytest.approx(expected, rel=1e-9)


def test_the_present_layout_is_one_of_those_that_are_tried():
    strategy = {"devices_per_node": 4, "batch": 12, "pipeline": 2, "microbatches": 6}
    strategy |= {"schedule": "interleaved", "chunks": 3}
    model = {"family": "gpt", "layers": 8, "hidden": 16, "heads": 4, "sequence": 16}
    run = Experiment({**model, "vocabulary": 64}, machine="h100-pod", strategy=strategy)
    found = plan(run)
    assert found.best.prediction.time_to_train <= predict(run).time_to_train * (1 + 1e-12)


def test_progress_counts_up_and_may_end_the_search():
    run, choose = drawn(random.Random(2))
    seen = []
    plan(run, choose=choose, progress=lambda tried, of: seen.append((tried, of)))
    assert [tried for tried, _ in seen] == list(range(len(seen))) and seen[-1][1] >= len(seen)
    with pytest.raises(InterruptedError):
        plan(run, choose=choose, progress=lambda *_: (_ for _ in ()).throw(InterruptedError))


def test_what_the_network_does_not_allow_is_counted():
    """A network without experts has none to share out, and digits in a row have no space to split."""
    run = Experiment(model="mlp-digits", machine="selene", strategy={"nodes": 1, "batch": 8})
    found = plan(run, choose={"experts": [1, 2], "spatial": [1, 2], "tensor": [1], "pipeline": [1]})
    assert found.ranked and found.left_out["not legal: strategy.experts"]


def test_what_does_not_fit_is_counted():
    run = Experiment(
        model="gpt3-175b", machine="selene", strategy={"nodes": 1, "precision": "fp16"}
    )
    with pytest.raises(SpecError, match=r"does not fit.* More nodes may make it fit"):
        plan(run, choose={"pipeline": [1], "recompute": ["full"], "microbatches": [1, 2]})


@pytest.mark.parametrize(
    ("more", "word"),
    [
        ({"objective": "speed"}, "time"),
        ({"objective": ()}, "at least one"),
        ({"limit": {"watts": 1}}, "energy"),
    ],
)
def test_unknown_objectives(more, word):
    with pytest.raises(SpecError, match=word):
        plan(drawn(random.Random(1))[0], **more)


@pytest.mark.parametrize("objective", ["time", "energy", "cost"])
def test_candidates_that_are_not_held_are_beyond_those_that_are(monkeypatch, objective):
    run, choose = drawn(random.Random(1))
    whole = plan(run, objective, choose=choose)
    monkeypatch.setattr(search, "HELD", 10)
    found = plan(run, objective, choose=choose)
    assert (found.legal, found.same) == (whole.legal, whole.same)
    assert found.predicted <= 10 < whole.predicted and found.pruned > whole.pruned
    best, of_few = whole.best.values[objective], found.best.values[objective]
    assert of_few * (1 - found.gap) * (1 - 1e-12) <= best <= of_few
    monkeypatch.setattr(candidates, "SIZE", 17)
    cut = plan(run, objective, choose=choose)
    assert cut.to_columns() == found.to_columns()
    assert (cut.certificate, cut.pruned) == (found.certificate, found.pruned)


def test_a_plan_without_a_layout_says_how_many_were_not_tried(monkeypatch):
    run = Experiment(model="gpt-22b", machine="selene", strategy={"nodes": 2, "batch": 1})
    choose = {"tensor": [1, 8], "pipeline": [1, 2], "zero": [0, 1], "recompute": ["none", "full"]}
    monkeypatch.setattr(search, "HELD", 1)
    with pytest.raises(SpecError, match=r"others were not tried\."):
        plan(run, limit={"memory": 25e9}, choose=choose)


@pytest.mark.parametrize("on", ["here", "processes:2"])
def test_chunks_have_the_plan_of_the_whole_wherever_they_are_done(monkeypatch, on):
    run, choose = drawn(random.Random(1))
    whole = plan(run, choose=choose)
    monkeypatch.setattr(candidates, "SIZE", 17)
    cut = plan(run, choose=choose, where=place(on))
    assert cut.to_columns() == whole.to_columns()
    assert (cut.legal, cut.predicted, cut.pruned) == (whole.legal, whole.predicted, whole.pruned)
    assert (cut.left_out, cut.same, cut.gap) == (whole.left_out, whole.same, whole.gap)


def test_few_of_a_large_space_are_predicted():
    strategy = {"nodes": 128, "tensor": 8, "batch": 12, "precision": "fp16", "optimizer": "adam"}
    run = Experiment(model="gpt3-175b", machine="selene", strategy=strategy)
    choose = {"tensor": [4, 8], "sequence_parallel": [True], "recompute": ["selective"]}
    found = plan(run, choose=choose)
    assert found.gap == 0 and found.legal > 1000
    assert found.predicted < 40


def test_a_run_that_is_planned_again_has_the_nouns_that_are_known():
    strategy = {"nodes": 2, "batch": 4, "tensor": 2}
    first, again = (
        Experiment(model="gpt2-1.5b", machine="selene", strategy=strategy) for _ in range(2)
    )
    met_before(first)
    other = met_before(again.set({"plan.objectives": "energy"}))
    assert other.strategy is first.strategy and other.machine is first.machine
    assert other.plan.objectives == ("energy",)
    assert met_before(again.set({"strategy.tensor": 4})).strategy.tensor == 4


def test_layouts_whose_network_cannot_be_split_so_cost_no_predictions():
    """Four experts, all on one device each: a tensor group of two would have to halve them."""
    model = {"family": "gpt", "layers": 4, "hidden": 512, "heads": 4, "sequence": 512}
    model |= {"vocabulary": 4096, "experts": 4, "chosen": 1}
    strategy = {"nodes": 2, "batch": 4, "precision": "bf16", "optimizer": "adam"}
    run = Experiment(model=model, machine="selene", strategy=strategy)
    some, legal = (
        plan(run, choose={"experts": [4], "spatial": [1], "tensor": tensor})
        for tensor in ([1, 2, 4], [1])
    )
    assert some.legal > legal.legal
    assert some.predicted == legal.predicted
    assert some.best.changes == legal.best.changes
