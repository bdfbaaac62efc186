"""`dlhpc trace export` and `simulate` for a user: output, error messages, exit status."""

import json

import pytest
from chakra_files import SAMPLES

from lib_dlhpc.cli import main
from lib_dlhpc.prediction import predict
from lib_dlhpc.spec.experiment import loads
from lib_dlhpc.timeline.formats import read

pytest.importorskip("google.protobuf")

RUN = """
model = { name = "resnet50" }
dataset = { name = "imagenet" }
machine = { name = "dgx1-p100", jitter = 0.0 }
strategy = { nodes = 1, batch = 32 }
"""


@pytest.fixture
def run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "run.toml").write_text(RUN)
    return "run.toml"


def test_a_run_is_exported_and_simulated_in_the_predicted_time(run, capsys):
    assert main(["trace", "export", run, "out"]) == 0
    assert capsys.readouterr() == ("", "out: traces of 8 of 8 ranks.\n")
    assert main(["trace", "simulate", "out", "--machine", "dgx1-p100", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    step = float(predict(loads(RUN)).step_time)
    assert found["seconds"] == pytest.approx(step, rel=1e-9)
    assert (found["ranks"], found["nodes"], found["machine"]) == (8, 1, "dgx1-p100")
    for each in found["terms"]:
        parts = each["compute"], each["exposed communication"], each["idle"]
        assert sum(parts) == pytest.approx(step) and min(parts) >= -1e-12


def test_the_timeline_is_written_in_any_format(run, capsys):
    main(["trace", "export", run, "out"])
    for name in ("tl.npz", "tl.json"):
        words = ["trace", "simulate", "out", "--machine", "dgx1-p100", "--out", name]
        assert main(words) == 0
        assert read(name).ranks == 8
    out = capsys.readouterr().out
    assert out.startswith("8 ranks on 1 node of dgx1-p100: ")
    assert main(["trace", "analyze", "tl.npz"]) == 0


def test_some_ranks_are_exported(run, tmp_path, capsys):
    assert main(["trace", "export", run, "out", "--ranks", "0-2,6", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"out": "out", "files": 4, "ranks": 8}
    files = sorted(path.name for path in (tmp_path / "out").glob("*.et"))
    assert files == [f"step.{rank}.et" for rank in (0, 1, 2, 6)]


def test_a_published_trace_is_simulated(capsys):
    words = ["trace", "simulate", str(SAMPLES / "ring"), "--machine", "summit"]
    assert main([*words, "--devices-per-node", "4"]) == 0
    assert capsys.readouterr().out.startswith("8 ranks on 2 nodes of summit: ")


@pytest.mark.parametrize(
    "words, error",
    [
        (["export", "run.toml", "out", "--ranks", "3-1"], "--ranks 3-1: expected ranks such as"),
        (["export", "run.toml", "out", "--ranks", "a"], "--ranks a: expected ranks such as"),
        (["export", "run.toml", "out", "--ranks", "8"], "ranks: 8: expected ranks from 0 to 7"),
        (["export", "run.toml", "run.toml"], "run.toml: exists, and is not a folder of Chakra"),
        (["simulate", "none", "--machine", "summit"], "none: no such folder"),
        (["simulate", ".", "--machine", "sumit"], "Did you mean 'summit'?"),
        (["simulate", ".", "--machine", "none.toml"], "none.toml"),
        (["simulate", ".", "--machine", "summit"], "no file NAME.RANK.et"),
    ],
)
def test_input_errors_end_with_2_and_name_the_mistake(words, error, run, tmp_path, capsys):
    assert main(["trace", *words]) == 2
    assert error in capsys.readouterr().err
    assert sorted(path.name for path in tmp_path.iterdir()) == ["run.toml"]
