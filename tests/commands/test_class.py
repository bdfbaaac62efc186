"""`dlhpc class`: consent and deletion in one command each, folders in, grade files out."""

import json

import pytest

from lib_dlhpc.classroom import classes, database, learner, record
from lib_dlhpc.cli import main


@pytest.fixture
def home(tmp_path, monkeypatch):
    monkeypatch.setenv(learner.HOME, str(tmp_path / "learner"))
    return tmp_path / "learner"


def answer(folder, name="anna", question="q"):
    folder.mkdir(parents=True, exist_ok=True)
    return record.add(folder, name, "toy", question, "check", answer="a", right=True)


def test_joining_says_where_answers_are_and_forgetting_deletes_them(home, capsys):
    assert main(["class", "status"]) == 0
    assert "not joined" in capsys.readouterr().out and not home.exists()
    assert main(["class", "join", "--name", "anna"]) == 0
    said = capsys.readouterr().out
    assert str(home) in said and "nothing leaves this machine" in said
    token = learner.at_home().token
    answer(home)
    assert main(["class", "status"]) == 0
    assert "anna: 1 entries" in capsys.readouterr().out
    assert main(["class", "report", "--json"]) == 0
    (module,) = json.loads(capsys.readouterr().out)["modules"]
    assert (module["title"], module["right_at_first_try"]) == ("module toy", 1)
    assert main(["class", "join"]) == 0
    assert (learner.at_home().token, learner.at_home().name) == (token, "anna")
    assert main(["class", "forget"]) == 0
    assert not home.exists()
    assert main(["class", "forget"]) == 0


def test_a_class_that_is_away_gets_the_answers_later(home, capsys):
    address = "http://127.0.0.1:9/?token=secret"
    assert main(["class", "join", address]) == 0
    assert "nothing is lost" in capsys.readouterr().err
    answer(home, learner.at_home().id)
    answer(home, "of another token")  # is not sent
    assert main(["class", "send"]) == 1
    assert "nothing is lost" in capsys.readouterr().err
    assert main(["class", "status"]) == 0
    said = capsys.readouterr().out
    assert "1 of them have not reached http://127.0.0.1:9/ yet" in said and "secret" not in said
    who = learner.at_home().id
    assert main(["class", "forget"]) == 1
    assert who in capsys.readouterr().err and not home.exists()


def test_folders_come_in_and_grades_go_out(home, tmp_path, capsys):
    answer(tmp_path / "handed" / "in" / "anna")
    place = ["--folder", str(tmp_path / "class")]
    for new in (1, 0):
        assert main(["class", "collect", str(tmp_path / "handed"), *place]) == 0
        assert capsys.readouterr().out.startswith(f"{new} new")
    out = tmp_path / "all.csv"
    assert main(["class", "export", "--csv", str(out), *place]) == 0
    assert out.read_text().count("\n") == 2
    assert main(["class", "export", "--csv", str(out), *place]) == 2
    assert "expected a new file" in capsys.readouterr().err
    assert main(["class", "export", "--moodle", str(tmp_path / "x.csv"), *place]) == 2
    assert main(["class", "forget", "anna", *place]) == 0
    assert database.answers(tmp_path / "class" / classes.DATABASE) == []
    assert main(["class", "forget", "anna", *place]) == 2


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["join", "room 12"], "'room 12': expected the address of a class"),
        (["join", "--name", "a\nb"], "expected one line"),
        (["send"], "There is no class to send to"),
        (["report"], "You have no record"),
        (["collect", "nowhere"], "nowhere: expected a folder"),
        (["export", "--csv", "x.csv", "--folder", "nowhere"], "not the folder of a class"),
        (["serve", "nowhere.ipynb"], "no such notebook or folder"),
        (["serve", "--hub"], "hub"),
    ],
)
def test_an_error_names_what_is_wrong(home, words, said, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(["class", *words]) == 2
    assert said in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []
