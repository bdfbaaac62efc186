"""A run from a page beside its prediction: what is shown, what is refused, and that it can be cancelled."""

from pathlib import Path
from typing import Any

import pytest
from experiment_page import Now, button, click, fills, words
from short_runs import Simulated, digits

from lib_dlhpc.comparison import Sweep
from lib_dlhpc.comparison.comparison import beside, estimated
from lib_dlhpc.comparison.placed import placed, why_not
from lib_dlhpc.comparison.steady import steps_of
from lib_dlhpc.comparison.sweep import Row
from lib_dlhpc.errors import SpecError
from lib_dlhpc.explore.blocks.drawing import drawings_of
from lib_dlhpc.explore.compare import drawings as compare_drawings
from lib_dlhpc.explore.compare.charts import (
    CAUSES,
    ROWS,
    compared_state,
    predicted_state,
    swept_state,
)
from lib_dlhpc.explore.compare.page import RunHere, compared, comparison_html
from lib_dlhpc.explore.compare.panel import no_longer_than_the_page
from lib_dlhpc.explore.compare.sweep import SweepHere, swept
from lib_dlhpc.explore.explorer.run import Run
from lib_dlhpc.launch.local import JobError
from lib_dlhpc.prediction import predict
from lib_dlhpc.prediction.validation.replays import replay
from lib_dlhpc.simulation import simulate
from lib_dlhpc.spec.experiment import Experiment
from lib_dlhpc.spec.host import cores

pytestmark = pytest.mark.usefixtures("own_state")


@pytest.fixture
def begin(tmp_path: Path) -> Any:
    return lambda experiment, ranks, folder: Simulated(experiment, ranks, tmp_path / "run")


def comparison(**strategy: Any) -> Any:
    expected = estimated(placed(digits(**strategy)))
    return expected, beside(expected, [steps_of(simulate(expected.placed.experiment, steps=9))])


def test_a_click_runs_it_and_shows_every_way(begin, tmp_path):
    panel = compared(digits(), begin=begin, thread=Now)
    assert "Nothing run yet" in words(panel)
    run = click(panel, "Run this here")
    assert not run.disabled and button(panel, "Cancel").disabled
    expected = words(panel)
    for row in ROWS.values():
        assert row in expected
    assert "off by" in expected and "dlhpc calibrate" in expected
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("reason", ["a rank fails", "no MPI"])
def test_a_run_that_fails_is_told_and_can_be_tried_again(reason):
    def begin(*_: Any) -> Any:
        raise SpecError("There is no mpiexec here.") if reason == "no MPI" else JobError("rank 2")

    panel = compared(digits(), begin=begin, thread=Now)
    assert not click(panel, "Run this here").disabled
    assert ("no mpiexec" if reason == "no MPI" else "rank 2") in words(panel)


def test_a_run_can_be_cancelled(tmp_path):
    class Endless(Simulated):
        state = "running"

        def metrics(self) -> list[dict[str, Any]]:
            button(panel, "Cancel").click()
            return [{"step": 3}]

        def cancel(self) -> None:
            self.state = "cancelled"

        def wait(self) -> None:
            raise JobError("The run was cancelled.")

    def begin(experiment: Experiment, ranks: int, folder: Any) -> Any:
        return Endless(experiment, ranks, tmp_path / "run")

    panel = compared(digits(), begin=begin, thread=Now)
    click(panel, "Run this here")
    assert "Cancelled." in words(panel)
    assert not button(panel, "Run this here").disabled
    assert not (tmp_path / "run").exists()


def test_what_the_trainer_cannot_run_says_why_and_has_no_button_to_press():
    panel = RunHere()
    panel.follow(replay("goyal-2017").experiment)
    assert panel.panel.run.disabled
    assert "Cannot be run here." in panel.panel.said.value and "imagenet" in panel.panel.said.value
    panel.follow(digits())
    assert not panel.panel.run.disabled


def test_more_ranks_than_cores_can_take_turns_are_refused():
    many = digits(devices_per_node=4)
    assert why_not(many) == ""
    assert f"4 ranks are too many for {cores()} core" in why_not(many, 3)


def test_another_experiment_takes_away_what_was_run_of_the_one_before(begin):
    panel = RunHere(begin=begin, thread=Now)
    panel.follow(digits())
    panel.panel.run.click()
    assert panel.found is not None and "measured here" in words(panel.widget)
    panel.follow(digits())
    assert panel.found is not None
    panel.follow(digits(batch=16))
    assert panel.found is None and "measured here" not in words(panel.widget)


def test_the_explorers_section_runs_nothing_before_it_is_opened():
    section = Run()
    section.follow(predict(digits()))
    assert section.panel is None
    section.opened.value = True
    assert section.panel is not None and section.panel.experiment == digits()
    section.follow(predict(digits(batch=16)))
    assert section.panel.experiment == digits(batch=16)
    section.opened.value = False
    assert section.body.children == ()


def test_shared_cores_are_said_once():
    """In the verdict, which stands above the chart, and not again above the table."""
    _, alone = comparison()
    many = cores() + 1
    _, shared = comparison(devices_per_node=min(many, 4))
    assert not alone.no_verdict
    if many <= 4:
        assert f"{many} ranks share" in shared.no_verdict
        assert f"{many} ranks share" not in comparison_html(shared)


def test_bars_lie_end_to_end_and_each_way_has_its_span():
    expected, found = comparison()
    for state in (predicted_state(expected), compared_state(found)):
        parts = state[0]["parts"]
        for row in dict.fromkeys(parts["row"]):
            own = [i for i, each in enumerate(parts["row"]) if each == row]
            assert parts["start"][own[0]] == 0
            ends = [parts["stop"][i] for i in own]
            assert [parts["start"][i] for i in own[1:]] == pytest.approx(ends[:-1])
        assert set(parts["part"]) <= set(CAUSES)
    data = compared_state(found)[0]
    assert data["ends"]["row"] == ["measured here"]
    assert data["sums"]["row"] == list(ROWS.values())


def test_a_sweep_has_a_point_for_each_setting_and_way():
    rows = [Row({"strategy.batch": batch}, comparison(batch=batch)[1]) for batch in (16, 32)]
    swept = Sweep({"strategy.batch": [16, 32, 0]}, (*rows, Row({"strategy.batch": 0}, None, "no")))
    data, summary = swept_state(swept)
    points = data["points"]
    assert points["way"] == list(ROWS.values()) * 2
    assert {setting.split()[0] for setting in points["setting"]} == {"16", "32"}
    assert points["seconds"][0] == rows[0].comparison.step["predicted"]
    assert "in the median" in summary


def test_a_sweep_from_a_page_shows_a_row_for_each_setting(begin):
    panel = swept(digits(), {"strategy.batch": [16, 32, "x"]}, begin=begin, thread=Now)
    assert "3 settings" in words(panel)
    click(panel, "Run them here")
    expected = words(panel)
    assert "in the median" in expected and "strategy.batch" in expected and "90% band" in expected


def test_runs_of_a_page_go_with_its_kernel_and_at_the_end(tmp_path):
    with no_longer_than_the_page(lambda *_: Simulated(digits(), 1, tmp_path / "run")) as begin:
        job = begin(digits(), 1, None)
        assert (job.folder / "timeline.npz").exists()
    assert not job.folder.exists()


def test_a_sweep_from_a_page_that_cannot_be_is_reported():
    panel = swept(digits(), {"strategy.bach": [1]}, thread=Now)
    assert not click(panel, "Run them here").disabled
    assert "Did you mean" in words(panel)


@pytest.mark.parametrize("name", drawings_of(compare_drawings))
def test_a_state_fills_every_dataset_and_field_of_its_drawing(name):
    _, found = comparison()
    states = {
        "compared": compared_state(found),
        "swept": swept_state(Sweep({"ranks": [1]}, (Row({"ranks": 1}, found),))),
    }
    fills(name, states[name])


def test_an_experiment_chosen_as_a_run_ends_takes_its_result_away(begin):
    """After the run has shown its result, and before its buttons are free."""
    here = RunHere(begin=begin, thread=Now)
    here.follow(digits())
    work = here.panel.work

    def and_then_another(panel: Any) -> None:
        work(panel)
        assert here.found is not None and here.panel.busy
        here.follow(digits(batch=64))

    here.panel.work = and_then_another
    here.panel.run.click()
    assert here.found is None and "Nothing run yet." in words(here.widget)


def test_the_same_sweep_again_leaves_its_result_alone(begin):
    """As when bands of the same prediction arrive while it runs."""
    here = SweepHere(begin=begin, thread=Now)
    sweep = digits(), {"strategy.batch": [16, 32]}
    here.follow(*sweep)
    here.follow(*sweep, expected=({}, "with bands"))
    assert here.panel.table.value == "with bands"
    work = here.panel.work

    def and_then_the_same(panel: Any) -> None:
        here.follow(digits(), {"strategy.batch": [16, 32]})
        work(panel)
        here.follow(digits(), {"strategy.batch": [16, 32]})

    here.panel.work = and_then_the_same
    here.panel.run.click()
    assert here.found is not None and "measured" in words(here.widget)
    here.follow(digits(), {"strategy.batch": [16]})
    assert here.found is None


def test_what_cannot_be_run_stays_so_when_a_run_before_it_ends(begin):
    here = RunHere(begin=begin, thread=Now)
    here.follow(digits())
    work = here.panel.work

    def and_then_another(panel: Any) -> None:
        work(panel)
        here.follow(digits(precision="fp8"))

    here.panel.work = and_then_another
    here.panel.run.click()
    assert here.panel.run.disabled and not here.panel.busy
    here.follow(digits())
    assert not here.panel.run.disabled
