"""The command line for a user: output, error messages, exit status."""

import io
import json
import re
import subprocess
import sys

import pytest
from published_rows import validate_once

from lib_dlhpc.cli import main
from lib_dlhpc.commands import sweep
from lib_dlhpc.prediction import predict
from lib_dlhpc.prediction.validation.replays import replay
from lib_dlhpc.spec import catalog
from lib_dlhpc.spec.experiment import dump, load


@pytest.fixture
def goyal(tmp_path):
    path = tmp_path / "goyal.toml"
    dump(replay("goyal-2017").experiment, path)
    return str(path)


@pytest.mark.parametrize("name", catalog.names("replays"))
def test_predicts_every_historical_run_by_name(name, capsys):
    assert main(["predict", name]) == 0
    assert "time to train" in capsys.readouterr().out


def test_a_file_and_a_replay_of_the_same_run_give_the_same(goyal, capsys):
    main(["predict", goyal, "--json"])
    from_file = capsys.readouterr().out
    main(["predict", "goyal-2017", "--json"])
    assert capsys.readouterr().out == from_file


def test_json_is_in_si_units_and_adds_up(goyal, capsys):
    main(["predict", goyal, "--json"])
    shown = json.loads(capsys.readouterr().out)
    expected = predict(load(goyal))
    assert shown["step_time"] == float(expected.step_time)
    assert sum(shown["terms"].values()) == pytest.approx(shown["step_time"], rel=1e-12)
    assert sum(shown["memory"].values()) == pytest.approx(shown["memory_total"], rel=1e-12)
    assert shown["step_time_bounds"][0] <= shown["step_time"] <= shown["step_time_bounds"][1]


def test_set_changes_fields_one_or_several_at_a_time(goyal, capsys):
    main(["predict", goyal, "--json", "--set", "strategy.nodes=4", "strategy.overlap=false"])
    shown = json.loads(capsys.readouterr().out)
    assert shown["experiment"]["strategy"]["nodes"] == 4
    assert shown["experiment"]["strategy"]["overlap"] is False
    main(["predict", goyal, "--json", "--set", "machine.inter_node.bandwidth=1 Gb/s"])
    assert json.loads(capsys.readouterr().out)["step_time"] > shown["step_time"]


def test_explain_opens_every_number(goyal, capsys):
    main(["predict", goyal, "--explain"])
    shown = capsys.readouterr().out
    for word in ("Awan", "Williams", "Blom", "Goyal et al. 2017, section 4"):
        assert word in shown
    assert shown.count("\n  formula ") == shown.count("\n  assumes ") == 10


def test_a_run_is_compared_with_another(goyal, tmp_path, capsys):
    main(["predict", goyal, "--set", "strategy.overlap=false", "--save", str(tmp_path / "b.toml")])
    capsys.readouterr()
    words = ["predict", str(tmp_path / "b.toml"), "--against", goyal]
    assert main(words) == 0
    said = capsys.readouterr().out.splitlines()[-1]
    assert said.startswith(f"  Against {goyal} (overlap true → false), a step takes ")
    assert "gradients +" in said and "The run takes" in said
    assert main([*words, "--json"]) == 0
    against = json.loads(capsys.readouterr().out)["against"]
    assert against["changed"] == {"strategy.overlap": {"from": True, "to": False}}
    assert against["words"] == said.strip() and against["run"] == goyal
    assert against["prediction"]["step_time"] == pytest.approx(
        float(predict(load(goyal)).step_time)
    )
    assert main(["predict", goyal, "--against", goyal]) == 0
    assert capsys.readouterr().out.endswith(f"  Against {goyal}: no field differs.\n")


def test_two_runs_in_a_row_are_answered_with_against(goyal, capsys):
    with pytest.raises(SystemExit):
        main(["predict", "goyal-2017", goyal])
    assert capsys.readouterr().err.endswith(f"To compare two runs: --against {goyal}.\n")


def test_save_writes_an_experiment_that_predicts_the_same(goyal, tmp_path, capsys):
    saved = tmp_path / "new.toml"
    main(["predict", goyal, "--set", "strategy.batch=64", "--save", str(saved), "--json"])
    shown = json.loads(capsys.readouterr().out)
    assert float(predict(load(saved)).step_time) == shown["step_time"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["predict", "goyal"], "Did you mean 'goyal-2017'"),
        (["predict", "nowhere.toml"], "no such file"),
        (["predict", "goyal-2017", "--set", "strategy.nodes=45"], "bigbasin has 44"),
        (["predict", "goyal-2017", "--set", "strategy.nodse=4"], "Did you mean 'nodes'"),
        (["predict", "goyal-2017", "--set", "strategy.allreduce=rign"], "Did you mean 'ring'"),
        (["predict", "goyal-2017", "--set", "strategy.tp=3"], "Did you mean 'strategy.tensor'"),
        (["predict", "goyal-2017", "--set", "gpus=8"], "Did you mean 'strategy.nodes'"),
        (["predict", "goyal-2017", "--set", "strategy.precision=FP16"], "Did you mean 'fp16'"),
        (["predict", "goyal-2017", "--set", "strategy.tensor=3"], "does not make the"),
        (["predict", "goyal-2017", "--set", "strategy.nodes"], "KEY=VALUE"),
        (["predict", "goyal-2017", "--set", "machine.inter_node.bandwidth=fast"], "12.5 GB/s"),
        (["predict", "goyal-2017", "--save", "/no/such/folder/x.toml"], "--save"),
        (["catalog", "machine"], "machines"),
        (
            ["catalog", "laptop"],
            "write dlhpc catalog machines laptop or dlhpc catalog presets laptop",
        ),
        (["catalog", "machines", "bigbasn"], "Did you mean 'bigbasin'"),
        (["catalog", "bigbasn"], "Did you mean 'bigbasin'"),
        (["catalog", "H100"], "Did you mean 'h100-pod' or "),
        (["catalog", "h100"], "'h100-sxm-80gb'"),
        (["catalog", "nope"], "no kind and no entry of the catalog; kinds: devices"),
        (["validate", "goyal"], "Did you mean 'goyal17'"),
        (["explore", "no.ipynb"], "no such notebook"),
        (["predict", "goyal-2017", "--set", "strategy.batch=many"], "not a number; write a number"),
        (["predict", "."], "no such file but a folder"),
        (["predict", ""], "found an empty name"),
        (["predict", "goyal-2017", "--set", "nodes=4"], "Did you mean 'strategy.nodes'"),
        (
            ["predict", "goyal-2017", "--set", "machine.name=mine"],
            "write its whole table, with any other name",
        ),
        (
            ["predict", "goyal-2017", "--machine", "sumit"],
            "write MODEL@summit, or --set machine.name",
        ),
        (["predict", "goyal-2017", "--machine", "our.toml"], "write MODEL@NAME or MODEL@FILE"),
        (["plan", "goyal-2017", "--limit", "memory"], "--limit memory: expected KEY=VALUE"),
        (["sweep", "goyal-2017", "--over", f"strategy.nodes=1-{10**20}"], "legal: up to 1,000,000"),
    ],
)
def test_an_error_is_reported_in_one_line_and_exits_2(arguments, words, capsys):
    assert main(arguments) == 2
    captured = capsys.readouterr()
    assert words in captured.err
    assert captured.err.startswith("dlhpc: ") and captured.err.count("\n") == 1
    assert not captured.out


@pytest.mark.parametrize(
    ("line", "nearest", "usage"),
    [
        ("predct goyal-2017", "predict", "dlhpc [-h]"),
        ("trace sohw x", "show", "dlhpc trace"),
        ("completion bsh", "bash", "dlhpc completion"),
        ("plan goyal-2017 --quikc", None, "dlhpc plan"),
        ("predict goyal-2017 --explian", "--explain", "dlhpc predict"),
        ("predict goyal-2017 --sav=x.toml", None, None),  # an abbreviation, as argparse allows
        ("sweep goyal-2017 --over strategy.nodes=1-4 --outt=3", None, "dlhpc sweep"),
        ("trace steps x --jsno", "--json", "dlhpc trace steps"),
        ("--verison", "--version", "dlhpc [-h]"),
        ("predict --hlp", "--help", "dlhpc predict"),
    ],
)
def test_a_mistyped_word_names_the_nearest(line, nearest, usage, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    if usage is None:
        assert main(line.split()) == 0
        return
    with pytest.raises(SystemExit) as end:
        main(line.split())
    said = capsys.readouterr().err
    assert end.value.code == 2 and said.startswith(f"usage: {usage}")
    assert (
        f"{nearest!r}? Choose from " in said or said.endswith(f"Did you mean {nearest!r}?\n")
    ) == bool(nearest)


@pytest.mark.parametrize(
    ("option", "field"),
    [
        ("--nodes=4", "strategy.nodes"),
        ("--tokens", "run.tokens"),
        ("--gpus", "strategy.nodes"),
        ("-n", "strategy.nodes"),
        ("--seq-len", "model.sequence"),
    ],
)
def test_a_field_in_place_of_an_option_is_answered_with_set(option, field, capsys):
    with pytest.raises(SystemExit):
        main(["predict", "llama3-8b@h100-pod", option, "4"])
    assert capsys.readouterr().err.endswith(f"A field of the run: --set {field}=VALUE.\n")


def test_without_a_verb_the_verbs_are_named(capsys):
    with pytest.raises(SystemExit) as end:
        main(["serve"])
    assert end.value.code == 2
    assert capsys.readouterr().err.endswith("VERB. Choose from predict, simulate, run, validate.\n")


@pytest.mark.parametrize(
    "words, command",
    [
        ("serve llama3-70b@h100-pod", "dlhpc serve predict"),
        ("resnet50@summit", "dlhpc predict"),
        ("goyal-2017", "dlhpc predict"),
        ("import tests", "dlhpc import model"),
        ("export tests", "dlhpc export crate"),
    ],
)
def test_a_run_in_place_of_a_command_is_answered_with_one(words, command, capsys):
    with pytest.raises(SystemExit) as end:
        main(words.split())
    assert end.value.code == 2
    said = f"A command comes first: {command} {words.split()[-1]}. Choose from"
    assert said in capsys.readouterr().err


@pytest.mark.parametrize("option", ["--by=device_hour", "--format=cvs"])
def test_a_mistyped_value_of_a_sweep_names_the_nearest(option, capsys, tmp_path):
    words = ["--over", "strategy.nodes=1-4", option, "--rows", str(tmp_path / "rows")]
    assert main(["sweep", "goyal-2017", *words]) == 2
    assert "Did you mean " in capsys.readouterr().err


def test_a_sweep_prints_energy_in_the_unit_of_a_prediction(capsys):
    words = ["--over", "strategy.nodes=32", "--by", "energy_to_train"]
    assert main(["sweep", "goyal-2017", *words]) == 0
    swept = capsys.readouterr().out
    assert main(["predict", "goyal-2017"]) == 0
    energy = re.search(r"energy to train +([\d.]+ kWh)", capsys.readouterr().out)[1]
    assert swept.count(energy) == 3 and not re.search(r"\d [kMG]?J", swept)


@pytest.mark.parametrize(("of_a_plan", "quantity"), sweep.OBJECTIVES.items())
def test_a_sweep_has_the_objectives_of_a_plan(of_a_plan, quantity, capsys):
    assert main(["sweep", "goyal-2017", "--over", "strategy.nodes=8,32", "--by", of_a_plan]) == 0
    assert f"best by {quantity}" in capsys.readouterr().out


def test_a_sweep_prints_device_hours_without_a_prefix(capsys):
    words = ["--over", "strategy.nodes=40", "--set", "run.epochs=900", "--by", "device_hours"]
    assert main(["sweep", "goyal-2017", *words]) == 0
    shown = capsys.readouterr().out
    assert re.search(r"\d,\d{3} device-hours", shown) and "kh" not in shown


@pytest.mark.parametrize(
    ("changes", "energy", "cost"),
    [
        ("run.epochs=1e-4", r"\d k?J   modeled", r"\d   device-seconds"),
        ("run.epochs=90", r"\d kWh   modeled", r"\d   device-hours"),
    ],
)
def test_a_short_run_is_not_a_fraction_of_an_hour(changes, energy, cost, capsys):
    one = ("strategy.nodes=1", "strategy.devices_per_node=1")
    assert main(["predict", "goyal-2017", "--set", *one, changes]) == 0
    shown = capsys.readouterr().out
    assert re.search(energy, shown) and re.search(cost, shown)


@pytest.mark.parametrize("words", [("explore",), ("class", "serve")])
@pytest.mark.parametrize("port", ["65536", "-1", "http"])
def test_a_port_that_cannot_be_is_refused_before_anything_starts(words, port, capsys):
    with pytest.raises(SystemExit) as end:
        main([*words, "--port", port])
    assert end.value.code == 2
    assert f"argument --port: '{port}': legal: 0 to 65535" in capsys.readouterr().err


@pytest.mark.parametrize(
    "words", ["predict -", "couple -", "serve predict -", "trace show -", "import machine -"]
)
def test_a_closed_standard_input_is_an_error_in_one_line(words, monkeypatch, capsys):
    monkeypatch.setattr(sys, "stdin", None)
    assert main(words.split()) == 2
    assert capsys.readouterr().err == "dlhpc: -: standard input is closed.\n"


def test_standard_input_that_is_no_text_is_an_error_in_one_line(monkeypatch, capsys):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"\xff\xfe"), "utf-8"))
    assert main(["predict", "-"]) == 2
    assert "standard input is not text" in capsys.readouterr().err


@pytest.mark.parametrize("option", ["predict goyal-2017 --save", "simulate goyal-2017 --trace"])
def test_a_folder_in_place_of_a_file_is_refused_and_kept(option, tmp_path, capsys):
    folder = tmp_path / ("dear.json" if option.endswith("--trace") else "dear.npz")
    folder.mkdir()
    (folder / "file").touch()
    few = ["--set", "strategy.nodes=1"]
    assert main([*option.split(), str(folder), *few]) == 2
    assert "directory" in capsys.readouterr().err.lower() and (folder / "file").exists()


def test_a_batch_is_printed_alike_for_all_devices_and_for_one(capsys):
    main(["predict", "goyal-2017", "--set", "strategy.batch=4096", "--quiet"])
    assert "batch 1,048,576 (4,096 per device)" in capsys.readouterr().out


@pytest.mark.parametrize(
    "line",
    [
        "submit none.toml --out",
        "submit none.toml --resume",
        "run none.toml --out",
        "run none.toml --resume",
        "compare none.toml --out",
        "couple none.toml --out",
        "calibrate --out",
        "calibrate machine --out",
        "calibrate io . --out",
        "explore --copy",
        "snapshots restore none 1 --out",
        "snapshots branch none 1 --out",
        "predict goyal17-r50-1h --save",
        "simulate goyal17-r50-1h --trace",
    ],
)
def test_an_empty_name_is_not_the_current_folder(line, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))  # never over the user's own calibration
    assert main([*line.split(), ""]) == 2  # as of "$OUT" where nothing set it
    out, err = capsys.readouterr()
    option = line.split()[-1]
    assert err.startswith(f"dlhpc: {option}: expected a ") and err.count("\n") == 1 and not out
    assert main(["trace", "run", "--out", "", "none.py"]) == 2
    assert "--out: expected a folder or file" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_a_folder_is_not_an_experiment(tmp_path, capsys):
    assert main(["predict", str(tmp_path)]) == 2
    assert str(tmp_path) in capsys.readouterr().err


def test_walls_are_shown_with_by_how_much(goyal, capsys):
    main(["predict", goyal, "--set", "strategy.batch=4096"])
    assert "WALL  Memory: one device needs" in capsys.readouterr().out


def test_validate_exits_0_while_all_rows_are_within_what_they_state(capsys, monkeypatch):
    validate_once(monkeypatch)
    assert main(["validate"]) == 0
    shown = capsys.readouterr().out
    assert "goyal17-r50-1h" in shown and "data parallel" in shown and "miss: " in shown


def test_validate_exits_1_when_a_row_leaves_its_tolerance(capsys, monkeypatch):
    from lib_dlhpc.prediction.validation import validate
    from lib_dlhpc.prediction.validation.published import published

    monkeypatch.setattr(
        validate, "published", lambda identity: published(identity) | {"value": "10"}
    )
    assert main(["validate", "goyal17"]) == 1
    assert "FAIL" in capsys.readouterr().out


def test_validate_reports_the_status_of_every_row(capsys):
    main(["validate", "goyal17", "--json"])
    result = json.loads(capsys.readouterr().out)
    assert result["status"]["goyal17-r50-1h"]["status"] == "scored"
    assert result["status"]["goyal17-r50-epoch8"]["status"] == "left out"
    assert result["status"]["goyal17-r50-iterinc"]["status"] == "input"
    assert all(row["tolerance_from"] for row in result["rows"])
    assert {row["id"] for row in result["rows"]} | set(result["left_out"]) <= set(result["status"])
    main(["validate", "goyal17"])
    assert capsys.readouterr().out.splitlines()[-1] == (
        "8 published rows: 3 scored, 3 inputs, 2 left out"
    )


def test_validate_prints_a_reason_once(capsys):
    main(["validate", "nemo-b200"])
    shown = capsys.readouterr().out
    for text in ("no cause is known", "trained with multi-token prediction"):
        assert shown.count(text) == 1
    assert "miss: as bridge-gpt-oss-120b-b200-bf16-64\n" in shown


@pytest.mark.parametrize("command", ["predict", "simulate"])
def test_a_change_that_drops_a_measured_rate_warns_on_standard_error(command, capsys):
    change = ["--set", "strategy.nodes=2", "machine.device=v100-sxm2-16gb"]
    assert main([command, "goyal-2017", *change]) == 0
    result = capsys.readouterr().err
    assert result.startswith("dlhpc: warning: calibration.rate = 1089.4 is dropped")
    assert (
        "machine.device = 'p100-sxm2', not 'v100-sxm2-16gb'" in result and result.count("\n") == 1
    )
    main([command, "goyal-2017", "--set", "strategy.nodes=2"])
    assert not capsys.readouterr().err
    if command == "predict":
        main(["predict", "goyal-2017", *change, "--json"])
        assert any("is dropped" in note for note in json.loads(capsys.readouterr().out)["notes"])


@pytest.mark.parametrize("name", catalog.names("replays"))
def test_a_prediction_that_misses_its_publication_reports_it(name, capsys):
    main(["predict", name])
    missed = replay(name).miss(float(predict(replay(name).experiment).time_to_train))
    shown = capsys.readouterr().out
    assert ("too short" in shown or "too long" in shown) == bool(missed)
    assert missed in shown


@pytest.mark.parametrize("name", catalog.names("presets"))
def test_presets_have_names_too(name, capsys):
    assert main(["predict", name]) == 0
    assert "one step" in capsys.readouterr().out


@pytest.mark.parametrize("kind", catalog.KINDS)
def test_catalog_lists_and_shows_every_entry(kind, capsys):
    assert main(["catalog", kind]) == 0
    listed = capsys.readouterr().out
    for name in catalog.names(kind):
        assert name in listed
        assert main(["catalog", kind, name]) == 0


def test_catalog_shows_an_entry_without_its_kind(capsys):
    main(["catalog", "machines", "summit"])
    shown = capsys.readouterr().out
    assert main(["catalog", "summit"]) == 0
    assert capsys.readouterr().out == shown


def test_catalog_shows_the_source_of_every_number_of_a_machine(capsys):
    main(["catalog", "machines", "bigbasin"])
    lines = [line for line in capsys.readouterr().out.splitlines() if line.startswith("  ")]
    with_numbers = [line for line in lines if any(c.isdigit() for c in line[37:61])]
    named = ("device", "intra_node", "inter_node")
    unsourced = [line for line in with_numbers if not line.rstrip().endswith("]")]
    assert all(line.split()[0] in named for line in unsourced)


def test_output_into_a_closed_pipe_is_no_error():
    command = f"{sys.executable} -m lib_dlhpc.cli completion bash | true"  # more than a buffer
    done = subprocess.run(command, shell=True, capture_output=True, text=True, check=True)
    assert done.stderr == ""
