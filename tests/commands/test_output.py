"""What all commands have in common: --json, --quiet, standard input, and where output goes."""

import io
import json
import sys
from types import SimpleNamespace

import pytest
from parsers import leaves

from lib_dlhpc.cli import main
from lib_dlhpc.timeline import from_rows
from lib_dlhpc.timeline.formats import read, write

WITHOUT_OUTPUT = {
    "class serve": "a server, until Ctrl-C",
    "completion": "its output is a script",
    "explore": "a server, until Ctrl-C",
    "store cat": "its output is the content of files",
}
PARSERS = leaves()
ROWS = [(0, "compute", "region", "step", 0.0, 2.0), (1, "compute", "region", "step", 0.0, 2.5)]


def printed(words, capsys, status=0):
    assert main([str(word) for word in words]) == status
    return capsys.readouterr()


@pytest.mark.parametrize("words", PARSERS)
def test_every_command_has_json_and_quiet_unless_it_reports_nothing(words):
    options = {option for action in PARSERS[words]._actions for option in action.option_strings}
    assert ({"--json", "--quiet", "-q"} <= options) == (words not in WITHOUT_OUTPUT)


def test_the_list_of_exceptions_names_commands():
    assert set(WITHOUT_OUTPUT) <= set(PARSERS)


@pytest.fixture
def place(tmp_path, own_place, repository):
    """A folder with a trace and a packed store, and no jobs."""
    write(from_rows(ROWS, 2, "measured"), "trace.npz")
    assert main(["store", "pack", str(repository / "lib_dlhpc/catalog/sites"), "packed"]) == 0
    return tmp_path


REPORTS = [  # commands that need no ranks
    "predict goyal-2017",
    "predict goyal-2017 --set strategy.batch=4096",
    "sweep goyal-2017 --over strategy.nodes=1-4",
    "simulate goyal-2017",
    "validate goyal17",
    "catalog",
    "catalog machines",
    "catalog machines summit",
    "jobs",
    "jobs list .",
    "store pack state folder",
    "store ls packed",
    "store ls packed -l",
    "store verify packed",
    "trace show trace.npz",
    "trace analyze trace.npz",
    "trace convert trace.npz out.json",
]


@pytest.mark.parametrize("line", REPORTS)
def test_with_json_standard_output_is_one_document_and_quiet_silences_the_rest(line, place, capsys):
    (place / "state").mkdir(exist_ok=True)
    capsys.readouterr()
    out, err = printed([*line.split(), "--json", "--quiet"], capsys)
    assert json.loads(out) is not None and not err


@pytest.mark.parametrize("line", ["jobs --json list", "calibrate --quiet io ."])
def test_an_option_before_an_action_holds_for_it(line, monkeypatch):
    from lib_dlhpc.cli import parser_of

    options = parser_of().parse_args(line.split())
    assert options.json or options.quiet


def test_quiet_silences_notes_and_never_errors(place, capsys):
    change = ["--set", "strategy.nodes=2", "machine.device=v100-sxm2-16gb"]
    assert "warning" in printed(["predict", "goyal-2017", *change], capsys).err
    loud, quiet = (
        printed(["predict", "goyal-2017", *change, *more], capsys) for more in ([], ["--quiet"])
    )
    assert quiet == (loud.out, "")
    assert "no such file" in printed(["predict", "none.toml", "--quiet"], capsys, 2).err
    partition = max((place / "packed").glob("partition*"), key=lambda path: path.stat().st_size)
    partition.write_bytes(partition.read_bytes()[:-1])
    broken = printed(["store", "verify", "packed", "--quiet"], capsys, 1)
    assert broken.out and not broken.err
    assert json.loads(printed(["store", "verify", "packed", "--json"], capsys, 1).out)["problems"]


def test_a_trace_is_read_from_standard_input(place, capsys, monkeypatch):
    for name in ("trace.npz", "trace.json", "trace.json.gz"):
        write(from_rows(ROWS, 2, "measured"), name)
        shown = printed(["trace", "show", name, "--json"], capsys).out
        content = (place / name).read_bytes()

        def stdin(content=content):
            monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(content)))

        stdin()
        assert printed(["trace", "show", "-", "--json"], capsys).out == shown
        stdin()
        printed(["trace", "convert", "-", "out.npz"], capsys)
        assert sorted(read("out.npz")) == sorted(read(name))
        stdin()
        assert "no other file" in printed(["trace", "show", "-", name], capsys, 2).err


def test_a_stream_that_is_no_trace_is_named(place, capsys, monkeypatch):
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(b"nothing")))
    assert "dlhpc: standard input: " in printed(["trace", "show", "-"], capsys, 2).err


def test_a_workflow_is_read_from_standard_input(repository, monkeypatch, capsys):
    file = repository / "labs/experiments/coupled.toml"
    for text, said in ((file.read_text("utf-8"), "--ranks 0"), ("[model", "Not valid TOML")):
        monkeypatch.setattr(sys, "stdin", io.StringIO(text))
        assert said in printed(["couple", "-", "-n", "0"], capsys, 2).err


def test_a_program_in_a_network_has_no_json(capsys):
    assert (
        "--json: applies to measurements"
        in printed(["network", "--json", "--", "program.py"], capsys, 2).err
    )


def test_an_output_without_greek_letters_is_printed_all_the_same(monkeypatch):
    """As in a pipe on Windows, whose encoding is that of the system."""
    stream = io.TextIOWrapper(io.BytesIO(), encoding="cp1252")
    monkeypatch.setattr(sys, "stdout", stream)
    assert main(["predict", "goyal-2017", "--explain"]) == 0
    stream.flush()
    assert "? over layers of max" in stream.buffer.getvalue().decode("cp1252")


def test_a_simulated_trace_is_not_written_under_the_name_of_another_format(tmp_path, capsys):
    words = ["simulate", "laptop", "--trace", tmp_path / "out.npz"]
    assert "ends in .json" in printed(words, capsys, 2).err and not list(tmp_path.iterdir())
