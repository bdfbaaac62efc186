"""`dlhpc calibrate io`: prints a tier that a machine accepts, and reports errors before it starts."""

import json
import tomllib

import pytest

from lib_dlhpc.calibration.io import LEAST
from lib_dlhpc.cli import main
from lib_dlhpc.prediction import predict
from lib_dlhpc.spec.experiment import read_experiment
from lib_dlhpc.spec.machine import StorageTier

TINY = ["--seconds", "0.3", "--size", str(LEAST), "--readers", "1,2", "--warm"]


def run(tables):
    return read_experiment(
        {
            "model": {"name": "resnet50"},
            "dataset": {"name": "imagenet"},
            **tables,
            "machine": {"name": "laptop", **tables["machine"]},
            "strategy": {"devices_per_node": 1},
            "storage": {"tier": "tmp", "workers": 2},
        }
    )


def test_what_it_prints_goes_into_a_machine_and_predicts(tmp_path, capsys):
    assert main(["calibrate", "io", str(tmp_path), *TINY, "--name", "tmp"]) == 0
    printed = capsys.readouterr().out
    experiment = run(tomllib.loads(printed))
    tier = experiment.machine.storage["tmp"]
    assert isinstance(tier, StorageTier)
    assert tier.servers == "one"
    assert tier.scope == "node"
    assert predict(experiment).step_time > 0
    halved = experiment.set({"machine.storage.tmp.read_latency": 10.0})
    assert predict(halved).step_time > predict(experiment).step_time
    assert "# Measured by `dlhpc calibrate io` on 2" in printed
    for text in ("cores", "Python", "1, 2 readers", "all in the page cache", "median of"):
        assert text in printed
    assert str(tmp_path) not in printed
    assert list(tmp_path.iterdir()) == []


def test_a_file_and_json(tmp_path, capsys):
    out = tmp_path / "tier.toml"
    assert main(["calibrate", "io", str(tmp_path), *TINY, "--json", "--out", str(out)]) == 0
    output = json.loads(capsys.readouterr().out, parse_constant=lambda name: pytest.fail(name))
    written = tomllib.loads(out.read_text())["machine"]["storage"]["memory"]
    assert set(written) <= set(output["tier"])
    assert output["intervals"]["operation_latency"][0] <= output["tier"]["operation_latency"]
    for point in output["points"]:
        spread = point["seconds_each"]
        assert spread["p10"] <= spread["p50"] <= spread["p90"]
        assert len(point["seconds"]) == len(point["samples"]) >= 3
    assert {point["readers"] for point in output["points"]} == {1, 2}
    assert output["how"] == "all in the page cache"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--seconds", "0"], "seconds = 0: expected a number above 0"),
        (["--seconds", "soon"], "--seconds = 'soon'"),
        (["--size", "1 MB"], "size = 1 MB: expected at least"),
        (["--readers", "0,1"], "readers = 0: legal: 1 to 1024"),
        (["--readers", "a few"], "--readers a few: expected whole numbers, such as 1,2,8"),
        (["--name", "my disk"], "--name my disk: expected letters"),
        (["--scope", "nodes"], "Did you mean 'node'?"),
        (["--out", "missing/tier.toml"], "--out missing/tier.toml: no such folder"),
        (["--out", "."], "--out .: a folder"),
    ],
)
def test_errors_are_reported_at_once(tmp_path, monkeypatch, capsys, words, message):
    monkeypatch.chdir(tmp_path)
    assert main(["calibrate", "io", str(tmp_path), *words]) == 2
    output = capsys.readouterr().err
    assert message in output and "Reading in" not in output
    assert list(tmp_path.iterdir()) == []


def test_a_missing_folder_is_reported(tmp_path, capsys):
    assert main(["calibrate", "io", str(tmp_path / "gone")]) == 2
    output = capsys.readouterr().err
    assert "gone: no such folder; name one on the file system" in output
    assert "Reading in" not in output
