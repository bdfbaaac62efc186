"""Grade files have the columns that gradebooks read, and no cell that a spreadsheet computes."""

import csv
import io

import pytest

from lib_dlhpc.classroom import database, grades, record
from lib_dlhpc.errors import SpecError
from lib_dlhpc.explore import course

ANSWERS = (  # who, module, question, kind, answer, right
    ("anna", "one_step", "a", "guess", "1", False),
    ("anna", "one_step", "b", "check", "wrong", False),
    ("anna", "one_step", "b", "check", "right", True),
    ("bert", "one_step", "a", "guess", "", None),
    ("bert", "one_step", "b", "check", "wrong", False),
    ("bert", "one_step", "c", "step", "=1+1", None),
    ("anna", "02_overlap", "checks", "lab", "", True),
    ("anna", "02_overlap", "hints: buckets", "hint", "", None),
    ("", "one_step", "a", "guess", "9", True),
)


@pytest.fixture
def file(tmp_path):
    file = tmp_path / "class.sqlite"
    database.create(file)
    for who, module, question, kind, answer, right in ANSWERS:
        folder = tmp_path / f"id-{who}"
        folder.mkdir(exist_ok=True)
        entry = record.add(folder, folder.name, module, question, kind, answer=answer, right=right)
        database.insert(file, [entry], who, entry.time)
    return file


def rows(file, form, first=False):
    text, said = grades.export(file, form, course.title_of, first)
    return list(csv.reader(io.StringIO(text))), said


def test_canvas_knows_header_points_and_logins(file):
    found, said = rows(file, "canvas")
    assert found == [
        [
            *("Student", "ID", "SIS User ID", "SIS Login ID", "Section"),
            "lab 02 overlap",
            "module 01 one step",
        ],
        ["Points Possible", "", "", "", "", "100", "100"],
        ["anna", "", "", "anna", "", "100.0", "66.67"],
        ["bert", "", "", "bert", "", "", "33.33"],
    ]
    assert said == "2 learners, 2 modules; 1 without a name left out"


def test_moodle_has_a_dash_for_no_grade(file):
    found, _ = rows(file, "moodle")
    assert found == [
        ["username", "lab 02 overlap", "module 01 one step"],
        ["anna", "100.0", "66.67"],
        ["bert", "-", "33.33"],
    ]


def test_nbgrader_has_a_row_for_each_learner_and_assignment(file):
    (header, *found), _ = rows(file, "nbgrader")
    assert header == list(grades.NBGRADER)
    assert [(row[0], row[3], row[7], row[9], row[10]) for row in found] == [
        ("lab_02_overlap", "anna", "100.0", "100.0", "100.0"),
        ("lab_02_overlap", "bert", "0.0", "0.0", "100.0"),
        ("module_01_one_step", "anna", "66.67", "66.67", "100.0"),
        ("module_01_one_step", "bert", "33.33", "33.33", "100.0"),
    ]


def test_first_tries_count_checks_that_were_right_at_once(file, tmp_path):
    folder = tmp_path / "id-bert"
    for question, right in (("b", True), ("d", True), ("d", False)):  # b was wrong before
        place = (folder, folder.name, "one_step", question, "check")
        database.insert(file, [record.add(*place, answer="x", right=right)], "bert")
    found, said = rows(file, "moodle", first=True)
    assert found == [
        [
            *("username", "lab 02 overlap", "lab 02 overlap first try"),
            *("module 01 one step", "module 01 one step first try"),
        ],
        ["anna", "100.0", "100.0", "50.0", "0.0"],
        ["bert", "-", "-", "75.0", "50.0"],
    ]
    assert said.startswith("2 learners, 2 modules")


def test_every_entry_is_a_row_and_none_a_formula(file):
    (header, *found), said = rows(file, "csv")
    assert said == f"{len(ANSWERS)} entries" and len(found) == len(ANSWERS)
    assert header[:3] == ["name", "id", "learner"] and "try" in header
    answers = [row[header.index("answer")] for row in found]
    assert "'=1+1" in answers and "1" in answers
    question = header.index("question")
    firsts = {(row[0], row[question], row[-1]) for row in found if row[-1]}
    assert {("anna", "b", "False"), ("anna", "checks", "True")} <= firsts
    assert ("anna", "b", "True") not in firsts  # right at the second try


def test_two_browsers_of_one_person_are_one_learner(file, tmp_path):
    entry = record.add(
        tmp_path / "id-bert", "other", "one_step", "b", "check", answer="x", right=True
    )
    database.insert(file, [entry], "bert", entry.time)
    found, _ = rows(file, "moodle")
    assert found[2] == ["bert", "-", "66.67"]


def test_a_class_without_names_has_no_grades(tmp_path):
    database.create(tmp_path / "class.sqlite")
    with pytest.raises(SpecError, match="--csv has all"):
        grades.export(tmp_path / "class.sqlite", "canvas")
