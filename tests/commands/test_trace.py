"""`dlhpc trace` for a user: output, error messages, exit status."""

import json

import pytest

from lib_dlhpc.cli import main
from lib_dlhpc.timeline import from_rows
from lib_dlhpc.timeline.formats import read, write

ROWS = [
    (0, "compute", "region", "step", 0.0, 2.0),
    (0, "compute", "region", "two\nlines", 0.5, 1.0),
    (1, "compute", "region", "step", 0.0, 2.5),
    (1, "communication", "send", "MPI_Send", 1.0, 1.25, 4096, 0, 0, 3),
    (0, "communication", "receive", "MPI_Recv", 0.75, 1.5, 4096, 1, 0, 3),
]


@pytest.fixture(params=["run.npz", "run.json", "run.json.gz"])
def trace(request, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write(from_rows(ROWS, 3, "measured"), request.param)
    return request.param


def test_show_prints_an_overview(trace, capsys):
    assert main(["trace", "show", trace]) == 0
    result = capsys.readouterr().out
    assert result.startswith("measured: 3 ranks, 5 events in 2.5 s, from 0 s to 2.5 s.\n")
    assert "No events of 1 rank: 2." in result
    tables = [line.split() for line in result.splitlines()]
    assert ["region", "3", "5", "s"] in tables
    assert ["send", "1", "250", "ms", "4.1", "kB"] in tables
    assert ["step", "compute", "2", "4.5", "s", "2.5", "s", "1"] in tables
    assert ["two?lines", "compute", "1", "500", "ms", "500", "ms", "0"] in tables


def test_show_in_numbers(trace, capsys):
    assert main(["trace", "show", trace, "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["span"] == 2.5 and result["events"] == 5 and result["ranks without events"] == [2]
    step = {
        "name": "step",
        "stream": "compute",
        "events": 2,
        "seconds": 4.5,
        "most": 2.5,
        "rank": 1,
    }
    assert result["names"][0] == step
    assert sum(kind["events"] for kind in result["kinds"]) == 5


@pytest.mark.parametrize("out", ["out.npz", "out.json", "out.json.gz"])
def test_convert_keeps_every_event(trace, out, capsys):
    assert main(["trace", "convert", trace, out]) == 0
    assert capsys.readouterr() == ("", f"{out}: 5 events of 3 ranks.\n")
    assert sorted(read(out)) == sorted(read(trace))


def test_show_of_nothing(tmp_path, capsys):
    write(from_rows([], 2, "measured"), tmp_path / "none.npz")
    assert main(["trace", "show", str(tmp_path / "none.npz")]) == 0
    assert capsys.readouterr().out == "measured: 2 ranks, 0 events in 0 s, from 0 s to 0 s.\n"


def refused(capsys, *arguments):
    assert main(["trace", *arguments]) == 2
    out, error = capsys.readouterr()
    assert not out and error.startswith("dlhpc: ")
    return error


def test_errors_are_reported_with_the_file(trace, tmp_path, capsys):
    assert "none.npz: no such file" in refused(capsys, "show", "none.npz")
    assert "expected a name that ends in .npz" in refused(capsys, "convert", trace, "out.txt")
    assert "'crome': Did you mean 'chrome'? Formats: columns" in refused(
        capsys, "convert", trace, "out.x", "--to", "crome"
    )
    assert "no-folder/out.json: cannot be written: No such file or directory" in refused(
        capsys, "convert", trace, "no-folder/out.json"
    )
    (tmp_path / "folder.json").mkdir()
    assert "folder.json: a folder" in refused(capsys, "convert", trace, "folder.json")
    (tmp_path / "empty.json").touch()
    assert "empty.json: empty; expected" in refused(capsys, "show", "empty.json")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["empty.json", "folder.json", trace]


def test_run_names_the_requested_file(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    error = refused(capsys, "run", "--out", "k.foo", "program.py")
    assert error.startswith("dlhpc: k.foo: expected a name that ends in .npz")


def test_an_otf2_archive_there_and_back(trace, capsys):
    pytest.importorskip("otf2")
    for out in ("run.otf2", "plain"):
        assert main(["trace", "convert", trace, out, "--to", "otf2"]) == 0
        capsys.readouterr()
        assert main(["trace", "show", out]) == 0
        assert capsys.readouterr().out.startswith("measured: 3 ranks, 5 events in 2.5 s")
        assert sorted(read(out)) == sorted(read(trace))


def test_the_command_line_lists_all_actions_on_traces(capsys):
    for words in (["--help"], ["trace", "run", "--help"]):
        with pytest.raises(SystemExit):
            main(words)
    result = " ".join(capsys.readouterr().out.split())
    assert "trace record, show, analyze and convert traces" in result
    assert "[--out OUT] (PROGRAM | -m MODULE) [ARGUMENT ...]" in result
