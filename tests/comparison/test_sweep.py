"""A sweep: one row per setting, interleaved runs, and errors over all settings."""

import json

import pytest

from lib_dlhpc.comparison import sweep
from lib_dlhpc.comparison.errors import errors, inside
from lib_dlhpc.comparison.sweep import placed_setting
from lib_dlhpc.comparison.sweep_text import table
from lib_dlhpc.errors import SpecError
from lib_dlhpc.spec.host import cores


def test_several_axes_are_a_grid(ranks_can_start, digits, calibrated, monkeypatch):
    monkeypatch.setattr("lib_dlhpc.comparison.comparison.too_busy", lambda *given: "")
    axes = {"strategy.batch": [16, 32], "ranks": [1, cores() + 1]}
    found = sweep(digits, axes, machine=calibrated, steps=4)
    settings = [tuple(row.setting.values()) for row in found.rows]
    assert settings == [(16, 1), (16, cores() + 1), (32, 1), (32, cores() + 1)]
    assert [row.comparison.placed.ranks for row in found.rows] == [1, cores() + 1] * 2
    assert [int(each.placed.experiment.global_batch) for each in found.judged] == [16, 32]
    text = found.as_text()
    assert text.count("share") == 2
    assert "measured steps inside the 90% bands" in text
    rows = json.loads(json.dumps(found.as_dict()))["rows"]
    assert [row["oversubscribed"] for row in rows] == [False, True] * 2


def test_repeated_runs_of_settings_are_interleaved(ranks_can_start, digits, tmp_path):
    found = sweep(digits, {"strategy.batch": [16, 32]}, steps=6, folder=tmp_path, repeats=2)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["1-1", "1-2", "2-1", "2-2"]
    begun = [(tmp_path / name / "log.txt").stat().st_mtime for name in ("1-1", "2-1", "1-2", "2-2")]
    assert begun == sorted(begun)
    assert [row.comparison.steps for row in found.rows] == [10, 10]


def test_a_setting_that_cannot_be_is_a_row_that_reports_why(ranks_can_start, digits):
    found = sweep(digits, {"strategy.allreduce": ["ring", "rong"]}, steps=4)
    good, bad = found.rows
    assert good.comparison is not None
    assert bad.comparison is None and "Did you mean 'ring'" in bad.problem
    assert "Did you mean 'ring'" in found.as_text()


def test_where_no_setting_can_be_it_is_an_error(digits):
    with pytest.raises(SpecError, match="Did you mean 'batch'"):
        sweep(digits, {"strategy.bach": [1, 2]})


def test_more_ranks_than_are_wanted_are_refused(digits):
    assert placed_setting(digits, {"ranks": 2}, most=2).ranks == 2
    with pytest.raises(SpecError, match=r"3 ranks are too many for .* legal here: up to 2"):
        placed_setting(digits, {"ranks": 3}, most=2)


@pytest.mark.parametrize(
    ("axes", "words"), [({}, "at least one axis"), ({"ranks": []}, "one value")]
)
def test_axes_have_values(digits, axes, words):
    with pytest.raises(SpecError, match=words):
        sweep(digits, axes)


def test_more_settings_than_anybody_waits_for_are_refused(digits):
    with pytest.raises(SpecError, match="legal: at most 64"):
        sweep(digits, {"strategy.batch": range(1, 100)})


@pytest.mark.parametrize(
    ("setting", "microbatches"),
    [
        ({}, 4),
        ({"strategy.batch": 64}, 8),
        ({"strategy.batch": 4}, 1),
        ({"strategy.batch": 64, "strategy.microbatches": 2}, 2),
        ({"strategy.data": 2}, 4),  # a batch on each
        ({"strategy.data": 2, "strategy.batch": 64}, 8),
        ({"strategy.allreduce": "ring"}, 4),
    ],
    ids=str,
)
def test_microbatches_keep_their_samples(digits, setting, microbatches):
    """8 each, as in the explorer; all of a batch that has fewer."""
    experiment = digits.set({"strategy.batch": 32, "strategy.microbatches": 4})
    assert experiment.devices == 1
    here = placed_setting(experiment, setting)
    assert int(here.experiment.strategy.microbatches) == microbatches
    assert int(here.experiment.strategy.batch) == setting.get("strategy.batch", 32)


def test_a_sweep_reports_what_was_moved_along(ranks_can_start, digits):
    experiment = digits.set({"strategy.batch": 32, "strategy.microbatches": 4})
    found = sweep(experiment, {"strategy.batch": [16, 32]}, steps=4)
    words = "batch = 16: also microbatches = 2"
    assert [row.moved for row in found.rows] == [words, ""]
    assert f"note: {words}" in found.as_text()
    along = [row["along"] for row in found.as_dict()["rows"]]
    assert along == [{"strategy.microbatches": 2}, {}]


def test_columns_are_aligned_and_a_short_row_ends_with_words():
    lines = table([["a", "long head", "c"], ["1", "2", "3"], ["22", "words that say why"]])
    assert lines == [" a  long head  c", " 1          2  3", "22  words that say why"]


def test_errors_are_of_those_that_are_known(ranks_can_start, digits):
    (row,) = sweep(digits, {"ranks": [1]}, steps=4).rows
    assert errors([row.comparison], "predicted") == [abs(row.comparison.error("predicted"))]
    assert inside([row.comparison]) == (0, 0)  # nothing was measured, so there is no band


@pytest.mark.parametrize("part", ["data", "tensor", "pipeline"])
def test_devices_follow_the_parts_of_a_network(ranks_can_start, digits, part):
    found = sweep(digits, {f"strategy.{part}": [1, 2]}, steps=4)
    assert [row.problem for row in found.rows] == ["", ""]
    assert [row.comparison.placed.ranks for row in found.rows] == [1, 2]


def test_devices_that_are_swept_as_well_are_left_alone(digits):
    axes = {"strategy.tensor": [2], "strategy.devices_per_node": [3]}
    with pytest.raises(SpecError, match="does not make the 3 devices"):
        sweep(digits, axes)


def test_a_part_that_is_no_number_is_reported(digits):
    with pytest.raises(SpecError, match=r"strategy\.tensor"):
        sweep(digits, {"strategy.tensor": ["two"]})
