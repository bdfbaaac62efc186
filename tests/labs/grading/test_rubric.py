"""The page of a learner: the checks, the rubric of the notes, the reflection of the notebook."""

import json
from dataclasses import replace

import pytest

from lib_dlhpc.labs.findings import broken, kept
from lib_dlhpc.labs.grading.grade import Mark
from lib_dlhpc.labs.grading.labs import LABS
from lib_dlhpc.labs.grading.rubric import page, reflection, rubric_of

LAB = "01_data_parallel_step"


def notebook(folder, *texts):
    cells = [{"cell_type": "markdown", "source": [text]} for text in texts]
    (folder / "lab.ipynb").write_text(json.dumps({"cells": cells}))


@pytest.mark.parametrize("lab", LABS)
def test_the_rubric_of_each_lab_has_ten_points_and_a_human_part(repository, lab):
    rubric = rubric_of(repository / "instructor_notes", lab)
    assert sum(int(points) for points, _ in rubric) == 10
    assert any("reflection" in what for _, what in rubric)


def test_where_all_holds_a_human_is_asked_for_the_rest(tmp_path, repository):
    rubric = rubric_of(repository / "instructor_notes", LAB)
    notebook(tmp_path, "## Reflect\n\n1. Where?", "In `loss`, <b>twice</b>.")
    mark = Mark(tmp_path, "ada", LAB, 1, 1, "passed", "All 1 hold.", (kept("A law", "It holds."),))
    text = page(mark, rubric)
    assert "# half ?, 01" in page(replace(mark, learner="half \ud800"), rubric)
    assert "- ✓ A law. It holds." in text
    assert "| 4 | 4 | even and uneven shares" in text and "| 1 | 1 | the loss" in text
    assert "|  | 3 | reflection" in text and "|  | 1 | real ranks" in text
    assert "> In `loss`, &lt;b>twice&lt;/b>." in text


def test_where_a_law_fails_no_points_are_given(tmp_path, repository):
    rubric = rubric_of(repository / "instructor_notes", LAB)
    mark = Mark(tmp_path, "ada", LAB, 0, 1, "failed", "", (broken("A law", "It does not."),))
    assert "| 4 | 4 |" not in page(mark, rubric) and "- ✗ A law." in page(mark, rubric)


def test_a_reflection_that_is_missing_is_said(tmp_path):
    assert "No notebook" in reflection(tmp_path)
    notebook(tmp_path, "## Reflect\n\n1. Where?", "*Your reflection.*")
    assert reflection(tmp_path) == "Nothing was written."
    (tmp_path / "lab.ipynb").write_text('{"cells": 3}')
    assert "is no notebook" in reflection(tmp_path)
