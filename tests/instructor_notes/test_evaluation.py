"""The notebook of the evaluation runs as it is, and with a file of answers."""

import json

import pytest

from lib_dlhpc.teaching.evaluation import key_of, simulated
from lib_dlhpc.teaching.questions import read


@pytest.fixture
def run(repository, monkeypatch, tmp_path, capsys):
    """Run the cells in a folder that has the concept test; return what they print."""
    notes = repository / "instructor_notes"
    (tmp_path / "concept_test.py").write_text(
        (notes / "concept_test.py").read_text("utf-8"), "utf-8"
    )
    monkeypatch.chdir(tmp_path)
    cells = json.loads((notes / "evaluation.ipynb").read_text("utf-8"))["cells"]
    code = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]

    def printed():
        exec("\n".join(code), {})
        return capsys.readouterr().out

    return printed


def test_it_runs_without_a_file(run):
    printed = run()
    assert "30 learners with both tests" in printed
    assert "normalized gain" in printed
    assert len(printed.splitlines()) == 4 + 28


def test_it_reads_a_file(run, tmp_path, repository):
    key = key_of(read(repository / "instructor_notes" / "concept_test.py", "QUESTIONS"))
    lines = [",".join(map(str, each)) for each in simulated(key, learners=7, before=0.3, after=1.0)]
    (tmp_path / "answers.csv").write_text("\n".join(["learner,when,item,answer", *lines]))
    assert "7 learners with both tests, 0 with one only" in run()
