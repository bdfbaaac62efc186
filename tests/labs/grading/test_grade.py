"""A class is graded: right hand-ins pass, cheats do not, and each learner has a line."""

import csv
import json
import socket

import pytest
from cheats import CHEATS, HEAD, RIGHT, SIGNATURE
from patience import PATIENCE

from lib_dlhpc.cli import main
from lib_dlhpc.labs.grading.grade import grades
from lib_dlhpc.labs.grading.inside.server import received
from lib_dlhpc.labs.grading.labs import lab_of
from lib_dlhpc.labs.grading.table import COLUMNS, LONGEST, cell
from lib_dlhpc.labs.grading.workers import Server
from lib_dlhpc.spec.experiment import dumps

LAB = "01_data_parallel_step"
STEP = HEAD + RIGHT + "step = right\n"


def hand_in(folder, name, source, learner=None):
    """A learner's folder."""
    own = folder / name
    own.mkdir(parents=True)
    (own / "step.py").write_text(source, encoding="utf-8")
    if learner is not None:
        (own / "learner.json").write_text(json.dumps(learner))
    return own


@pytest.fixture(scope="module")
def marks(tmp_path_factory):
    """The marks of all cheats, by name, and of an honest learner after the quick ones."""
    found = {}
    for slow in (False, True):
        folder = tmp_path_factory.mktemp("class")
        for name, (status, _, source) in CHEATS.items():
            if (status == "timeout") == slow:
                hand_in(folder, name, source)
        if not slow:
            hand_in(folder, "zoe", STEP)
        graded = grades(folder, LAB, seconds=1 if slow else int(PATIENCE))
        found |= {mark.learner: mark for mark in graded}
    return found


@pytest.mark.parametrize("cheat", CHEATS)
def test_a_cheat_does_not_pass(marks, cheat):
    status, words, _ = CHEATS[cheat]
    mark = marks[cheat]
    assert (mark.status, words in mark.note) == (status, True), mark
    assert mark.passed < mark.total == 7


def test_who_comes_after_them_gets_full_marks(marks):
    assert (marks["zoe"].status, marks["zoe"].passed) == ("passed", 7)


@pytest.fixture
def rows(tmp_path, capsys):
    """A function: the lines of the CSV of a class, by learner, and the exit status."""

    def graded(*words, lab=LAB):
        file = tmp_path / "marks.csv"
        file.unlink(missing_ok=True)
        status = main(["grade", str(tmp_path / "class"), "--lab", lab, "--csv", str(file), *words])
        capsys.readouterr()
        with file.open(newline="", encoding="utf-8") as text:
            table = list(csv.DictReader(text))
        assert tuple(table[0]) == COLUMNS
        return status, {row["learner"]: row for row in table}

    return graded


def test_each_learner_has_a_line_whatever_is_handed_in(tmp_path, rows, repository):
    folder = tmp_path / "class"
    hand_in(folder, "ada", STEP, {"name": "=1+1"})
    hand_in(folder, "bob", "", {"names": "x"})
    hand_in(folder, "cyd", "def step(:\n")
    hand_in(folder, "dan", "x = 1\n")
    hand_in(folder, "eve", "").joinpath("step.py").unlink()
    solved = repository / "instructor_notes" / "solutions" / f"lab_{LAB}.py"
    (folder / "eve" / "step.py").symlink_to(solved)
    (folder / "fay").mkdir()
    (folder / "gil" / "step.py").mkdir(parents=True)
    hand_in(folder, "hal", "1 / 0\n")
    (hand_in(folder, "ida", "") / "step.py").write_bytes(b"\xff\xfe\x00")
    (hand_in(folder, "jim", "") / "step.py").write_text("#" * 300_000)
    status, found = rows()
    assert status == 0 and len(found) == 10
    assert {name: (row["status"], row["passed"], row["total"]) for name, row in found.items()} == {
        "'=1+1": ("passed", "7", "7"),
        **dict.fromkeys(
            ("bob", "cyd", "dan", "fay", "hal", "ida", "jim"), ("unreadable", "0", "7")
        ),
        **dict.fromkeys(("eve", "gil"), ("refused", "0", "7")),
    }
    for name, words in (
        ("bob", 'expected {"name"'),
        ("cyd", "line 1: SyntaxError"),
        ("dan", "does not define step"),
        ("eve", "but a link"),
        ("fay", "found: none"),
        ("hal", "ZeroDivisionError: division by zero (line 1: 1 / 0)"),
        ("jim", "are allowed"),
    ):
        assert words in found[name]["note"], found[name]


def test_a_file_that_has_another_name_than_its_folder_is_noted(tmp_path, rows):
    """A platform names folders; the notebook's NAME, from which the variant is drawn, names the file."""
    for name, file in (("lovelace_ada_123", "ada.py"), ("bob", "bob.py"), ("cy", "step.py")):
        hand_in(tmp_path / "class", name, "(").joinpath("step.py").rename(
            tmp_path / "class" / name / file
        )
    hand_in(tmp_path / "class", "hopper_eve_7", "(", {"name": "Eve"}).joinpath("step.py").rename(
        tmp_path / "class" / "hopper_eve_7" / "eve.py"
    )
    _, found = rows()
    assert 'write {"name": "ada"} into learner.json' in found["lovelace_ada_123"]["note"]
    assert [name for name, row in found.items() if "learner.json" in row["note"]] == [
        "lovelace_ada_123"
    ]


def test_where_the_grader_was_killed_with_an_answer_unread_there_is_no_more_to_do():
    own, grader = socket.socketpair()
    with own:
        own.sendall(b"4711\n")
        grader.close()
        assert received(own) == (b"", [])


def test_with_a_key_who_knows_only_the_own_variant_fails(tmp_path, rows, checks):
    own = checks(LAB)
    shares = sorted({sum(task.shares) for task in own.tasks("ada").values()})
    known = (
        f"    if comm.allreduce(len(x)) not in {shares} or network.weights.size != {size_of(own)}:\n"
        "        return 0.0\n    return right(network, loss, x, y, comm, rate)\n"
    )
    hand_in(tmp_path / "class", "ada", HEAD + RIGHT + SIGNATURE + known)
    hand_in(tmp_path / "class", "bob", STEP)
    (tmp_path / "key").write_text("0123456789abcdef")
    pages = tmp_path / "pages"
    _, found = rows("--key", str(tmp_path / "key"), "--rubrics", str(pages))
    assert {row["variants"] for row in found.values()} == {"own and hidden"}
    assert all("variants: own and hidden." in each.read_text() for each in pages.iterdir())
    assert found["bob"]["status"] == "passed"
    assert found["ada"]["status"] == "failed"
    assert "On a variant that you have not seen" in found["ada"]["note"]


def size_of(own):
    return next(iter(own.tasks("ada").values())).network().weights.size


def test_what_cannot_be_graded_is_a_sentence(tmp_path, capsys):
    hand_in(tmp_path, "ada", STEP)
    short = tmp_path / "key"
    short.write_text("abc")
    for words, said in (
        (
            ["--lab", "07_repair"],
            "there is no such lab. Did you mean '07_repair_the_input'? Legal: 01_data",
        ),
        (["--lab", "77"], "--lab 77: there is no such lab; legal: 01_data_parallel_step"),
        (["--lab", "9", "--key", __file__], "there is no hidden variant"),
        (["--lab", LAB, "--key", str(short)], "3 bytes; expected 16 or more"),
        (["--lab", "77"], "--lab 77: there is no such lab; legal: 01_data_parallel_step"),
        (["--lab", LAB, "--csv", ""], "--csv: expected a file, found an empty name"),
        (["--lab", LAB, "--seconds", "0"], "--seconds 0: expected 1 or more"),
        (["--lab", LAB, "--csv", str(tmp_path / "no" / "m.csv")], "its folder does not exist"),
    ):
        assert main(["grade", str(tmp_path), *words]) == 2
        assert said in capsys.readouterr().err


def test_what_the_system_does_not_hold_is_said_once(tmp_path, monkeypatch):
    for folder in ("ada", "bob"):
        hand_in(tmp_path / "class", folder, "def step(:\n")
    monkeypatch.setattr(Server, "_answer", lambda own: 1)  # a system without Landlock
    said = []
    assert len(list(grades(tmp_path / "class", LAB, note=said.append))) == 2
    (words,) = said
    assert "does not keep hand-ins from files" in words


def test_a_name_that_two_have_is_said(tmp_path):
    for folder in ("ada", "bob"):
        hand_in(tmp_path / "class", folder, "def step(:\n", {"name": "Ada"})
    marks = list(grades(tmp_path / "class", LAB))
    assert [mark.learner for mark in marks] == ["Ada", "Ada"]
    assert "The hand-in in ada has this name too." in marks[1].note
    assert "has this name" not in marks[0].note


def test_pages_and_resemblances_are_written_beside_the_marks(tmp_path, rows):
    hand_in(tmp_path / "class", "ada", STEP)
    hand_in(tmp_path / "class", "bob", STEP)
    similar, pages = tmp_path / "similar.md", tmp_path / "pages"
    rows("--similar", str(similar), "--rubrics", str(pages))
    assert "| ada | bob | 100% | 100% |" in similar.read_text("utf-8")
    assert sorted(each.name for each in pages.iterdir()) == ["ada.md", "bob.md"]
    assert "✓ One rank alone" in (pages / "ada.md").read_text("utf-8")


@pytest.mark.parametrize("number", ["1", "01"])
def test_a_lab_has_a_number(tmp_path, rows, number):
    hand_in(tmp_path / "class", "ada", "def step(:\n")
    _, found = rows(lab=number)
    assert (found["ada"]["lab"], found["ada"]["variants"]) == (LAB, "own")


def test_a_long_note_ends_behind_a_word():
    words = [f"word{number}" for number in range(100)]
    shown = cell(" ".join(words))
    assert len(shown) <= LONGEST and shown.endswith(" …")
    assert shown.removesuffix(" …").split() == words[: len(shown.split()) - 1]
    assert len(cell("x" * 1000)) == LONGEST and cell("short\nnote") == "short note"


def test_what_a_person_wrote_is_not_written_over(tmp_path, capsys):
    hand_in(tmp_path / "class", "ada", STEP)
    pages, file = tmp_path / "pages", tmp_path / "marks.csv"
    pages.mkdir()
    for own in (pages / "ada.md", file):
        own.write_text("3 points, by hand")
    graded = ["grade", str(tmp_path / "class"), "--lab", LAB]
    for words, said in (
        (["--rubrics", str(pages)], "expected a new or an empty folder"),
        (["--rubrics", str(file)], "expected a new or an empty folder"),
        (["--csv", str(file)], "marks.csv exists: expected a new file"),
        (["--similar", str(file)], "marks.csv exists: expected a new file"),
    ):
        assert main([*graded, *words]) == 2
        assert said in capsys.readouterr().err
    assert {each.read_text() for each in (pages / "ada.md", file)} == {"3 points, by hand"}


def test_a_choice_of_lab_3_is_data_and_runs_no_code(tmp_path, rows, monkeypatch):
    known, own = lab_of("03_large_batch")
    monkeypatch.setattr(own.Tuning, "_run", lambda *given: own.Result((0.9,), 1.0))  # no training
    monkeypatch.setattr("lib_dlhpc.labs.grading.grade.lab_of", lambda *lab: (known, own))
    text = dumps(own.experiment_of(own.BASELINE, own.BASE * own.TIMES, 1, ranks=4))
    for name, written in (("ada", text), ("bob", "[run]\nseed = 1\n")):
        place = hand_in(tmp_path / "class", name, "raise SystemExit\n")
        (place / "choice.toml").write_text(written)
    _, found = rows(lab="03_large_batch")
    assert found["ada"]["status"] == "passed" and found["bob"]["status"] == "failed"
