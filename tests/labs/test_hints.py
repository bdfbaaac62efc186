"""Hints of the labs: three on each topic, opened in order, counted, and none of them a solution."""

import ast
import json
import re

import pytest

from lib_dlhpc.classroom import learner, record, recording
from lib_dlhpc.errors import SpecError
from lib_dlhpc.explore.course import LABS
from lib_dlhpc.explore.labs.hints import hints
from lib_dlhpc.labs import hints as lab_hints

LONGEST = 60  # words
# Functions of the starters that are given, or that the topic of another function covers.
GIVEN = {
    "04_pipeline": {"forward", "backward"},
    "05_split_convolution": {"both"},
    "09_predict_your_cluster": {"solve"},
    "10_race_the_planner": {"differ"},
    "12_lay_out_a_language_model": {"gather", "weights_of"},
    "14_fuse_attention": {"write_scores"},
}
TEXT = '"A" = ["Look.", "It is `x`.", "Add 1."]\n"B" = ["b1", "b2", "b3"]\n'
every_lab = pytest.mark.parametrize("lab", LABS)


def cells(repository, lab, kind):
    (path,) = (repository / "labs" / lab).glob("*.ipynb")
    found = json.loads(path.read_text("utf-8"))["cells"]
    return ["".join(each["source"]) for each in found if each["cell_type"] == kind]


def words_of(repository, lab):
    found = lab_hints.read(repository / "labs" / lab)
    return [text for texts in found.values() for text in texts]


@every_lab
def test_every_lab_has_short_hints_and_a_cell_that_opens_them(repository, lab):
    texts = words_of(repository, lab)
    assert len(set(texts)) == len(texts) >= 9
    assert not [text for text in texts if len(text.split()) > LONGEST]
    assert any(source.endswith("\nhints()") for source in cells(repository, lab, "code"))


@every_lab
def test_every_function_that_a_learner_writes_has_a_topic(repository, lab):
    code = "\n".join(cells(repository, lab, "code"))
    tree = ast.parse(re.sub(r"^[%!].*$", "", code, flags=re.M))
    written = {each.name for each in tree.body if isinstance(each, ast.FunctionDef)}
    topics = " ".join(lab_hints.read(repository / "labs" / lab))
    assert written - GIVEN.get(lab, set()) <= set(re.findall(r"`(\w+)`", topics))


@every_lab
def test_no_hint_has_a_line_of_the_solution(repository, lab):
    file = repository / "instructor_notes" / "solutions" / f"lab_{lab}.py"
    solution, _, _ = file.read_text("utf-8").partition("\n\n\n# mistake")
    lines = {line.strip() for line in solution.splitlines()}
    texts = words_of(repository, lab)
    assert not [line for line in lines if len(line) > 20 and any(line in text for text in texts)]


@pytest.fixture
def lab(tmp_path, monkeypatch):
    """The folder of a lab with two topics, where a learner has joined."""
    folder = tmp_path / "labs" / "02_overlap"
    folder.mkdir(parents=True)
    (folder / "hints.toml").write_text(TEXT)
    monkeypatch.chdir(folder)
    monkeypatch.setenv(learner.HOME, str(tmp_path / "learner"))
    monkeypatch.delenv(recording.CLASS, raising=False)
    return learner.join(tmp_path / "learner")


def test_hints_open_one_after_another_and_each_is_counted_without_an_answer(lab):
    page = hints()
    _, first, other = page.children
    assert "Look." not in first.plain_text() and "1 of 3: A" in first.button.description
    first.button.click()
    assert "Look." in first.plain_text() and "It is" not in first.plain_text()
    for _ in range(3):
        first.reveal()
    assert "<code>x</code>" in first.children[0].value and first.button.disabled
    assert "b1" not in other.plain_text()
    found = [
        (e.module, e.question, e.kind, e.attempt, e.answer) for e in record.entries(lab.folder)
    ]
    assert found == [("02_overlap", "hints: A", "hint", stage, "") for stage in (1, 2, 3)]


def test_hints_that_were_opened_are_open_when_the_notebook_is_run_again(lab):
    before = hints()
    before = hints()
    before.children[1].reveal()
    after = hints()
    _, first, other = after.children
    assert "Look." in first.plain_text() and "2 of 3" in first.button.description
    assert "1 of 3" in other.button.description and len(record.entries(lab.folder)) == 1


def test_who_has_not_joined_sees_hints_and_nothing_is_recorded(lab):
    learner.forget(lab.folder)
    page = hints()
    topic = page.children[1]
    topic.reveal()
    assert "Look." in topic.plain_text() and "ecorded" not in topic.plain_text()
    assert record.entries(lab.folder) == []


def test_a_hint_that_cannot_be_recorded_says_so(lab):
    page = hints()
    topic = page.children[1]
    (lab.folder / learner.RECORD).mkdir()
    topic.reveal()
    assert "Look." in topic.plain_text() and "Not recorded: Is a directory." in topic.plain_text()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('"A" = ["one", "two"]\n', "'A': expected three hints, nudge, idea, step"),
        ('"A" = "one"\n', "'A': expected three hints"),
        ('"A" = [\n', "not valid TOML"),
        (None, "No such file or directory. Hints are in the folder of a lab."),
    ],
)
def test_a_file_that_cannot_be_used_is_named(tmp_path, text, said):
    if text:
        (tmp_path / "hints.toml").write_text(text)
    with pytest.raises(SpecError, match=re.escape(said)):
        lab_hints.read(tmp_path)
