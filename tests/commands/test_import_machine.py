"""dlhpc import machine: outputs of other tools become a file that predicts; nothing is written after an error."""

import io
import json
import sys

import pytest

from lib_dlhpc.cli import main


@pytest.fixture
def outputs(repository, monkeypatch):
    """The folder of real outputs, as the current one."""
    monkeypatch.chdir(repository / "tests/data/measurements")


SHOWN = [
    "nccl_h100.log",
    "inter_node=osu_latency.txt",
    "inter_node=osu_bw.txt",
    "storage.scratch=ior.txt",
]


def test_the_file_predicts(outputs, tmp_path, capsys):
    out = str(tmp_path / "my.toml")
    assert main(["import", "machine", *SHOWN, "--base", "h100-pod", "--out", out]) == 0
    printed = capsys.readouterr()
    assert "inter_node.latency" in printed.out and "OSU osu_latency" in printed.out
    assert f"predict RUN --machine {out}" in printed.err
    run = ["predict", "goyal-2017", "--machine", out, "--json", "--set", "storage.tier=scratch"]
    assert main(run) == 0
    predicted = json.loads(capsys.readouterr().out)
    assert predicted["calibration"].startswith("imported on ")
    low, high = predicted["bands"]["one step"]
    assert 0 < low <= high
    assert main(["predict", "goyal-2017", "--machine", out]) == 0
    assert "resnet50 on h100-pod" in capsys.readouterr().out
    assert main(["predict", "goyal-2017", "--machine", out, "--explain"]) == 0
    assert "imported on " in capsys.readouterr().out


@pytest.mark.parametrize(
    "more", [("predict",), ("plan", "--most", "3"), ("sweep", "--over", "strategy.nodes=2,4")]
)
def test_a_machine_with_its_own_name_is_predicted_planned_and_swept(
    outputs, tmp_path, capsys, more
):
    out = str(tmp_path / "my.toml")
    named = ["--base", "h100-pod", "--set", "name=ours", "--out", out]
    assert main(["import", "machine", "nccl_h100.log", *named]) == 0
    command, *words = more
    run = [command, "goyal-2017", "--set", "strategy.nodes=2", *words]
    assert main([*run, "--machine", out]) == 0
    printed = capsys.readouterr()
    assert "resnet50 on ours" in printed.out
    assert "calibration.rate = 1089.4 is dropped" in printed.err
    assert main(run) == 0
    assert "resnet50 on bigbasin" in capsys.readouterr().out


def test_a_run_that_is_too_large_for_the_machine_is_an_error(outputs, tmp_path, capsys):
    out = str(tmp_path / "my.toml")
    small = ["--base", "h100-pod", "--set", "nodes=2", "--out", out]
    assert main(["import", "machine", "inter_node=osu_latency.txt", *small]) == 0
    assert main(["predict", "goyal-2017", "--machine", out]) == 2
    assert "strategy.nodes = 32: h100-pod has 2" in capsys.readouterr().err


def test_standard_input_and_output(outputs, capsys, monkeypatch):
    with open("osu_latency.txt", encoding="utf-8") as file:
        monkeypatch.setattr(sys, "stdin", io.StringIO(file.read()))
    assert main(["import", "machine", "inter_node=-", "--base", "selene"]) == 0
    assert "-, lines 16-26: OSU osu_latency" in capsys.readouterr().out


def test_json_has_origins(outputs, capsys):
    assert main(["import", "machine", "inter_node=osu_bw.txt", "--base", "selene", "--json"]) == 0
    table = json.loads(capsys.readouterr().out)
    assert "osu_bw.txt" in table["origins"]["inter_node.bandwidth"]
    assert table["machine"]["inter_node"]["bandwidth"] == pytest.approx(12.2e9, rel=0.02)


@pytest.mark.parametrize(
    "setting",
    [
        *["nics=x", "nics=0", "nodes=0", "nodes.x=3", "storage=3", "storage.x=3", "inter_node=3"],
        *["inter_node=ib-xyz", "device=3", "device.peak=3", "inter_node.latency=x", "nodes", "=3"],
    ],
)
def test_a_setting_that_is_wrong_is_an_error_that_names_it(outputs, capsys, setting):
    words = ["import", "machine", "inter_node=osu_bw.txt", "--base", "selene", "--set", setting]
    assert main(words) == 2
    assert setting.partition("=")[0].partition(".")[0] in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["missing.txt"], "missing.txt: cannot be read"),
        (["osu_bw.txt"], "write intra_node=osu_bw.txt or inter_node=osu_bw.txt"),
        (["inter_node=osu_bw.txt"], "no file says device, nodes, devices_per_node, nics"),
        (["inter_node=osu_bw.txt", "--base", "sumit"], "Did you mean 'summit'"),
        (["inter_node=osu_bw.txt", "--base", "summit", "--set", "nodez=3"], "nodez: unknown key"),
        (
            ["storage.x=osu_bw.txt", "--base", "summit"],
            "does not say whether its ranks were on one node",
        ),
    ],
)
def test_nothing_is_written_after_an_error(outputs, tmp_path, capsys, arguments, words):
    out = tmp_path / "my.toml"
    assert main(["import", "machine", *arguments, "--out", str(out)]) == 2
    assert words in capsys.readouterr().err
    assert not list(tmp_path.iterdir())
