"""`dlhpc trace steps` and `calibrate` for a user: output, files, error messages."""

import json

import pytest

from lib_dlhpc.cli import main
from lib_dlhpc.spec.experiment import load


@pytest.fixture
def folder(repository):
    return repository / "tests" / "data" / "frameworks"


def test_steps_of_two_frameworks_stand_side_by_side(folder, capsys):
    assert main(["trace", "steps", str(folder / "pytorch"), str(folder / "jax"), "--json"]) == 0
    pytorch, jax = json.loads(capsys.readouterr().out).values()
    assert pytorch["bytes"] == jax["bytes"] == 437_544
    assert (pytorch["steps"], jax["steps"]) == (6, 6)


def test_analyze_has_the_steps_of_a_framework(folder, capsys):
    assert main(["trace", "analyze", str(folder / "jax"), "-q"]) == 0
    assert "Mean step of a rank" in capsys.readouterr().out
    assert main(["trace", "analyze", str(folder / "jax"), "-q", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["steps"]["bytes"] == 437_544


def test_calibrate_writes_an_experiment_that_predicts(folder, tmp_path, capsys):
    out = tmp_path / "calibrated.toml"
    command = ["trace", "calibrate", str(folder / "pytorch"), str(folder / "mlp.toml")]
    assert main([*command, "--out", str(out)]) == 0
    assert "compute, with its gaps" in capsys.readouterr().out
    assert load(out).calibration.rate > 0
    assert main(["predict", str(out), "--json"]) == 0


def test_the_trace_that_has_no_steps_is_named(tmp_path, capsys):
    path = tmp_path / "run.json"
    path.write_text('{"schemaVersion": 1, "traceEvents": []}')
    assert main(["trace", "steps", str(path)]) == 2
    assert f"{path}: No step found" in capsys.readouterr().err
