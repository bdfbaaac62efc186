"""What widgets say in plain text: all of it, computed only where somebody may read it."""

import ipywidgets
import pytest

from lib_dlhpc.explore.blocks.charts import chart
from lib_dlhpc.explore.blocks.lesson import Lesson
from lib_dlhpc.explore.blocks.plain_text import PAGE_HAS_VEGA, Column, Line, Row, Table, text_of
from lib_dlhpc.explore.blocks.question import Later
from lib_dlhpc.explore.labs.lab import say

PLAIN = "text/plain"


@pytest.fixture(autouse=True)
def no_served_page(monkeypatch):
    monkeypatch.delenv(PAGE_HAS_VEGA, raising=False)


def shown(widget) -> str:
    """What a notebook stores of a widget."""
    bundle = widget._repr_mimebundle_()
    return (bundle[0] if isinstance(bundle, tuple) else bundle)[PLAIN]


def figure(summary: str):
    return chart("memory", summary=summary)


def test_a_figure_says_its_title_and_summary_and_nothing_before_it_has_one():
    own = figure("It fits.")
    assert shown(own) == f"{own.title}. It fits."
    assert shown(figure("")) == ""


def test_a_box_says_what_is_in_it_at_any_depth_and_widgets_of_others_say_nothing():
    inner = ipywidgets.HBox([figure("First."), ipywidgets.HTML("not this")])
    text = shown(Column([inner, Row([Line("<b>Second</b> &lt;2")])]))
    assert text.splitlines() == [f"{figure('x').title}. First.", "Second  <2"]
    assert text_of(None) == text_of(ipywidgets.Label("a")) == ""


def test_columns_of_a_table_stand_below_each_other():
    text = shown(Table([["name", "value"], ["a longer name", "1"], ["b", "22"]]))
    assert text.splitlines() == ["name           value", "a longer name  1", "b              22"]


def test_a_question_says_its_answer_and_what_it_unlocks_without_unlocking_it():
    lesson = Lesson()
    card = lesson.predict("How many?", lambda: 90.0, "%", "So it is.", then=figure("The chart."))
    question, answer, chart_ = shown(card).splitlines()
    assert (question, answer) == ("How many?", "Answer: 90%. So it is.")
    assert chart_.endswith("The chart.") and not lesson.guesses
    choice = lesson.predict_choice("Which?", ("a", "b"), "b", "Because.")
    assert shown(choice).splitlines() == ["Which?", "Answer: b. Because."]


def test_a_check_says_its_answers_and_not_which_is_right():
    card = Lesson().choose("Which?", {"a": "No: x.", "b": "Yes: y."}, right="b")
    assert shown(card).splitlines() == ["Which?", "- a", "- b"]


def test_an_experiment_that_comes_later_is_not_made_for_its_text():
    later = Later(lambda: pytest.fail("made"))
    assert "Answer: 3 times." in shown(
        Lesson().predict("?", later.gives(lambda: 3.0), "times", then=later.box)
    )


def test_a_served_page_computes_no_text(monkeypatch):
    monkeypatch.setenv(PAGE_HAS_VEGA, "1")
    card = Lesson().predict("How many?", lambda: pytest.fail("computed"))
    assert "Answer" not in shown(card)


def test_a_terminal_prints_what_a_lab_shows_and_neither_tags_nor_styles(capsys):
    print(say("alpha = 5 \u00b5s\n1 < 2"))
    assert capsys.readouterr().out == "alpha = 5 \u00b5s\n1 < 2\n"
