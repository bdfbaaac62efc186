"""The page of a learner: the checks, the rubric of the notes, the reflection of the notebook."""

import json
import sys
from dataclasses import replace

import pytest

from lib_dlhpc.commands.grade import write_rubrics
from lib_dlhpc.labs.findings import broken, kept, later
from lib_dlhpc.labs.grading.grade import Mark
from lib_dlhpc.labs.grading.labs import LABS
from lib_dlhpc.labs.grading.rubric import Row, page, points_of, reflection, rubric_of

LAB = "01_data_parallel_step"
LAWS_1 = (
    *("One rank alone", "Replicas agree", "Even shards", "Uneven shards", "A rank without samples"),
    *("The loss is that of the whole batch", "Target: the gradients travel once"),
)


def laws_of_lab_1(other=None):
    """Findings in which all laws hold but the other one."""
    found = [kept(law, "It holds.") for law in LAWS_1]
    return tuple(other if other and each.law == other.law else each for each in found)


def notebook(folder, *texts):
    cells = [{"cell_type": "markdown", "source": [text]} for text in texts]
    (folder / "lab.ipynb").write_text(json.dumps({"cells": cells}))


@pytest.mark.parametrize("lab", LABS)
def test_the_rubric_of_each_lab_has_ten_points_and_a_human_part(repository, lab):
    rubric = rubric_of(repository / "instructor_notes", lab)
    assert sum(row.points for row in rubric) == 10
    assert any("reflection" in row.what and not row.items for row in rubric)


def test_where_all_holds_a_human_is_asked_for_the_rest(tmp_path, repository):
    rubric = rubric_of(repository / "instructor_notes", LAB)
    notebook(tmp_path, "## Reflect\n\n1. Where?", "In `loss`, <b>twice</b>.")
    mark = Mark(tmp_path, "ada", LAB, 1, 1, "passed", "All 1 hold.", laws_of_lab_1())
    text = page(mark, rubric)
    assert "# half ?, 01" in page(replace(mark, learner="half \ud800"), rubric)
    assert "- ✓ Even shards. It holds." in text
    assert "| 4 | 4 | even and uneven shards" in text and "| 1 | 1 | the loss" in text
    assert "|  | 3 | reflection" in text and "|  | 1 | real ranks" in text
    assert "> In `loss`, &lt;b>twice&lt;/b>." in text


def test_where_a_law_fails_the_points_of_the_others_are_given(tmp_path, repository):
    rubric = rubric_of(repository / "instructor_notes", LAB)
    findings = laws_of_lab_1(broken("Target: the gradients travel once", "They do not."))
    mark = Mark(tmp_path, "ada", LAB, 6, 7, "failed", "", findings)
    text = page(mark, rubric)
    assert "| 4 | 4 | even" in text and "| 1 | 1 | the loss" in text
    assert "| 0 | 1 | the target" in text
    assert "|  | 3 | reflection" in text and "|  | 1 | real ranks" in text
    uneven = replace(mark, findings=laws_of_lab_1(broken("Uneven shards", "They are off.")))
    assert "| 3 | 4 | even" in page(uneven, rubric)


def test_what_was_not_checked_or_ended_badly_is_left_to_a_human(tmp_path, repository):
    rubric = rubric_of(repository / "instructor_notes", LAB)
    mark = Mark(tmp_path, "ada", LAB, 5, 7, "failed", "", laws_of_lab_1(later("Uneven shards")))
    assert "|  | 4 | even" in page(mark, rubric) and "| 1 | 1 | the target" in page(mark, rubric)
    assert "| 1 | 1 |" not in page(replace(mark, status="timeout"), rubric)
    assert "|  | 4 | even" in page(replace(mark, findings=()), rubric)


def test_a_page_in_pytorch_has_all_rows_and_no_points(tmp_path, repository):
    """Its laws may begin like those of the rubric by accident: "Even microbatches" of lab 4 does."""
    rubric = rubric_of(repository / "instructor_notes", "04_pipeline")
    found = tuple(kept(law, "It holds.") for row in rubric for item in row.items for law in item)
    mark = Mark(tmp_path, "ada", "04_pipeline (PyTorch)", 8, 8, "passed", "", found)
    text = page(mark, rubric)
    assert [line for line in text.splitlines() if line.startswith("|  |")] == [
        f"|  | {row.points} | {row.what} |" for row in rubric
    ]
    assert "| 1 | 1 | the target" in page(replace(mark, lab="04_pipeline"), rubric)


def test_the_rubrics_of_a_class_in_pytorch_are_those_of_the_lab(tmp_path, repository, monkeypatch):
    monkeypatch.chdir(repository)
    title = "04_pipeline (PyTorch)"
    mark = Mark(tmp_path / "ada", "ada", title, 0, 8, "unreadable", "There is no file.")
    write_rubrics(tmp_path / "pages", "4", [mark])
    text = (tmp_path / "pages" / "ada.md").read_text("utf-8")
    for row in rubric_of(repository / "instructor_notes", "04_pipeline"):
        assert f"|  | {row.points} | {row.what} |" in text


def test_a_row_of_several_points_and_one_law_is_left_to_a_human_where_it_fails():
    row, reached, missed = Row(2, "", (("Target",),)), kept("Target", ""), broken("Target", "")
    assert points_of(row, [reached]) == 2 and points_of(row, [missed]) is None
    both = Row(1, "", (("Target", "Other"),))
    assert points_of(both, [missed, later("Other")]) == 0
    assert points_of(both, [reached, later("Other")]) is None


@pytest.mark.parametrize("lab", LABS)
def test_the_laws_of_a_rubric_are_those_of_its_checks(repository, checks, lab):
    laws = laws_of(checks(lab))
    for row in rubric_of(repository / "instructor_notes", lab):
        assert len(row.items) <= row.points, row
        for law in (each for item in row.items for each in item):
            assert len([each for each in laws if each.startswith(law)]) == 1, law


def laws_of(own):
    """The texts of a lab's checks among which its laws are, and of the modules that they import."""
    modules = {getattr(each, "__module__", None) for each in vars(own).values()}
    found = {
        own,
        *(sys.modules[name] for name in modules if str(name).startswith("lib_dlhpc.labs.")),
    }
    texts = {text for each in found for text in vars(each).values() if isinstance(text, str)}
    return texts | ({*own.tasks("x")} if own.__name__.startswith("01_") else set())


def test_a_reflection_that_is_missing_is_said(tmp_path):
    assert "No notebook" in reflection(tmp_path)
    notebook(tmp_path, "## Reflect\n\n1. Where?", "*Your reflection.*")
    assert reflection(tmp_path) == "Nothing was written."
    (tmp_path / "lab.ipynb").write_text('{"cells": 3}')
    assert "is not a notebook" in reflection(tmp_path)
