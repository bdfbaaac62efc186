"""The explorer's section "Sweep a setting": what can be varied, what is predicted of it, and what can be run here."""

import json
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import short_runs
from experiment_page import Now, button, click, fills, words
from short_runs import Simulated

from lib_dlhpc.comparison.sweep import placed_setting
from lib_dlhpc.errors import SpecError
from lib_dlhpc.explore.compare import sweep as sweep_here
from lib_dlhpc.explore.compare.charts import ROWS
from lib_dlhpc.explore.compare.sweep import SweepHere, settings_html
from lib_dlhpc.explore.explorer import sweep_rows
from lib_dlhpc.explore.explorer.axes import (
    ALLREDUCE,
    BATCH,
    BUCKET,
    DEVICES,
    MOST,
    NODES,
    RANKS,
    at,
    axes_of,
    values_from,
)
from lib_dlhpc.explore.explorer.choice import Choice
from lib_dlhpc.explore.explorer.limits import STEPS, steps_within
from lib_dlhpc.explore.explorer.moves import moved
from lib_dlhpc.explore.explorer.page import Explorer
from lib_dlhpc.explore.explorer.presets import preset
from lib_dlhpc.explore.explorer.sweep import Sweep
from lib_dlhpc.explore.explorer.sweep_rows import predict_rows, rows_html, rows_state
from lib_dlhpc.explore.one_step.machines import MACHINE, SHIPPED, example
from lib_dlhpc.prediction import predict
from lib_dlhpc.prediction.measured.bands import bands
from lib_dlhpc.prediction.validation.replays import replay, replays
from lib_dlhpc.spec.experiment import Experiment, load
from lib_dlhpc.spec.host import cores
from lib_dlhpc.spec.measured_machine import measured_on

GOYAL = replay("goyal-2017").experiment
digits = partial(short_runs.digits, devices_per_node=2)


def begin(experiment: Experiment, ranks: int, folder: Path) -> Simulated:
    assert ranks <= 2
    return Simulated(experiment, ranks, folder)


@pytest.fixture(autouse=True)
def home(tmp_path: Path, own_state: None) -> Path:
    """Where the user's own calibration would be."""
    return tmp_path / "config" / "dlhpc" / "machine.toml"


@pytest.fixture
def section() -> Sweep:
    """The section on digits, opened, with runs that come through at once."""
    section = Sweep()
    section.follow(predict(digits()))
    section.opened.value = True
    section.here = SweepHere(begin=begin, thread=Now, most=2)
    section.show()
    return section


def shown(section: Sweep) -> dict[str, list[Any]]:
    assert section.here is not None and section.here.widget in section.body.children
    assert section.here.widget.layout.display is None
    points: dict[str, list[Any]] = section.here.panel.figure.data["points"]
    return points


@pytest.mark.parametrize(
    "name", [run.name for run in replays() if not run.experiment.strategy.is_split]
)
def test_every_axis_offers_several_values_all_of_which_can_be(name):
    experiment = replay(name).experiment
    axes = axes_of(experiment)
    assert {axis.field for axis in axes} == {RANKS, NODES, BATCH, ALLREDUCE, BUCKET}
    for axis in axes:
        assert 3 <= len(axis.values) <= MOST
        assert len(set(axis.values)) == len(axis.values)
        for value in axis.values:
            assert predict(at(experiment, {axis.field: value})).step_time > 0


@pytest.mark.parametrize("name", ["narayanan-2021", "llama3-405b", "deepseek-v3-2048-h800"])
def test_a_batch_of_a_pipeline_has_the_microbatches_that_its_control_would_set(name):
    choice = Choice(preset(name))
    experiment = choice.preset.experiment
    (axis,) = [axis for axis in axes_of(experiment) if axis.field == BATCH]
    rows = predict_rows(experiment, BATCH, axis.values)
    assert len(rows) >= 3 and not any(row.problem for row in rows)
    for row in rows:
        _, prediction, said = moved(choice, BATCH, row.value)
        assert row.step["predicted"] == float(prediction.step_time)
        assert row.also == said
    assert any("microbatches" in row.also for row in rows)
    assert "microbatches" in rows_html(rows)


def test_values_as_they_are_shown_are_the_values(repository):
    for experiment in (GOYAL, digits(), load(repository / "labs" / "experiments" / "words.toml")):
        for axis in axes_of(experiment):
            assert values_from(", ".join(map(str, axis.values))) == list(axis.values)


def test_a_split_network_keeps_its_ranks(repository):
    words_ = load(repository / "labs" / "experiments" / "words.toml")
    assert [axis.field for axis in axes_of(words_)] == [BATCH, ALLREDUCE, BUCKET]


def test_ranks_share_the_samples_of_a_step_or_have_a_batch_each():
    for ranks in (1, 2, 8, 64, 256):
        there = at(GOYAL, {RANKS: ranks})
        assert int(there.devices) == ranks and there.global_batch == GOYAL.global_batch
    more = at(GOYAL, {NODES: 2})
    assert more.strategy.batch == GOYAL.strategy.batch and int(more.devices) == 16
    assert axes_of(digits())[1].field == DEVICES


def test_the_largest_bucket_holds_all_gradients_and_the_smallest_does_not():
    (axis,) = [axis for axis in axes_of(GOYAL) if axis.field == BUCKET]
    first, last = (at(GOYAL, {BUCKET: axis.values[end]}) for end in (0, -1))
    assert first.strategy.bucket < 1e8 < last.strategy.bucket
    assert float(predict(first).communication.latency) > float(predict(last).communication.latency)


@pytest.mark.parametrize(
    ("text", "words_"),
    [("", "No values"), (" , ", "No values"), (", ".join(map(str, range(13))), "13")],
)
def test_values_that_cannot_be_are_reported(text, words_):
    with pytest.raises(SpecError, match=words_):
        values_from(text)


@pytest.mark.parametrize("ranks", ["two", 0, -1])
def test_ranks_that_are_no_number_are_reported(ranks):
    with pytest.raises(SpecError, match="ranks = "):
        at(GOYAL, {RANKS: ranks})


def test_what_is_predicted_is_what_the_engines_say():
    e = digits()
    for row, batch in zip(predict_rows(e, BATCH, [16, 32]), (16, 32), strict=True):
        there = e.set({BATCH: batch})
        assert row.step["predicted"] == float(predict(there).step_time)
        assert set(row.step) == {"predicted", "rounds", "events"}
        assert row.step["rounds"] == pytest.approx(row.step["predicted"], rel=0.2)
        assert row.bands == {"predicted": None}


def test_a_measured_machine_has_bands_around_every_point():
    e = digits()
    here = e.set({})
    here = Experiment(**{**vars(here), "machine": measured_on(e.machine, example())})
    (row,) = predict_rows(here, BATCH, [32])
    assert row.bands["predicted"] == bands(here)["one step"]
    for way, band in row.bands.items():
        assert band and band[0] < row.step[way] < band[1]
    points = rows_state([row], "Batch")[0]["points"]
    assert all(low < high for low, high in zip(points["low"], points["high"], strict=True))
    assert "90% band" in rows_html([row])


def test_how_much_is_simulated_is_counted_and_the_rest_is_said_to_be_left_out():
    assert steps_within(digits(), "events", 1e4, 1e4) == STEPS[0]
    assert (
        steps_within(GOYAL, "rounds", 4000, 0) == 1 and steps_within(GOYAL, "events", 4000, 9) == 0
    )
    rows = predict_rows(GOYAL, NODES, [1, 32])
    assert set(rows[0].step) > set(rows[1].step) >= {"predicted"}
    assert sweep_rows.LEFT_OUT in rows_html(rows)
    assert sweep_rows.LEFT_OUT not in rows_html(predict_rows(digits(), BATCH, [8]))


def test_of_a_network_that_is_split_a_step_in_rounds_is_simulated(repository):
    split = load(repository / "labs" / "experiments" / "words.toml")
    assert (
        steps_within(split, "rounds", 1e6, 1e6) == 1
        and steps_within(split, "events", 1e6, 1e6) == 0
    )
    (row,) = predict_rows(split, BATCH, [8])
    assert set(row.step) == {"predicted", "rounds"}


def test_a_value_that_cannot_be_is_a_row_that_says_why():
    rows = predict_rows(digits(), ALLREDUCE, ["ring", "rong"])
    assert "Did you mean &#x27;ring&#x27;" in rows_html(rows)
    data, sentence = rows_state(rows, "Allreduce")
    assert set(data["points"]["setting"]) == {"ring"} and sentence.startswith(
        "Allreduce: predicted"
    )


def test_points_are_joined_along_numbers_and_not_along_names():
    for field, values, joined in (
        (BATCH, [8, 16], True),
        (BUCKET, ["1 kB", "1 MB"], True),
        (ALLREDUCE, ["ring", "binomial"], False),
    ):
        state = rows_state(predict_rows(digits(), field, values), field)
        assert set(state[0]["points"]["joined"]) == {joined}
        fills("swept", state)


def test_nothing_is_predicted_before_the_section_is_opened(monkeypatch):
    def never(*_: Any) -> Any:
        raise AssertionError("predicted")

    monkeypatch.setattr(sweep_rows, "predict_rows", never)
    page = Explorer(digits())
    page.move("strategy.batch", 64)
    assert page.sweep.here is None and page.sweep.body.children == ()
    with pytest.raises(AssertionError, match="predicted"):
        page.sweep.opened.value = True


def test_it_shows_the_experiment_of_the_page_and_follows_it():
    page = Explorer(digits())
    page.sweep.opened.value = True
    before = json.dumps(shown(page.sweep))
    page.move("strategy.allreduce", "binomial")
    assert json.dumps(shown(page.sweep)) != before
    page.sweep.opened.value = False
    assert page.sweep.body.children == ()


def test_every_choice_of_what_is_varied_shows_its_own(section):
    vary, seen = section.controls["vary"], set()
    for _, field in vary.options:
        vary.value = field
        seen.add(json.dumps(shown(section)))
        assert len(set(shown(section)["setting"])) >= 3
    assert len(seen) == len(vary.options) == 5


def test_own_values_stay_until_something_else_is_varied_or_they_are_taken_out(section):
    vary, values = section.controls["vary"], section.controls["values"]
    vary.value = BATCH
    offered = values.value
    values.value = "7, 9"
    assert list(dict.fromkeys(shown(section)["setting"])) == ["7", "9"]
    section.follow(predict(digits(overlap=False)))
    assert values.value == "7, 9"
    values.value = ""
    assert values.value == offered
    values.value = "7, 9"
    vary.value = BUCKET
    assert "7, 9" not in values.value


@pytest.mark.parametrize(("text", "words_"), [("a lot", "Batch per replica"), (",", "No values")])
def test_a_mistake_is_reported_in_place_of_a_chart(section, text, words_):
    section.controls["vary"].value = BATCH
    section.controls["values"].value = text
    assert words_ in section.said.value
    assert section.here is not None and section.here.widget.layout.display == "none"
    section.controls["values"].value = "8"
    assert section.said.value == "" and shown(section)


def test_what_is_varied_goes_where_the_experiment_has_it_no_more(repository):
    section = Sweep()
    section.follow(predict(digits()))
    section.opened.value = True
    assert section.controls["vary"].value == RANKS
    section.follow(predict(load(repository / "labs" / "experiments" / "words.toml")))
    assert section.controls["vary"].value == BATCH and shown(section)


def test_what_can_be_run_here_is_run_and_the_rest_says_why(section):
    panel = section.here
    assert panel is not None
    assert "2 of 3 settings can be run here. 4 ranks are too many" in words(panel.widget)
    click(panel.widget, "Run them here")
    assert panel.found is not None
    assert [row.comparison is not None for row in panel.found.rows] == [True, True, False]
    told = words(panel.widget)
    assert "in the median" in told or "No verdict" in told
    assert "4 ranks are too many" in told
    assert set(shown(section)["way"]) == set(ROWS.values())


def test_what_is_run_has_the_microbatches_that_were_predicted(monkeypatch):
    run: dict[int, int] = {}

    def begin(experiment: Experiment, ranks: int, folder: Path) -> Simulated:
        run[int(experiment.strategy.batch)] = int(experiment.strategy.microbatches)
        return Simulated(experiment, ranks, folder)

    monkeypatch.setattr(sweep_here, "SweepHere", partial(SweepHere, begin=begin, thread=Now))
    section = Sweep()
    experiment = digits(devices_per_node=1, microbatches=4)
    section.follow(predict(experiment))
    section.opened.value = True
    section.controls["vary"].value = BATCH
    section.controls["values"].value = "16, 64"
    click(section.body, "Run them here")
    wanted = {batch: int(at(experiment, {BATCH: batch}).strategy.microbatches) for batch in run}
    assert run == wanted == {16: 2, 64: 8}


@pytest.mark.parametrize("setting", [{BATCH: 16}, {BATCH: 64}], ids=str)
def test_the_command_runs_the_microbatches_that_the_page_predicts(setting):
    experiment = digits(devices_per_node=1, microbatches=4)
    here, there = placed_setting(experiment, setting).experiment, at(experiment, setting)
    assert here.strategy.microbatches == there.strategy.microbatches != 4
    assert here.strategy.batch == there.strategy.batch
    (row,) = predict_rows(experiment, *setting.keys(), [*setting.values()])
    assert "microbatches" in row.also


def test_another_experiment_takes_away_what_was_run_of_the_one_before(section):
    panel = section.here
    assert panel is not None
    click(panel.widget, "Run them here")
    assert ROWS["measured"] in shown(section)["way"]
    section.follow(predict(digits(batch=16)))
    assert panel.found is None and ROWS["measured"] not in shown(section)["way"]


def test_where_nothing_can_be_run_there_is_no_button_to_press():
    page = Explorer()
    page.sweep.opened.value = True
    assert page.sweep.here is not None
    assert button(page.sweep.body, "Run them here").disabled
    assert "No setting can be run here. Data set" in words(page.sweep.body)


def test_more_ranks_than_cores_can_take_turns_are_not_started():
    section = Sweep()
    section.follow(predict(digits(devices_per_node=1)))
    section.opened.value = True
    section.controls["vary"].value = DEVICES
    section.controls["values"].value = f"1, {64 * cores()}"
    assert "1 of 2 settings can be run here." in words(section.body)


def test_a_short_row_has_the_room_that_is_left():
    html = settings_html([["a", "b", "c"], ["1", "2", "3"], ["4", "why <not>"]])
    assert 'colspan="2">why &lt;not&gt;' in html and html.count("<th scope=col>") == 3


def test_a_measured_machine_is_named_once_for_all_points(home):
    home.parent.mkdir(parents=True)
    home.write_text((SHIPPED / MACHINE).read_text())
    page = Explorer(digits())
    page.move("machine.name", "measured here")
    page.sweep.opened.value = True
    points = shown(page.sweep)
    assert all(low < high for low, high in zip(points["low"], points["high"], strict=True))
    assert words(page.widget).count("90% bands: by the intervals") == 1
