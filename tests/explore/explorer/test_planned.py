"""The explorer's section "Plan this": the same plan as everywhere, its gain over what is shown, and Apply."""

import pytest
from experiment_page import Now, button, click, words

from lib_dlhpc.explore.explorer.page import Explorer
from lib_dlhpc.explore.explorer.planned import AUTO, OTHER, SHOWN, Moved
from lib_dlhpc.planner import plan
from lib_dlhpc.prediction import predict
from lib_dlhpc.spec.experiment import Experiment

pytestmark = pytest.mark.usefixtures("own_state")


FEW = {"axes": {"schedule": "1f1b", "chunks": 1, "recompute": "none", "spatial": 1}}


def opened(planning=FEW, **strategy):
    model = {"family": "gpt", "layers": 2, "hidden": 64, "heads": 4, "sequence": 16}
    layout = {"devices_per_node": 4, "batch": 16, "tensor": 4, **strategy}
    machine = {"name": "laptop", "devices_per_node": 4}
    run = Experiment({**model, "vocabulary": 64}, None, machine, layout, plan=planning)
    page = Explorer(run)
    page.planned.runner.thread = Now
    page.planned.opened.value = True
    return page


def test_it_shows_the_best_layouts_with_their_gain_and_what_changes():
    page = opened()
    found, now = plan(page.experiment), predict(page.experiment)
    rows = page.planned.layouts.children
    assert len(rows) == SHOWN
    for row, choice in zip(rows, found.ranked, strict=False):
        assert choice.words in words(row) and "Changes tensor 4 →" in words(row)
        saved = 1 - float(choice.prediction.time_to_train) / float(now.time_to_train)
        assert f"{saved:.1%} less time" in words(row)
    assert "Proved best" in words(page.planned.runner.widget)
    assert "Left out" in words(page.planned.runner.widget)


def test_apply_sets_the_controls_and_undo_takes_it_back():
    page = opened()
    before, best = page.experiment, page.planned.found.best
    click(page.planned.layouts.children[0], "Apply")
    assert page.experiment.strategy == before.set({**best.changes, **AUTO}).strategy
    applied = predict(page.experiment).time_to_train
    assert applied == pytest.approx(best.prediction.time_to_train, rel=1e-12)
    first, *rest = page.planned.layouts.children
    assert "This is what is shown now" in words(first) and button(first, "Apply") is None
    assert "more time" in "".join(map(words, rest))
    page.move("strategy.devices_per_node", 2)
    assert page.experiment.devices == 2
    page.history.undo()
    page.history.undo()
    page.refresh()
    assert page.experiment == before


def test_it_is_asked_what_the_experiment_asks():
    planning = {"objectives": ["energy", "time"], "axes": {"recompute": ["full"]}}
    page = opened(planning)
    assert page.planned.found.objectives == ("energy", "time")
    assert all("recompute full" in words(row) for row in page.planned.layouts.children)
    assert "knee of the front" in words(page.planned.layouts)


def test_a_plan_of_other_settings_is_not_shown():
    page = opened()
    page.move("strategy.tensor", 2)
    assert page.planned.layouts.children  # another layout of the same question
    page.move("strategy.batch", 64)
    assert not page.planned.layouts.children and OTHER in words(page.planned.runner.widget)
    click(page.planned.runner.widget, "Plan again")
    assert len(page.planned.layouts.children) == SHOWN


def test_settings_that_change_during_the_search_are_planned_instead():
    page = opened()
    asked = page.experiment
    page.move("strategy.batch", 64)
    with pytest.raises(Moved):
        page.planned.reports(asked)(0, 1)
    page.planned.reports(page.experiment)(0, 1)


def test_why_nothing_can_be_planned():
    page = opened({"limits": {"memory": 1}})
    assert "No layout is within the limits: the least memory" in words(page.planned.runner.widget)
    assert not page.planned.layouts.children
