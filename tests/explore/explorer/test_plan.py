"""How far a prediction can be trusted: its error where it was published, else what it was calibrated on."""

import asyncio
from dataclasses import replace

import pytest
from patience import PATIENCE

from lib_dlhpc.explore.explorer import plan as module
from lib_dlhpc.explore.explorer.choice import Choice, experiment_of
from lib_dlhpc.explore.explorer.plan import Plan, trust
from lib_dlhpc.explore.explorer.presets import of_file, preset
from lib_dlhpc.prediction import compute_scale, predict
from lib_dlhpc.prediction.changes.advice import Advice
from lib_dlhpc.prediction.clear_caches import forget, remembered
from lib_dlhpc.prediction.validation.replays import replay, replays
from lib_dlhpc.prediction.validation.trust import FEW_WORDS, errors_of
from lib_dlhpc.spec.measured import Measured

pytestmark = pytest.mark.usefixtures("with_advice")


@pytest.mark.parametrize("run", replays(), ids=lambda run: run.name)
def test_a_published_run_carries_its_error(run):
    prediction = predict(run.experiment)
    error = float(prediction.time_to_train) / run.published_time - 1
    words, _, level = trust(prediction, run)
    assert words == f"{error:+z.1%}"
    assert level == ("good" if abs(error) <= 0.1 else "fair" if abs(error) <= 0.25 else "poor")


def test_a_calibrated_run_has_the_error_of_its_kind_however_it_was_calibrated():
    rated = replay("goyal-2017").experiment
    scaled = rated.set(
        {"calibration.rate": 0.0, "calibration.compute_scale": float(compute_scale(rated))}
    )
    for experiment in (rated, scaled):
        of = errors_of(experiment)
        words = (f"±{of.median:.0%}", f"{of.worst:.0%} at worst", "good")
        short, long, level = trust(predict(experiment), None)
        assert (short, long.split("; ")[1], level) == words


def test_few_tensor_ranks_on_many_nodes_are_fair_at_best():
    rated = preset("narayanan-2021").experiment
    _, words, level = trust(predict(rated.set({"strategy.tensor": 4})), None)
    assert (words.split(" at worst. ")[1], level) == (FEW_WORDS, "fair")


def test_a_run_without_a_measured_rate_has_the_range_of_its_kind():
    rated = preset("narayanan-2021").experiment
    prediction = predict(rated.set({"calibration.compute_scale": 0.0}))
    of = errors_of(rated)
    short, words, level = trust(prediction, None)
    assert short == f"{of.low - 1:+z.0%} to {of.high - 1:+z.0%}"
    assert (f"{of.rows} published runs" in words, level) == (True, "unknown")


def test_a_calibrated_run_of_which_none_is_like_is_calibrated_only():
    prediction = predict(preset("cosmoflow-2018").experiment)
    assert trust(prediction, None)[0] == "calibrated"


def test_a_run_on_catalog_rates_is_not_checked():
    assert trust(predict(preset("laptop").experiment), None)[0] == "not checked"


def test_advice_leaves_no_more_in_memory_than_one_prediction_does(monkeypatch):
    """A visitor's kernel would grow by 45 MB with each large network whose splits are tried."""
    choice = Choice(preset("narayanan-2021"))
    p = predict(experiment_of(choice))
    forget()
    predict(p.experiment)
    most = sum(cache.cache_info().currsize for cache in remembered())
    plan = Plan(lambda changes: None)
    monkeypatch.setattr(module, "KNOWN", {})
    plan.follow(p, (0, 0), choice)
    assert plan.state["changes"] and not plan.state["stale"]
    held = sum(cache.cache_info().currsize for cache in remembered())
    assert 0 < held <= most
    assert predict(p.experiment).terms == p.terms


@pytest.fixture
def looked_for(monkeypatch):
    """The experiments whose advice was looked for, from nothing known."""
    found = []

    def searched(p, applied):
        found.append((p.experiment, applied({"strategy.bucket": 1e6})))
        number = len(found)
        yield
        yield
        return Advice(f"advice {number}", "", {"strategy.batch": number})

    monkeypatch.setattr(module, "KNOWN", {})
    monkeypatch.setattr(module, "searched", searched)
    return found


def shown(choice, experiment=None):
    """Return what a page shows for a choice."""
    plan = Plan(lambda changes: None)
    plan.follow(predict(experiment or experiment_of(choice)), (0, 0), choice)
    return plan.state


def test_a_choice_that_returns_has_its_advice_and_each_other_choice_its_own(looked_for):
    first = Choice(preset("laptop"))
    faster = first.with_changes({"times.rate": 2})
    own = Choice(of_file(preset("laptop").experiment))  # its changes are applied to the file
    choices = [
        first,
        first.with_changes({"strategy.batch": 8}),
        faster,
        own,
        Choice(preset("goyal-2017")),
    ]
    states = [shown(choice) for choice in choices]
    assert len({state["words"] for state in states}) == len(choices) == len(looked_for)
    assert [shown(choice) for choice in choices] == states and len(looked_for) == len(choices)
    for choice, (experiment, applied) in zip(choices, looked_for, strict=True):
        assert experiment == experiment_of(choice)
        assert applied == experiment_of(choice.with_changes({"strategy.bucket": 1e6}))


def test_the_advice_on_a_measured_machine_is_looked_for_each_time(looked_for):
    choice, e = Choice(preset("laptop")), preset("laptop").experiment
    here = Measured("2026-01-31", "here", 2, 2, {}, {})
    measured = replace(e, machine=replace(e.machine, measured=here))
    assert shown(choice, measured) != shown(choice, measured)
    assert module.KNOWN == {}


def test_no_more_advice_is_kept_than_a_visitor_returns_to(looked_for, monkeypatch):
    monkeypatch.setattr(module, "MOST", 2)
    choices = [Choice(preset("laptop")).with_changes({"strategy.batch": n}) for n in (8, 16, 24)]
    for choice in (*choices, choices[2], choices[1], choices[0]):
        shown(choice)
    assert len(module.KNOWN) == 2 and len(looked_for) == 4


def test_a_move_comes_before_the_next_prediction_of_a_search_and_ends_it(looked_for):
    """Else it would wait for tens of predictions."""
    plan, (first, second) = (
        Plan(lambda changes: None),
        (Choice(preset(n)) for n in ("laptop", "you-2018")),
    )

    async def visit():
        done, moved = asyncio.Event(), []
        plan.observe(lambda event: event["new"]["stale"] or done.set(), "state")
        plan.wait()
        asyncio.get_running_loop().call_soon(lambda: moved.append(plan.state["stale"]))
        plan.follow(predict(experiment_of(first)), (1, 0), first)
        await asyncio.sleep(0)
        assert moved == [True]
        plan.wait()
        plan.follow(predict(experiment_of(second)), (2, 0), second)
        await asyncio.wait_for(done.wait(), PATIENCE)

    asyncio.run(visit())
    assert plan.state["words"] == "advice 2" and plan.state["answered"] == [2, 0]
    assert len(module.KNOWN) == 1
