"""dlhpc import model: what it prints is the [model] section of an experiment that can be predicted."""

import io
import json
import sys

from lib_dlhpc.cli import main

CONFIG = {
    "model_type": "mixtral",
    "vocab_size": 96,
    "hidden_size": 32,
    "intermediate_size": 40,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "num_local_experts": 4,
    "num_experts_per_tok": 2,
    "max_position_embeddings": 64,
    "rope_scaling": {"factor": 2.0},
}
REST = '[dataset]\nname = "webtext"\n[machine]\nname = "selene"\n[strategy]\nnodes = 2\n'


def test_the_output_is_a_section_to_predict_with(tmp_path, capsys, monkeypatch):
    file = tmp_path / "config.json"
    file.write_text(json.dumps(CONFIG))
    assert main(["import", "model", str(file), "--sequence", "16"]) == 0
    printed = capsys.readouterr()
    assert "note: rope_scaling" in printed.err and "parameters" in printed.err
    monkeypatch.setattr(sys, "stdin", io.StringIO(printed.out + REST))
    assert main(["predict", "--json", "-"]) == 0
    capsys.readouterr()
    assert main(["import", "model", str(file), "--sequence", "16", "-o", f"{file}.toml"]) == 0
    assert capsys.readouterr().out == ""
    assert (tmp_path / "config.json.toml").read_text() == printed.out


def test_json_and_errors(tmp_path, capsys):
    file = tmp_path / "config.json"
    file.write_text(json.dumps(CONFIG))
    assert main(["import", "model", str(file), "--json", "--quiet"]) == 0
    printed = capsys.readouterr()
    table = json.loads(printed.out)
    assert table["model"]["experts"]["experts"] == 4 and table["parameters"] > 0
    assert table["notes"] and printed.err == ""
    file.write_text(json.dumps({**CONFIG, "hops": 3}))
    assert main(["import", "model", str(file)]) == 2
    assert "hops = 3" in capsys.readouterr().err


def test_a_config_nested_too_deeply_is_refused(tmp_path, capsys):
    (tmp_path / "config.json").write_text("[" * 100_000)
    assert main(["import", "model", str(tmp_path)]) == 2
    assert "nested too deeply" in capsys.readouterr().err
