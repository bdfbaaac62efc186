"""The notebook of the evaluation runs as it is, and with a file of answers."""

import json
import re

import pytest

from lib_dlhpc.classroom import database, grades
from lib_dlhpc.teaching.evaluation import key_of, simulated
from lib_dlhpc.teaching.questions import read
from lib_dlhpc.teaching.simulated_class import Truth
from lib_dlhpc.teaching.simulated_class import simulated as simulated_class


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
    concept_test, _, pages = printed.partition("module     opened")
    assert len(concept_test.splitlines()) == 3 + 5 + 2 + 28 + 2
    assert printed.count("SIMULATED") == 7  # above each table: nobody takes it for that of a class
    assert all(pages.count(name) == 1 for name in ("remembered", "first  last", "median"))
    assert pages.count("The usual mistake.") == 10


def test_it_reads_a_file(run, tmp_path, repository):
    key = key_of(read(repository / "instructor_notes" / "concept_test.py", "QUESTIONS"))
    lines = [",".join(map(str, each)) for each in simulated(key, learners=7, before=0.3, after=1.0)]
    (tmp_path / "answers.csv").write_text("\n".join(["learner,when,item,answer", *lines]))
    concept_test, _, _ = run().partition("module     opened")
    assert "7 learners with both tests, 0 with one only" in concept_test
    assert concept_test.count("SIMULATED") == 1 and concept_test.count("answers.csv") == 3


def test_it_reads_an_export_of_a_class(run, tmp_path):
    file = tmp_path / "class.sqlite"
    database.create(file)
    for entry in simulated_class(learners=3, truth=Truth(absent=0.0)):
        database.insert(file, [entry], entry.learner)
    (tmp_path / "class.csv").write_text(grades.export(file, "csv")[0], "utf-8")
    assert re.search(r"^one_step +3 +\d", run(), re.M)
