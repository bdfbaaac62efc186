"""A verb is a file of lib_dlhpc/commands: what all of them have in common, and what `dlhpc --help` reports."""

import io
import json
import sys
from importlib import import_module
from pathlib import Path

import pytest

from lib_dlhpc.cli import VERBS, main
from lib_dlhpc.spec import catalog

ROOM = Path(__file__).resolve().parents[2] / "lib_dlhpc" / "commands"


def helped(*words, capsys):
    with pytest.raises(SystemExit, match="0"):
        main([*words, "--help"])
    return " ".join(capsys.readouterr().out.split())


def test_every_file_that_adds_a_verb_is_listed():
    adding = {
        file.stem for file in ROOM.glob("*.py") if "subparsers.add_parser(" in file.read_text()
    }
    assert adding <= set(VERBS)


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_has_its_own_help_and_imports_no_other(verb, capsys):
    assert callable(import_module(f"lib_dlhpc.commands.{verb}").add)
    assert f"usage: dlhpc {verb}" in helped(verb, capsys=capsys)


def test_the_help_explains_the_tool_and_lists_every_verb(capsys):
    shown = helped(capsys=capsys)
    for words in ("Describe a training run once", "standard input", *VERBS):
        assert words in shown


def test_an_experiment_is_read_from_standard_input(repository, capsys, monkeypatch):
    file = repository / "labs" / "experiments" / "digits.toml"
    assert main(["predict", "--json", str(file)]) == 0
    from_file = json.loads(capsys.readouterr().out)
    monkeypatch.setattr(sys, "stdin", io.StringIO(file.read_text("utf-8")))
    assert main(["predict", "--json", "-"]) == 0
    assert json.loads(capsys.readouterr().out) == from_file
    monkeypatch.setattr(sys, "stdin", io.StringIO("[model"))
    assert main(["predict", "-"]) == 2


@pytest.mark.parametrize(("batch", "status"), [(32, 0), (4096, 1)])
@pytest.mark.parametrize("form", [[], ["--json"]])
def test_check_exits_1_where_a_run_does_not_fit(batch, status, form, capsys):
    words = ["predict", "goyal-2017", "--set", f"strategy.batch={batch}", *form]
    assert main([*words, "--check"]) == status
    capsys.readouterr()


@pytest.mark.parametrize(
    "text", ["strategy.nodes=8,16", "strategy.nodes=1-8:2", "strategy.nodes=[8]"]
)
def test_several_values_of_a_field_lead_to_sweep(text, capsys):
    assert main(["predict", "goyal-2017", "--set", text]) == 2
    quoted = f"'{text}'" if "[" in text else text
    assert f": dlhpc sweep goyal-2017 --over {quoted}\n" in capsys.readouterr().err
    assert main(["sweep", "goyal-2017", "--over", text, "--best", "1"]) == 0


def test_one_wrong_value_does_not_lead_to_sweep(capsys):
    assert main(["predict", "goyal-2017", "--set", "strategy.nodes=many", "run.epochs=[90]"]) == 2
    assert "sweep" not in capsys.readouterr().err


def test_the_catalog_is_printed_as_json(capsys):
    assert main(["catalog", "--json"]) == 0
    kinds = json.loads(capsys.readouterr().out)
    assert set(kinds) == set(catalog.KINDS)
    for words in (["machines"], ["machines", "summit"]):
        assert main(["catalog", *words, "--json"]) == 0
        assert json.loads(capsys.readouterr().out)
