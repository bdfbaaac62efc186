"""The lesson on failures: formulas and simulated runs agree, walls say why, a real run survives."""

import re
import threading
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from experiment_page import Now, button, click, controls, result_text

from lib_dlhpc.errors import SpecError
from lib_dlhpc.explore.blocks.runner import Cancelled
from lib_dlhpc.explore.failures import machine as failures_machine
from lib_dlhpc.explore.failures.charts import PHASES, TICKS
from lib_dlhpc.explore.failures.interval import (
    AT,
    DAY,
    INTERVALS,
    Setting,
    found,
    interval_wall,
    phases_view,
    shares_at,
    simulated_points,
    the_interval,
)
from lib_dlhpc.explore.failures.live import Outcome, fail_here, mtbf_of, rows_of
from lib_dlhpc.explore.failures.losses import RUNS, simulated_words
from lib_dlhpc.explore.failures.machine import Alone, Leg, Survived
from lib_dlhpc.explore.failures.machine import Setting as Machine
from lib_dlhpc.explore.failures.questions import ask
from lib_dlhpc.explore.failures.ways import BEST, WAYS, say, ways_view, ways_walls
from lib_dlhpc.explore.failures.ways import Setting as Saved
from lib_dlhpc.explore.failures.ways import found as saved
from lib_dlhpc.launch.local import JobError

HUGE = Setting(131072, 30 * DAY)


ALONE = Alone(1.0, 10.0, 0.5, 0.01, 1000, b"weights", 0.9)
LEGS = [
    Leg(0.0, 1.1, 4.0, 0, 290, 1),  # 290 steps, of which 200 are kept
    Leg(4.0, None, 4.9, 200, 200, 0),  # killed before it trained
    Leg(5.0, 6.5, 14.5, 200, 1000),
]
OWN = Survived(LEGS, 15.0, b"weights")
OUTCOME = Outcome(Machine(4.0, 100, 2, 0), ALONE, OWN)


def test_nothing_is_said_by_color_alone():
    drawn = {kind: look[1:] for kind, look in PHASES.items() if kind != "wait"}
    assert len(set(drawn.values())) == len(drawn)


# the interval ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("setting", [Setting(), Setting(512), Setting(rate=2e12, restart=0.0)])
def test_what_is_lost_is_the_sum_of_its_causes_and_least_at_the_best_interval(setting):
    shares = shares_at(setting, AT)
    np.testing.assert_allclose(sum(shares.values()), 1)
    best = float(found(setting).best)
    lost = 1 - shares["training"]
    assert np.argmin(lost) in (np.searchsorted(AT, best) - 1, np.searchsorted(AT, best))
    assert 1 - float(found(setting).best_goodput) <= lost.min() + 1e-9


@pytest.mark.parametrize("setting", [Setting(), Setting(2048), Setting(131072, restart=60.0)])
def test_simulated_runs_lose_what_the_formula_says(setting):
    points = simulated_points(setting)
    assert len(points) == 5
    for _, mean, low, high, predicted in points:
        assert mean == pytest.approx(predicted, rel=0.03)
        assert low < predicted < high
    assert "of the formula" in simulated_words(points)


def test_what_hardly_makes_progress_is_not_simulated():
    assert simulated_points(Setting(131072, 30 * DAY, restart=1800.0)) == ()
    assert "Not simulated" in simulated_words(())


@pytest.mark.parametrize("setting", [Setting(), Setting(interval=3600.0), HUGE])
def test_phases_of_a_run_follow_each_other_without_a_gap(setting):
    data, summary = phases_view(setting)
    bars, end = data["bars"], data["room"]["x"][1]
    assert bars["start"][0] == 0 and bars["stop"][-1] == pytest.approx(end)
    np.testing.assert_allclose(bars["start"][1:], bars["stop"][:-1])
    assert f"{len(data['strikes'].get('x', []))} failure" in summary
    assert end / data["room"]["step"][0] <= 7 and data["room"]["step"][0] in TICKS


def test_walls_name_the_cause():
    assert interval_wall(Setting()) == ""
    assert "Save more often" in interval_wall(Setting(interval=DAY))
    assert "Save less often" in interval_wall(Setting(interval=30.0))
    assert "faster files do" in interval_wall(Setting(131072, 30 * DAY, "GPT, 1 T weights", 1e9))
    restarts = Setting(131072, 30 * DAY, "GPT-2, 1.5 billion parameters", 2e12, 1800.0, 30.0)
    assert "a restart takes" in interval_wall(restarts)


def test_simulating_puts_points_on_the_chart_and_another_setting_takes_them_off():
    page = the_interval()
    click(page, f"Simulate {RUNS} runs")
    figure = page.charts["failures_loss"]
    assert len(figure.data["simulated"]["x"]) == 5 and "Simulated.</b>" in result_text(page)
    controls(page)["Interval"].value = INTERVALS[0]
    assert figure.data["simulated"] == {} and "Simulated.</b>" not in result_text(page)


def test_the_check_asks_for_youngs_interval_of_all_nodes_together():
    card = ask("own_interval", seed=1)
    asked = card.question
    numbers = re.findall(r"(\d+)(?: nodes| days;| s\. What)", asked.question.replace(",", ""))
    nodes, days, cost = (float(number) for number in numbers)
    of_one_node = np.sqrt(2 * cost * days * DAY) / 60
    assert "divide by the number of nodes" in asked.answer(f"{of_one_node:.6g}")["words"]
    assert asked.answer(f"{of_one_node / np.sqrt(nodes):.6g}")["right"]
    assert "BLOOM" in ask("published").value


# who waits ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("changes", [{}, {"writers": "first"}, {"rate": 1e9}, {"interval": BEST}])
def test_bars_end_where_what_is_left_begins(changes):
    setting = Saved(**changes)
    data, _ = ways_view(setting)
    for way, end in zip(data["ends"]["way"], data["ends"]["x"], strict=True):
        assert end == pytest.approx(1 - float(saved(setting, way).goodput), abs=1e-3)
    assert data["ends"]["way"] == list(WAYS) == list(say.words)


def test_each_way_loses_least_at_its_best_interval():
    for way in WAYS:
        best = float(saved(Saved(interval=BEST), way).goodput)
        assert all(best >= float(saved(Saved(interval=s), way).goodput) - 1e-9 for s in INTERVALS)


def test_walls_are_a_write_that_is_late_and_a_copy_that_does_not_fit():
    assert ways_walls(Saved()) == []
    late = ways_walls(Saved(interval=300.0, rate=10e9))
    assert len(late) == 2 and all("training waits" in wall for wall in late)
    (copy,) = ways_walls(Saved(writers="first"))
    assert "let all nodes write" in copy
    (copy,) = ways_walls(Saved("GPT, 1 T weights", memory=2e9))
    assert "take more nodes" in copy
    assert ways_walls(Saved(interval=BEST, rate=10e9)) == []  # who has the best one never waits


# the failure machine --------------------------------------------------------------------------------


def test_the_phases_add_up_to_all_of_it():
    parts = OUTCOME.measured
    assert sum(parts.values()) == pytest.approx(OWN.wall)
    assert OWN.again == [90, 0] and OWN.failures == [4.0, 4.9]
    steps = 290 + 800
    assert parts["repeated work"] == pytest.approx(OWN.training * 90 / steps)
    assert parts["restart"] == pytest.approx(6.5 - 4.0)


def test_rows_are_without_gaps_and_the_failures_are_where_ranks_were_killed():
    rows, span = rows_of(OUTCOME)
    for phases in rows.values():
        shown = [p for p in phases if p.kind != "write"]
        np.testing.assert_allclose([p.start for p in shown[1:]], [p.stop for p in shown[:-1]])
        assert shown[-1].stop <= span
    for name in ("measured", "simulated"):
        assert [p.stop for p in rows[name] if not p.ended] == OWN.failures
    again = [p for p in rows["measured"] if p.kind == "repeated work"]
    assert len(again) == 1 and again[0].start == 6.5  # after the leg that never trained


def test_the_simulated_run_has_the_failures_of_the_real_one():
    one = OUTCOME.simulated
    assert int(one.failures[0]) == 2
    assert float(one.seconds["training"][0]) == pytest.approx(ALONE.seconds)


def test_at_its_own_speed_training_is_as_long_as_measured():
    slow = [
        Leg(leg.started, leg.begun, leg.ended, leg.first, leg.reached, leg.killed) for leg in LEGS
    ]
    slow[-1].ended += 5.0
    outcome = OUTCOME._replace(own=Survived(slow, 20.0, b"weights"))
    assert outcome.predicted["training"] == pytest.approx(10.0, rel=0.02)
    parts = outcome.at_its_own_speed.predicted
    assert parts["training"] == pytest.approx(outcome.measured["training"], rel=0.02)
    assert parts["first start"] == 1.1


def test_a_run_is_reported_with_its_prediction_beside_it():
    page = fail_here(lambda *_: ALONE, lambda *_: OWN, thread=Now)
    assert not click(page, "Let it fail").disabled and button(page, "Cancel").disabled
    text = result_text(page)
    for words in (
        "After 2 failures it is done",
        "bitwise identical",
        "predicted",
        "at its own speed",
        "measured",
        "error",
        "On average",
        "Why they differ",
    ):
        assert words in text
    other = Survived(LEGS, 15.0, b"others")
    page = fail_here(lambda *_: ALONE, lambda *_: other, thread=Now)
    click(page, "Let it fail")
    assert "✗" in result_text(page) and "bitwise identical" not in result_text(page)


@pytest.mark.parametrize(
    "problem", [JobError("rank 1: a bad day"), SpecError("no MPI"), Cancelled()]
)
def test_what_goes_wrong_is_shown_and_it_can_be_tried_again(problem):
    def fails(*_: Any) -> Alone:
        raise problem

    page = fail_here(fails, lambda *_: OWN, thread=Now)
    assert not click(page, "Let it fail").disabled and button(page, "Cancel").disabled
    assert (str(problem) or "Cancelled.") in result_text(page)


class Endless:
    """A run that goes on until it is cancelled."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True)
        self.folder, self.state = folder, "running"

    def cancel(self) -> None:
        self.state = "cancelled"


def test_cancelling_ends_the_ranks_and_removes_the_folder():
    begun: list[Endless] = []
    stop = threading.Event()

    def begin(_: Any, ranks: int, folder: Path, *more: Any, **named: Any) -> Any:
        begun.append(Endless(folder))
        stop.set()
        return begun[0]

    for way in (failures_machine.undisturbed, partial(failures_machine.survive, mtbf=1.0)):
        begun.clear(), stop.clear()
        with pytest.raises(Cancelled):
            way(Machine(), stop=stop, begin=begin)
        assert begun[0].state == "cancelled" and not begun[0].folder.parent.exists()


def test_a_run_that_waits_for_its_turn_is_waited_for():
    stop = threading.Event()

    class Queued(Endless):
        """A run that is looked at three times before the learner cancels it."""

        looks, cancelled = 0, False

        @property
        def state(self) -> str:
            self.looks += 1
            if self.looks == 3:
                stop.set()
            return "cancelled" if self.cancelled else "queued"

        @state.setter
        def state(self, value: str) -> None:
            self.cancelled = value == "cancelled"

    begun: list[Queued] = []

    def begin(_: Any, ranks: int, folder: Path, *more: Any, **named: Any) -> Any:
        begun.append(Queued(folder))
        return begun[-1]

    with pytest.raises(Cancelled):
        failures_machine.undisturbed(Machine(), stop, begin)
    assert begun[0].cancelled and begun[0].looks >= 3


@pytest.mark.slow
def test_for_real_a_run_that_is_killed_again_and_again_ends_with_the_same_weights():
    pytest.importorskip("mpi4py")
    setting, never = Machine(4.0, 10, 2, 24), threading.Event()
    alone = failures_machine.undisturbed(setting, never)
    news: list[str] = []
    own = failures_machine.survive(setting, mtbf_of(setting, alone), never, news.append)
    assert len(own.failures) == len(news) >= 1
    assert own.weights == alone.weights
    assert all(steps <= 2 * setting.every for steps in own.again)  # one may be on its way
    assert own.legs[-1].reached == alone.steps
    assert sum(Outcome(setting, alone, own).measured.values()) == pytest.approx(own.wall)
