"""The lesson on large batches: every control moves something, walls stand where they say, runs can be cancelled."""

import threading
from typing import Any

import numpy as np
import pytest
from experiment_page import Now, button, controls, words
from patience import PATIENCE, eventually

from lib_dlhpc.errors import SpecError
from lib_dlhpc.explore.blocks.runner import Cancelled
from lib_dlhpc.explore.large_batch.charts import Curve, runs_state
from lib_dlhpc.explore.large_batch.live import (
    EPOCHS,
    Setting,
    asked_view,
    break_and_repair,
    experiment_of_setting,
    learn,
    peak_rate,
    run_wall,
)
from lib_dlhpc.explore.large_batch.questions import ask
from lib_dlhpc.explore.large_batch.real import RANKS, curve_of, experiment, result_words, train_here
from lib_dlhpc.explore.large_batch.rules import (
    BATCHES,
    NAMES,
    base,
    batch_wall,
    compared,
    growth_table,
    lars_step,
    mean,
    published,
    times_base,
)
from lib_dlhpc.explore.large_batch.time import (
    Cost,
    saved,
    seconds_to_accuracy,
    steps_to_accuracy,
    time_wall,
)
from lib_dlhpc.launch.local import JobError
from lib_dlhpc.spec.experiment import load

RESULT = {"accuracy": 0.93, "terms": {"forward": 0.01, "backward": 0.02}}


class FakeJob:
    """A run that is over after some looks, or when it is cancelled."""

    def __init__(self, folder: Any, looks: int = 2, failed: str = "", now: str = "running") -> None:
        self.folder, self.looks, self.failed, self.cancelled = folder, looks, failed, False
        self.now = now

    @property
    def state(self) -> str:
        self.looks -= 1
        return self.now if self.looks >= 0 and not self.cancelled else "done"

    def metrics(self) -> list[dict[str, Any]]:
        return [{"step": 4, "loss": 1.0}, {"epoch": 1.0, "accuracy": 0.5, "test_loss": 1.0}]

    def wait(self) -> dict[str, Any]:
        if self.failed or self.cancelled:
            raise JobError(self.failed or "The run was cancelled.")
        return RESULT

    def cancel(self) -> None:
        self.cancelled = True


def test_the_published_figure_is_flat_then_breaks_for_linear_scaling_alone():
    series = published()
    linear = {p.x: p.y for p in series["linear scaling"]}
    assert max(y for x, y in linear.items() if x <= 8192) - min(linear.values()) < 0.005
    assert linear[65536] - linear[8192] > 0.1
    assert all(p.y < linear[8192] + 0.02 for name in ("LARS", "another rule") for p in series[name])
    assert {p.words for p in series["LARS"]} == {"You 2018", "Jia 2018", "Ying 2018"}


def test_walls_of_the_stored_runs_say_who_breaks_where():
    assert batch_wall(times_base(1)) == batch_wall(times_base(8)) == ""
    assert "collapses to" in batch_wall(times_base(32))
    assert "of the gap" in batch_wall(times_base(32))
    assert "LARS breaks too" in batch_wall(4000)
    for batch in BATCHES:
        assert batch_wall(batch) == "" or str(batch // times_base(1)) in batch_wall(batch)


def test_two_rules_are_compared_seed_by_seed_and_missing_runs_are_reported():
    assert "t = " in compared(1024, "lars", "tuned")
    assert "more than chance" in compared(1024, "lars", "linear")
    assert "was not run at batch 32" in compared(32, "linear", "lamb")
    assert "Choose two rules" in compared(1024, "lars", "lars")
    for first in NAMES:
        for second in NAMES:
            compared(1024, first, second)


def test_growing_the_batch_is_shown_with_its_steps():
    text = growth_table().value
    assert f"{mean('growth', 32).steps:,}" in text and f"{mean('decay', 32).steps:,}" in text
    assert base().mean > 0.9


def test_a_first_step_of_lars_has_a_length_that_no_gradient_changes():
    assert lars_step(10, 0.1, 10) == pytest.approx(lars_step(10, 100, 10)) == pytest.approx(0.1)
    cards = {ask("first_step", seed).question.question for seed in range(20)}
    assert len(cards) > 10


def test_the_controls_of_a_live_run_are_its_experiment():
    e = experiment_of_setting(Setting(512, "LARS", 2.0, 16.0, 3))
    assert (e.global_batch, e.strategy.optimizer, e.run.seed) == (512, "lars", 3)
    assert (e.training.rate, e.training.warm_up, e.training.base_batch) == (20.0, 16.0, 0)
    linear = Setting(512)
    assert experiment_of_setting(linear).training.base_batch == 16
    assert peak_rate(linear) == pytest.approx(0.64)
    view = asked_view(linear)
    assert "32 times the base batch" in view.words and "0.64" in view.words
    data, _ = view.charts["rate_schedule"]
    assert max(data["line"]["y"]) == pytest.approx(0.64)


def test_a_run_reports_each_epoch_and_can_be_cancelled():
    reported = []

    def check() -> None:
        if len(reported) == 3:
            raise Cancelled

    with pytest.raises(Cancelled):
        learn(experiment_of_setting(Setting(512, "LARS")), lambda *row: reported.append(row), check)
    assert [epoch for epoch, _ in reported] == [1, 2, 3]


def test_a_button_trains_draws_and_keeps_the_last_six():
    page = break_and_repair(thread=Now)
    (batch, rule, *_) = controls(page).values()
    batch.value, rule.value = 1024, "LARS"
    train, clear = button(page, "Train"), button(page, "Clear")
    train.click()
    runs = page.children[1].children[-2]
    assert runs.data["lines"]["x"][-1] == EPOCHS
    assert "LARS 1,024" in runs.summary and "This run learned." in words(page)
    assert not train.disabled and button(page, "Cancel").disabled
    rule.value = "linear scaling"
    for _ in range(6):
        train.click()
    assert len(runs.data["ends"]["x"]) == 6 and "LARS" not in runs.summary
    assert "Wall" in words(page) and "chance is 10%" in words(page)
    clear.click()
    assert runs.data["ends"] == {}


def test_while_a_run_goes_on_it_can_be_cancelled_and_nothing_else(monkeypatch):
    page, seen = break_and_repair(thread=Now), []
    buttons = [button(page, name) for name in ("Train", "Clear", "Cancel")]
    monkeypatch.setattr(
        "lib_dlhpc.explore.large_batch.live.learn",
        lambda *_: seen.extend(each.disabled for each in buttons),
    )
    buttons[0].click()
    assert seen == [True, True, False]
    assert [each.disabled for each in buttons] == [False, False, True]


def test_a_run_that_learned_nothing_meets_a_wall_and_a_cancelled_one_does_not():
    assert "0.64" in run_wall(Setting(512), 0.1, False)
    assert run_wall(Setting(512), 0.1, True) == run_wall(Setting(512), 0.9, False) == ""
    assert "its share" in run_wall(Setting(512, "LARS", 4.0), 0.1, False)


def test_labels_of_runs_do_not_overlap():
    same = [Curve(str(i), [0, 1], [0.1, 0.95]) for i in range(6)]
    places = sorted(runs_state(same, 40, None)[0]["ends"]["place"])
    assert min(np.diff(places)) > 0.05


def test_steps_follow_the_critical_batch():
    steps = steps_to_accuracy(np.array([1e3, 1e4, 1e9]), 1e4)
    assert steps[1] == pytest.approx(2 * steps[2], rel=1e-3)
    assert steps[0] == pytest.approx(11 * steps[2], rel=1e-3)
    few, many = (Cost(critical=critical) for critical in (512, 2**18))
    assert seconds_to_accuracy(few, 256) > seconds_to_accuracy(many, 256)
    assert saved(few) < 0.1 < 0.4 < saved(many)


def test_walls_of_the_time_say_why():
    assert time_wall(Cost()) == ""
    assert "Memory" in time_wall(Cost(images=256))
    assert "critical batch" in time_wall(Cost(gpus=4096))
    assert "allreduce" in time_wall(Cost(gpus=4096, images=4, critical=2**18))


def test_the_experiment_file_is_the_run_of_the_page(repository):
    assert load(repository / "labs" / "experiments" / "large_batch.toml") == experiment()
    assert experiment().global_batch == times_base(32)
    assert experiment().devices == RANKS


@pytest.mark.parametrize("numbers", ["fp32", "fp64"])
def test_a_real_run_is_drawn_beside_one_rank(numbers, tmp_path):
    seen = []

    def begin(experiment: Any, ranks: int) -> FakeJob:
        seen.append((experiment.strategy.precision, ranks))
        return FakeJob(tmp_path / "run")

    panel = train_here(begin, Now)
    choice = panel.children[0]
    choice.value = numbers
    button(panel, f"Train on {RANKS} MPI ranks").click()
    text = words(panel)
    assert seen == [(numbers, RANKS)]
    assert "4 ranks 93.0%" in text and "predicted" in text and "simulated" in text
    assert "1: 4 ranks 50.0%; 2: one rank 9" in text
    assert ("Try float64" in text) == (numbers == "fp32")
    assert not button(panel, f"Train on {RANKS} MPI ranks").disabled
    assert curve_of(FakeJob(tmp_path).metrics()).accuracy == [0.1, 0.5]
    assert "times the prediction" in result_words(RESULT, 0.9, numbers)


@pytest.mark.parametrize("now", ["queued", "running"])
def test_a_real_run_can_be_cancelled(now, tmp_path):
    started, job = threading.Event(), FakeJob(tmp_path / "run", looks=10**6, now=now)

    def begin(experiment: Any, ranks: int) -> FakeJob:
        started.set()
        return job

    panel = train_here(begin)
    button(panel, f"Train on {RANKS} MPI ranks").click()
    assert started.wait(PATIENCE)
    cancel = button(panel, "Cancel")
    eventually(lambda: cancel.click() or "Cancelled." in words(panel))
    assert job.cancelled


@pytest.mark.parametrize(
    "mistake", [SpecError("There is no mpiexec here."), JobError("rank 2: Killed")]
)
def test_what_goes_wrong_is_reported(mistake):
    def begin(experiment: Any, ranks: int) -> Any:
        raise mistake

    panel = train_here(begin, Now)
    button(panel, f"Train on {RANKS} MPI ranks").click()
    assert str(mistake) in words(panel)
    assert not button(panel, f"Train on {RANKS} MPI ranks").disabled
