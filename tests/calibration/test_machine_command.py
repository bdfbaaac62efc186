"""`dlhpc calibrate`: errors are reported before any measurement; results go to the requested file."""

import json

import pytest
from planted import Planted

from lib_dlhpc.calibration import machine
from lib_dlhpc.cli import main
from lib_dlhpc.commands import calibrate
from lib_dlhpc.spec.measured_machine import default_machine, load_measured


@pytest.fixture
def measured(monkeypatch, tmp_path):
    """The numbers of a planted machine in place of this one's, and a user without a calibration."""
    asked = []

    def measure(ranks, seconds, run, progress):
        asked.append((ranks, seconds))
        return Planted(ranks=ranks).raw()

    monkeypatch.setattr(machine, "measure_machine", measure)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    return asked


def test_without_a_word_more_it_is_the_user_s_own(measured, capsys):
    assert main(["calibrate", "-n", "2", "--seconds", "30"]) == 0
    assert measured == [(2, 30.0)]
    output = capsys.readouterr()
    assert "message: latency" in output.out
    assert "machine.toml: this machine, for `dlhpc compare FILE` and" in output.err
    assert default_machine().measured.ranks == 2


def test_a_file_that_is_named_is_the_only_one_written(measured, tmp_path, capsys):
    out = tmp_path / "here.toml"
    assert main(["calibrate", "machine", "--ranks", "1", "--out", str(out), "--json"]) == 0
    assert load_measured(out).measured.ranks == 1
    assert default_machine() is None
    output = json.loads(capsys.readouterr().out)
    assert output["machine"]["measured"]["ranks"] == 1
    assert sorted(path.name for path in tmp_path.iterdir()) == ["here.toml"]


def test_more_ranks_than_cores_are_reported(measured, monkeypatch, capsys):
    monkeypatch.setattr(calibrate, "cores", lambda: 1)
    assert main(["calibrate", "--seconds", "30"]) == 0
    assert "share" not in capsys.readouterr().err
    assert main(["calibrate", "-n", "2", "--seconds", "30"]) == 0
    assert "2 ranks share 1 core" in capsys.readouterr().err
    assert measured == [(1, 30.0), (2, 30.0)]


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["--seconds", "0"], "--seconds 0: legal: 2 s to 3600 s"),
        (["--seconds", "1e9"], "--seconds 1e9: legal: 2 s to 3600 s"),
        (["--seconds", "soon"], "--seconds = 'soon'"),
        (["-n", "0"], "--ranks 0: expected a whole number"),
        (["-n", "100000"], "--ranks 100000: legal: 1 to "),
        (["--out", "missing/machine.toml"], "--out missing/machine.toml: no such folder"),
        (["--out", "."], "--out .: a folder"),
        (["--io", "missing"], "--io missing: no such folder"),
    ],
)
def test_errors_are_reported_at_once(measured, tmp_path, monkeypatch, capsys, words, text):
    monkeypatch.chdir(tmp_path)
    for before in (["calibrate"], ["calibrate", "machine"]):
        assert main([*before, *words]) == 2
        assert text in capsys.readouterr().err
    assert measured == [] and list(tmp_path.iterdir()) == []
