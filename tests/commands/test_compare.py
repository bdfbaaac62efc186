"""`dlhpc compare`: a table or JSON of one experiment or of a sweep; mistakes in one line."""

import json
from pathlib import Path

import pytest

from lib_dlhpc.cli import main

DIGITS = str(Path(__file__).parents[2] / "labs" / "experiments" / "digits.toml")


@pytest.fixture(autouse=True)
def _alone(own_state, ranks_can_start, monkeypatch):
    monkeypatch.setattr("lib_dlhpc.comparison.comparison.too_busy", lambda *given: "")


def test_it_prints_a_table_of_all_ways(capsys):
    assert main(["compare", DIGITS, "-n", "1", "--steps", "6"]) == 0
    out, err = capsys.readouterr()
    assert "cnn-digits on 1 rank of this machine" in out
    for word in ("predicted", "rounds", "events", "measured", "backward", "off by", "p10 to p90"):
        assert word in out
    assert "dlhpc calibrate" in out
    assert err == ""


def test_json_is_in_si_units(capsys, tmp_path):
    words = ["compare", DIGITS, "-n", "2", "--steps", "6", "--json", "--out", str(tmp_path / "run")]
    assert main(words) == 0
    found = json.loads(capsys.readouterr().out, parse_constant=lambda name: pytest.fail(name))
    assert found["experiment"]["strategy"]["bucket"] == 8e3
    assert found["ranks"] == 2 and found["calibration"] is None
    assert found["step"]["measured"] == pytest.approx(
        sum(ways.get("measured", 0.0) for ways in found["terms"].values())
    )
    assert (tmp_path / "run" / "result.json").exists()


def test_a_sweep_has_a_row_for_each_setting(capsys):
    swept = ["--sweep", "strategy.batch=16,32", "ranks=1"]
    assert main(["compare", DIGITS, "--steps", "4", *swept]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split()[:2] == ["batch", "ranks"]
    assert [line.split()[:2] for line in lines[1:3]] == [["16", "1"], ["32", "1"]]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--sweep", "strategy.batch"], "expected KEY=A,B"),
        (["--sweep", "strategy.bach=1"], "Did you mean 'batch'"),
        (["--seconds", "0"], "expected a number above 0"),
        (["--repeats", "0"], "at least 1"),
        (["-n", "0"], "expected at least 1"),
        (["--steps", "0"], "at least 1"),
        (["--gantt", "step.pdf"], "ends in .html, .svg, .png, .json"),
        (["--gantt", "step.svg", "--sweep", "strategy.batch=8,16"], "--sweep makes several"),
        (["--machine", "missing.toml"], "no such file"),
        (["--set", "dataset.name=words"], "sequences of words"),
    ],
)
def test_an_error_is_reported_in_one_line(words, message, capsys):
    assert main(["compare", DIGITS, *words]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert message in err and err.count("\n") == 1


@pytest.mark.parametrize("suffix", ["html", "svg", "png"])
def test_a_step_is_drawn_as_predicted_simulated_and_measured(suffix, tmp_path, capsys):
    picture = tmp_path / f"step.{suffix}"
    assert main(["compare", DIGITS, "-n", "1", "--steps", "4", "--gantt", str(picture)]) in (0, 3)
    written = picture.read_bytes()
    assert written[:4] == b"\x89PNG" if suffix == "png" else b"measured" in written
    assert b'src="http' not in written  # a page that needs no network


def test_a_run_that_fails_exits_1(capsys):
    assert main(["compare", DIGITS, "--steps", "20", "--set", "training.rate=1e30"]) == 1
    assert "not finite" in capsys.readouterr().err
