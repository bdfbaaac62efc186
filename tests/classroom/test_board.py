"""The board counts each learner once, names nobody unless asked, and finds common mistakes."""

import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lib_dlhpc.classroom import database, record
from lib_dlhpc.classroom.board import board, histogram
from lib_dlhpc.explore.board.page import board_page
from lib_dlhpc.explore.course import PATH


@pytest.fixture
def a_class(tmp_path):
    """A function: answer(who, question, kind, answer, **more); its `board` returns what the board shows."""
    file = tmp_path / "class.sqlite"
    database.create(file)

    def answer(who, question, kind, text="", **more):
        folder = tmp_path / who
        folder.mkdir(exist_ok=True)
        entry = record.add(folder, f"id-{who}", "toy", question, kind, answer=text, **more)
        database.insert(file, [entry], who, entry.time)

    answer.board = lambda **more: board(file, **more)
    return answer


def the(shown, name):
    return next(each for each in shown["questions"] if each["question"] == name)


def counts(question):
    return {each["label"]: each["count"] for each in question["bins"] if each["count"]}


def test_who_is_where_is_their_last_answer(a_class):
    a_class("anna", "", "open")
    a_class("bert", "q1", "guess", "3", value=3.0, final=True)
    a_class("anna", "q2", "check", "a")
    shown = a_class.board(named=True)
    at = {
        each["label"]: (each["module"], each["question"], each["done"])
        for each in shown["learners"]
    }
    assert at == {"anna": ("toy", "q2", 0), "bert": ("toy", "q1", 1)}


def test_nobody_is_named_unless_asked_for(a_class):
    a_class("anna", "q1", "guess", "3", value=3.0)
    shown = a_class.board()
    assert "anna" not in json.dumps(shown) and shown["learners"][0]["label"] == "Learner 1"
    assert a_class.board(named=True)["learners"][0]["label"] == "anna"


def test_a_learner_counts_once_by_the_first_answer(a_class):
    for text in ("half", "half", "all", "most"):
        a_class("anna", "q", "check", text, right=text == "most", final=text == "most")
    a_class("bert", "q", "check", "half", right=False)
    shown = the(a_class.board(), "q")
    assert counts(shown) == {"half": 2}
    assert (shown["learners"], shown["right"]) == (2, 1)
    assert shown["wrong"] == [{"answer": "half", "count": 2}, {"answer": "all", "count": 1}]
    assert [each["label"] for each in shown["revealed"] if each["right"]] == ["most"]


def test_a_guess_is_a_histogram_with_the_result_in_it(a_class):
    for who, value in (("anna", 2.0), ("bert", 3.0), ("carl", 10.0)):
        right = value == 10
        a_class(
            who, "q", "guess", str(value), value=value, right=right, result="11.1 ms", final=True
        )
    a_class("dora", "q", "guess", "", final=True)
    shown = the(a_class.board(), "q")
    assert sum(counts(shown).values()) == 4 and counts(shown)["skipped"] == 1
    assert shown["result"] == "11.1 ms"
    (right,) = [each for each in shown["revealed"] if each["right"]]
    assert right["label"] == "10 to 12 ms"


@pytest.mark.parametrize(
    ("kind", "given"),
    [("guess", ("20", "24", "20")), ("choice", ("ring", "tree")), ("check", ("all", "half"))],
)
def test_before_it_is_revealed_the_bins_say_nothing_of_what_is_right(a_class, kind, given):
    """The same answers have the same bins, whatever is right."""
    shown = []
    for number, right in enumerate(("2 ms", "20 ms")):
        for who, text in enumerate(given):
            value = float(text) if kind == "guess" else None
            a_class(f"{who}", f"q{number}", kind, text, value=value, right=False, result=right)
        a_class("0", f"q{number}", kind, right, right=True, result=right)
        shown.append(the(a_class.board(), f"q{number}"))
    first, second = shown
    assert first["bins"] == second["bins"] and first["revealed"] != second["revealed"]
    assert {each["right"] for each in first["bins"]} == {None}


def test_numbers_of_each_learners_own_are_counted_by_how_they_came(a_class):
    a_class(
        "anna", "q", "compute", "1", right=True, final=True, asked="What is 3 squared of ResNet-50?"
    )
    a_class("bert", "q", "compute", "1", right=False, asked="What is 1,024.5 squared of ResNet-50?")
    a_class("bert", "q", "compute", "2", right=True, final=True)
    a_class("carl", "q", "compute", "7", right=False)
    a_class("dora", "q", "compute", "", final=True)
    shown = the(a_class.board(), "q")
    assert list(counts(shown)) == ["right at once", "right later", "not yet right", "skipped"]
    assert shown["asked"] == "What is … squared of ResNet-50?" and shown["wrong"] == []


def test_a_lab_shows_what_does_not_hold_for_how_many(a_class):
    a_class("anna", "Your step", "lab", "Replicas agree; Target", right=False)
    a_class("anna", "Your step", "lab", "Target", right=False)
    a_class("bert", "Your step", "lab", "Target", right=False)
    a_class("carl", "Your step", "lab", "", right=True, final=True)
    shown = the(a_class.board(), "Your step")
    assert shown["wrong"] == [{"answer": "Target", "count": 2}]
    assert shown["right"] == 1


def test_a_question_has_the_time_of_its_last_answer(a_class):
    for who, name in (("anna", "q1"), ("anna", "q2"), ("bert", "q1")):
        a_class(who, name, "check", "a")
    a_class("bert", "", "open")  # opening a page is no answer
    shown = a_class.board()
    assert the(shown, "q1")["time"] >= the(shown, "q2")["time"]
    assert len(shown["questions"]) == 2


def test_notes_are_words(a_class):
    a_class("anna", "try.1", "step", "it fits", final=True)
    a_class("bert", "try.1", "step", "-", final=True)
    assert the(a_class.board(), "try.1")["words"] == ["it fits"]


@given(
    values=st.lists(st.floats(-1e6, 1e6) | st.floats(1e-9, 1e9), max_size=30),
    result=st.floats(1e-3, 1e6),
)
def test_every_guess_is_in_one_bin_and_so_is_the_result(values, result):
    bins = histogram(values, f"{result:,} ms")
    assert sum(each["count"] for each in bins) == len(values)
    assert sum(each["right"] for each in bins) == 1
    assert len(bins) <= 10


def test_guesses_over_orders_of_magnitude_have_bins_apart():
    apart = [each["count"] for each in histogram([1.0, 10.0, 100.0, 1000.0])]
    assert sorted(apart) == [0, 0, 0, 0, 1, 1, 1, 1]


@pytest.mark.parametrize("values", [[0.0, 5e-324], [-1e100, 1e100], [1.0, 1.0 + 2**-52]])
def test_strange_numbers_have_bins_too(values):
    assert sum(each["count"] for each in histogram(values)) == len(values)


def test_hints_are_counted_by_how_many_a_learner_opened(a_class):
    a_class("bert", "checks", "lab", right=False)
    for who in ("anna", "anna", "bert", "cora", "cora"):
        a_class(who, "hints: buckets", "hint", asked="buckets")
    shown = a_class.board()
    found = the(shown, "hints: buckets")
    assert counts(found) == {"1 opened": 1, "2 opened": 2} and found["asked"] == "buckets"
    assert shown["answers"] == 1
    assert sorted(who["answers"] for who in shown["learners"]) == [0, 0, 1]


def test_the_page_calls_each_module_by_its_number_and_title():
    (titles,) = re.findall(r'id="titles">(.+?)</script>', board_page().decode())
    assert json.loads(titles)["io_bottleneck"] == "07 I/O bottlenecks"
    assert len(json.loads(titles)) == len(PATH)
