"""A lesson locks what a guess is about, answers at once, and remembers."""

import ipywidgets
import pytest

from lib_dlhpc.errors import SpecError
from lib_dlhpc.explore.blocks.lesson import Lesson


def parts(card, kind):
    found = []
    for child in card.children:
        if isinstance(child, kind):
            found.append(child)
        found += parts(child, kind) if isinstance(child, ipywidgets.Box) else []
    return found


def commit(card, value):
    (entry,) = parts(card, (ipywidgets.Text, ipywidgets.Dropdown))
    entry.value = value
    parts(card, ipywidgets.Button)[0].click()
    return " ".join(text.value for text in parts(card, ipywidgets.HTML))


def test_a_guess_unlocks_what_it_is_about_and_cannot_be_taken_back():
    lesson, prize = Lesson(), ipywidgets.Label("the chart")
    card = lesson.predict("How many?", 90.0, "%", "So it is.", then=prize)
    assert prize not in parts(card, ipywidgets.Label)
    said = commit(card, "50 %")
    assert "You said 50 %; it is 90 %. So it is." in said
    assert parts(card, ipywidgets.Label) == [prize]
    assert parts(card, ipywidgets.Text)[0].disabled and parts(card, ipywidgets.Button)[0].disabled


@pytest.mark.parametrize("nonsense", ["", "many", "%", "1 2", "nan"])
def test_what_is_no_number_is_reported_and_unlocks_nothing(nonsense):
    lesson, prize = Lesson(), ipywidgets.Label("the chart")
    card = lesson.predict("How many?", 90.0, "%", then=prize)
    assert "✗" in commit(card, nonsense)
    assert not lesson.guesses and prize not in parts(card, ipywidgets.Label)
    assert "90" not in " ".join(text.value for text in parts(card, ipywidgets.HTML))


def test_the_result_is_computed_only_when_the_guess_is_made():
    asked = []
    card = Lesson().predict("How many?", lambda: asked.append(1) or 3.0)
    assert not asked
    assert "✓" in commit(card, "3.1")
    assert asked == [1]


def test_a_choice_unlocks_too_and_needs_to_be_one():
    lesson = Lesson()
    card = lesson.predict_choice("Which?", ("ring", "tree"), lambda: "tree", "Because.")
    assert "Choose one of: ring, tree." in commit(card, "choose")
    assert "You said ring; it is tree. Because." in commit(card, "ring")
    assert lesson.guesses[0].surprise == float("inf")


def test_each_answer_of_a_check_has_its_own_feedback_and_may_be_tried_again():
    card = Lesson().choose("Which?", {"a": "No, since <b>.", "b": "Yes."}, right="b")
    first, second = parts(card, ipywidgets.Button)
    first.click()
    assert "✗ No, since &lt;b&gt;." in parts(card, ipywidgets.HTML)[-1].value
    second.click()
    assert "✓ Yes." in parts(card, ipywidgets.HTML)[-1].value
    with pytest.raises(SpecError, match="expected one of a, b"):
        Lesson().choose("Which?", {"a": "", "b": ""}, right="c")


def test_a_computed_answer_has_a_tolerance_and_a_hint():
    card = Lesson().compute("How long?", 2.0, "ms", hint="Count both ways.")
    assert "Too small. Count both ways." in commit(card, "1")
    assert "Too large." in commit(card, "4 ms")
    assert "✗" in commit(card, "long")
    assert "✓ Yes: 2 ms." in commit(card, "2.01 ms")


def test_surprises_come_with_the_largest_first_and_fill_as_guesses_come():
    lesson = Lesson()
    table = lesson.surprises()
    assert "No guesses yet" in table.value
    commit(lesson.predict("small?", 1.0), "1.1")
    commit(lesson.predict("large <?", 100.0), "1")
    assert table.value.index("large &lt;?") < table.value.index("small?")
    assert "a factor of 100" in table.value and "close" in table.value
