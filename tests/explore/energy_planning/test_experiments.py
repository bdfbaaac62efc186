"""The lesson on energy and planning: every control moves something, fronts are fronts, a run reports its outcome."""

from typing import Any

import numpy as np
import pytest
from experiment_page import Now, button, result_text

from lib_dlhpc.errors import SpecError
from lib_dlhpc.explore.energy_planning import here, swings
from lib_dlhpc.explore.energy_planning.best_size import Setting as Size
from lib_dlhpc.explore.energy_planning.best_size import best, found_sizes, size_lines, size_view
from lib_dlhpc.explore.energy_planning.budget import (
    HOUR,
    KWH,
    Setting,
    budget_view,
    cost_of,
    front_lines,
    planned,
    within,
)
from lib_dlhpc.explore.energy_planning.charts import CAUSES, PLACES
from lib_dlhpc.explore.energy_planning.here import Ran, expected, problem_of, result_html, two_plans
from lib_dlhpc.explore.energy_planning.here import Setting as Here
from lib_dlhpc.explore.energy_planning.pipeline_slack import HIGHEST, found, the_slack
from lib_dlhpc.explore.energy_planning.pipeline_slack import Setting as Pipe
from lib_dlhpc.explore.energy_planning.planned_sizes import (
    FAST,
    GPUS,
    MACHINES,
    MEASURED,
    OLD,
    SLOW,
    family,
    planned_now,
    predicted_row,
)
from lib_dlhpc.explore.energy_planning.questions import ask
from lib_dlhpc.explore.energy_planning.to_accuracy import (
    TARGETS,
    by_cause,
    cost,
    predicted,
    runs,
    the_map,
    wall_of,
)
from lib_dlhpc.explore.energy_planning.to_accuracy import Setting as Run
from lib_dlhpc.planner.model_sizes import LAYERS

ONE, OTHER = (
    Ran(10_000.0, seconds, accuracy, 7 * seconds, "modeled")
    for seconds, accuracy in ((1.2, 0.91), (2.4, 0.89))
)


def test_every_cause_and_place_has_a_look():
    assert set(CAUSES) == set(by_cause(Run())) and set(PLACES) == set(runs(0.76).named)


# swings ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("event", [swings.EXCHANGE, swings.CHECKPOINT])
def test_each_way_of_smoothing_shrinks_the_swing_at_its_own_price(event):
    plain = swings.found(swings.Setting(event=event))
    assert plain.smooth.swing == pytest.approx(plain.plain.swing) and plain.more == 0
    price = {}
    for name, value in (("jobs", 8), ("floor", 0.95), ("battery", 0.9)):
        own = swings.found(swings.Setting(event=event, **{name: value}))
        assert own.smooth.swing < 0.2 * plain.plain.swing
        assert swings.wall(own) == ""
        price[name] = own.more
    assert price["jobs"] < 1e-9 < price["battery"] < price["floor"]


def test_a_battery_for_a_checkpoint_holds_far_more_than_one_for_an_exchange():
    short, long = (
        swings.found(swings.Setting(event=event, battery=0.9)).held
        for event in (swings.EXCHANGE, swings.CHECKPOINT)
    )
    assert long > 100 * short > 0


def test_the_line_of_a_chart_has_the_energy_of_its_wave():
    setting = swings.Setting(floor=0.8, jobs=2)
    own, data = swings.found(setting), swings.swings_state(setting)[0]["lines"]
    for name, wave in ((swings.AS_IT_IS, own.plain), (swings.SMOOTHED, own.smooth)):
        at = [k for k, line in enumerate(data["line"]) if line == name]
        x, y = (np.array(data[axis])[at] for axis in ("x", "y"))
        assert x[0] == 0 and x[-1] == pytest.approx(swings.PERIODS * own.plain.period)
        assert set(np.round(y, 6)) == set(np.round(wave.watts, 6))
        if name == swings.AS_IT_IS:
            assert (np.diff(x) * y[:-1]).sum() == pytest.approx(swings.PERIODS * wave.joules)


# to an accuracy -------------------------------------------------------------------------------------


@pytest.mark.parametrize("target", TARGETS)
def test_no_run_is_better_than_one_of_the_front_in_both(target):
    own = runs(target)
    for row in own.front:
        better = (own.costs <= own.costs[row]).all(axis=1) & (own.costs < own.costs[row]).any(
            axis=1
        )
        assert not better.any()
    assert own.knee in own.front


def test_all_runs_at_once_are_each_run_alone():
    own = runs(0.76)
    for row in range(0, len(own.settings), 40):
        assert own.costs[row] == pytest.approx(cost(own.settings[row])[:2], rel=1e-9)


def test_causes_add_up_to_the_energy():
    for setting in runs(0.76).named.values():
        assert sum(by_cause(setting).values()) == pytest.approx(cost(setting).joules)


def test_what_nobody_measured_is_refused_and_what_does_not_fit_says_so():
    assert "65,536 is beyond 8,192" in wall_of(Run(batch=65536))
    assert wall_of(Run(2048, 65536, target=0.66)) == ""
    assert "too much" in wall_of(Run(gpus=32))
    assert "too few for 2,048 GPUs" in wall_of(Run(2048, 1024))
    view = the_map.view(Run(batch=65536))
    assert view.wall and not view.charts["energy_map"][0]["now"]


def test_what_is_better_in_both_is_named():
    assert "No other run" in the_map.view(Run()).words
    assert "less energy" in the_map.view(Run(limit=125)).words
    assert predicted(Run()).to_accuracy.known


# a budget -------------------------------------------------------------------------------------------


def test_the_pick_is_within_the_budget_and_the_best_there():
    front = [cost_of(choice) for choice in planned(Setting().network).front]
    frugal, quick = (within(Setting(hours=48 * HOUR, then=then)) for then in ("energy", "time"))
    assert frugal and quick
    allowed = [each for each in front if each.joules <= 300 * KWH]
    assert cost_of(frugal).joules == min(each.joules for each in allowed)
    assert cost_of(quick).seconds == min(each.seconds for each in allowed)
    assert len(front_lines(Setting())) == 1 + len(front)


def test_what_no_budget_allows_says_which_price_is_too_low():
    assert budget_view(Setting(hours=12 * HOUR)).wall.startswith("Time:")
    assert budget_view(Setting(energy=140 * KWH)).wall.startswith("Energy:")
    assert "ccuracy not assessed" in budget_view(Setting()).words


def test_the_batch_stays_in_every_choice():
    assert {int(c.experiment.global_batch) for c in planned(Setting().network).ranked} == {128}


# a model size ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(("machine", "gpus"), [(FAST, 64), (SLOW, 512), (OLD, 8)])
def test_stored_sizes_are_what_the_planner_finds(machine, gpus):
    """After a change of predictions: python -m lib_dlhpc.explore.energy_planning.planned_sizes.

    Every second size of a machine, of one the others: all are stored at once.
    """
    some = slice(machine == SLOW, None, 2)
    planned = planned_now(machine, gpus, LAYERS[some])
    for stored, now in zip(family(machine, gpus)[some], planned, strict=True):
        assert stored[:4] == pytest.approx(now[:4], rel=1e-5)  # stored with six digits
        # Of layouts that take equally long the search may have tried one only: rounding decides.
        assert stored.watts == pytest.approx(now.watts, rel=0.05, nan_ok=True)


def test_all_machines_are_stored():
    for machine in MACHINES:
        for gpus in GPUS:
            assert [each.layers for each in family(machine, gpus)] == list(LAYERS)


def test_the_lowest_mark_of_each_line_is_named_and_lines_are_of_all_sizes_that_train():
    data, words = size_view(Size()).charts["size_loss"]
    for name, x, y in zip(*(data["marks"][key] for key in ("line", "x", "y")), strict=True):
        own = [at for at, line in enumerate(data["points"]["line"]) if line == name]
        assert len(own) == len(family(FAST, 64))
        least = min(own, key=lambda at: data["points"]["y"][at])
        assert (data["points"]["x"][least], data["points"]["y"][least]) == (x, y)
    assert "6.74 billion parameters" in words


def test_hollow_marks_and_the_wall_are_beyond_what_was_measured():
    own = found_sizes(Size())
    points = size_view(Size()).charts["size_loss"][0]["points"]
    measured = points["measured"][: len(own.family)]
    assert measured == [not own.beyond(row) for row in range(len(own.family))]
    assert size_view(Size()).wall == ""
    assert "35.1 billion parameters are outside the fitted range" in size_view(Size(days=90)).wall


def test_a_machine_names_its_measured_rate_and_the_error_of_another():
    for machine, measured in MEASURED.items():
        words = size_view(Size(machine)).words
        assert measured.start in words and f"{measured.tested} is then predicted within 4%" in words
        assert 0.03 < abs(predicted_row(measured).error) < 0.04


def test_a_size_that_does_not_fit_is_in_no_line_of_the_table():
    lines = size_lines(Size(gpus=8))
    assert len(lines) < len(size_lines(Size())) == 1 + len(family(FAST, 64))
    assert sum("(best)" in line[0] for line in lines) == 1
    assert "fit in no layout" in size_view(Size(gpus=8)).charts["size_utilization"][1]


def test_more_days_and_a_faster_network_never_raise_the_lowest_loss():
    days = [found_sizes(Size(days=days)).loss.min() for days in (1, 3, 10, 30, 90)]
    assert days == sorted(days, reverse=True)
    assert found_sizes(Size(gpus=512)).loss.min() < found_sizes(Size(SLOW, 512)).loss.min()
    assert best(Size(served=1e12)).weights < best(Size()).weights


def test_a_budget_that_serving_uses_up_says_so():
    with pytest.raises(SpecError, match="does not cover"):
        size_view(Size(gpus=8, days=1, served=3e12))


# slack ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("schedule", ["gpipe", "1f1b", "zb-h1"])
def test_bars_of_a_stage_do_not_overlap_and_end_with_the_step(schedule):
    for clocks in (HIGHEST, Pipe().clocks):
        setting = Pipe(schedule=schedule, clocks=clocks)
        bars = the_slack.view(setting).charts["energy_slack"][0]["passes"]
        stage, start, stop = (np.array(bars[name]) for name in ("stage", "start", "stop"))
        assert stop.max() == pytest.approx(found(setting).step)
        for each in range(1, 9):
            own = np.argsort(start[stage == each])
            late, early = start[stage == each][own][1:], stop[stage == each][own][:-1]
            assert np.all(late >= early - 1e-9)


def test_where_there_is_little_slack_it_says_why():
    assert "GPUs compute for" in the_slack.view(Pipe(stages=2)).wall
    assert "In GPipe" in the_slack.view(Pipe("gpt3-175b", schedule="gpipe")).wall
    assert the_slack.view(Pipe()).wall == ""


# here -----------------------------------------------------------------------------------------------


def test_plan_a_calibrates_and_plan_b_is_predicted_from_it():
    samples = float(here.experiment(Here(), 32).run.epochs) * 4000
    seconds, joule = expected(Here(), 32, 10_000.0)
    assert seconds == pytest.approx(samples / 10_000, rel=1e-6)
    assert 0 < joule <= 7 * seconds * (1 + 1e-9)
    assert expected(Here(), 512, 10_000.0)[0] < 10 * 4000 / 10_000  # large products are faster


def test_two_plans_are_reported_side_by_side():
    words = here.words_of(ONE, OTHER)
    assert "Plan A was 2 times as fast" in words and "B 89.0%, missed" in words
    html = result_html(Here(), ONE, OTHER)
    assert html.count("<tr>") == 3 and "confirms nothing" in html


def test_equal_plans_are_refused_before_they_start():
    assert problem_of(Here(other=32)) and not problem_of(Here())
    page = two_plans(lambda *_: pytest.fail("started"), thread=Now)
    page.controls["other"].value = 32
    button(page, "Train").click()
    assert "choose two" in result_text(page)


def test_an_error_of_a_run_takes_its_place():
    def fails(*_: Any) -> Any:
        raise SpecError("No ranks here.")

    page = two_plans(fails, thread=Now)
    button(page, "Train").click()
    assert "No ranks here." in result_text(page) and not button(page, "Train").disabled


def test_the_check_computes_with_the_law_of_limits():
    asked = ask("own_limit", seed=1).question
    asked.answer("1000")
    assert "φ⁴" in asked.answer("2000")["words"]
