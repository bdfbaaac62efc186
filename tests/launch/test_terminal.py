"""`dlhpc run` for a user: errors are reported before any rank starts, results in a few lines."""

import re

import pytest

from lib_dlhpc.cli import main

DIGITS = "labs/experiments/digits.toml"


@pytest.fixture
def digits(repository):
    return str(repository / DIGITS)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        (["dataset.name=imagenet"], "can be predicted but not trained; to train: digits"),
        (["dataset.name=digts"], "Did you mean 'digits'"),
        (["dataset.name=words"], "is for models of sequences of words"),
        (["dataset.name=mnist-5k"], "784 numbers per sample"),
        (["dataset.samples=9999"], "digits has 1797"),
        (["dataset.samples=2"], "too few to train with"),
        (["strategy.precision=bf16"], "to train: fp64, fp32, fp16"),
        (
            ["strategy.devices_per_node=4", "strategy.tensor=2"],
            "2 ranks: the network is partitioned over the 4",
        ),
        (['model.layers=[{kind="conv",channels=2,kernel=3},{kind="softmax"}]'], "but not trained"),
    ],
)
def test_what_cannot_be_trained_is_reported_in_one_line_and_exits_2(
    digits, tmp_path, capsys, changes, words
):
    folder = tmp_path / "run"
    assert main(["run", digits, "-n", "2", "--out", str(folder), "--set", *changes]) == 2
    output = capsys.readouterr()
    assert words in output.err and output.err.count("\n") == 1 and not output.out
    assert not folder.exists()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["-n", "0"], "--ranks 0"),
        (["-n", "1", "--out", "a", "--resume", "b"], "--out and --resume"),
        (["-n", "1", "--resume", "nowhere"], "holds no run to resume"),
    ],
)
def test_an_error_in_the_options_is_reported_in_one_line(digits, capsys, arguments, words):
    assert main(["run", digits, *arguments]) == 2
    output = capsys.readouterr()
    assert words in output.err and output.err.count("\n") == 1


def test_a_missing_run_folder_is_not_a_replay(tmp_path, capsys):
    for option, run in (("--resume", "nothere"), ("--from", "nothere"), ("--from", "nothere@3")):
        assert main(["run", option, run]) == 2
        output = capsys.readouterr().err
        assert f"{option} nothere: no such run folder" in output and "replay" not in output
    assert main(["run", "--from", str(tmp_path)]) == 2
    assert "holds no run" in capsys.readouterr().err


def test_a_historical_run_is_only_priced(capsys):
    assert main(["run", "goyal-2017", "-n", "2"]) == 2
    assert "'imagenet': can be predicted but not trained" in capsys.readouterr().err


def test_a_run_is_reported_in_a_few_lines(digits, tmp_path, capsys):
    folder = str(tmp_path / "run")
    assert main(["run", digits, "-n", "2", "--out", folder, "--set", "run.epochs=2"]) == 0
    shown = capsys.readouterr().out
    assert "cnn-digits on digits, 2 ranks of this machine: 2,876 samples in" in shown
    assert float(re.search(r"test accuracy ([\d.]+)%", shown)[1]) > 50
    for word in ("forward", "backward", "update", folder):
        assert word in shown
    assert main(["run", digits, "-n", "2", "--resume", folder, "--set", "run.epochs=2"]) == 0
    assert "already complete" in capsys.readouterr().out
    assert main(["run", "-n", "2", "--resume", folder]) == 0  # its own experiment
    output = capsys.readouterr().out
    assert "already complete" in output and "step" not in output.replace(folder, "")
    assert main(["run"]) == 2
    assert "name an experiment, or a run folder" in capsys.readouterr().err


def test_a_run_that_fails_exits_1_and_reports_what_is_left(digits, tmp_path, capsys):
    changes = ["training.rate=1e25", "strategy.optimizer=sgd"]
    folder = str(tmp_path / "run")
    assert main(["run", digits, "-n", "2", "--out", folder, "--set", *changes]) == 1
    output = capsys.readouterr().err
    assert "Diverged" in output and "Nothing was saved yet" in output
