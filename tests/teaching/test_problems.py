"""Pages of problems: what is shown, what is left out, and the answers apart."""

import pytest

from lib_dlhpc.teaching.problems import BLANK, FADED, WORKED, Problem, Step, answers, page

STEPS = (Step("Rounds", 14), Step("Time", 0.00903, "s"))
FOUR = [
    Problem(title, "How long?", 0.00903, *STEPS) for title in ("A ring", "Faded", "Third", "Fourth")
]


def parts(text):
    return text.split("\n## ")[1:]


def test_the_first_is_solved_and_the_second_begun():
    worked, faded, third, fourth = parts(page("Module 03", FOUR))
    assert "1. Rounds: 14" in worked and "2. Time: 9.03 ms" in worked
    assert "1. Rounds: 14" in faded and f"2. Time: {BLANK}" in faded
    assert "9.03" not in faded + third + fourth
    assert "Rounds" not in third + fourth


def test_the_answers_have_every_step():
    for part in parts(answers("Module 03", FOUR)):
        assert "1. Rounds: 14" in part and "2. Time: 9.03 ms" in part


@pytest.mark.parametrize(
    ("value", "unit", "shown"),
    [
        (14.0, "", "14"),
        (2.5e9, "B/s", "2.5 GB/s"),
        (12.345678, "%", "12.35%"),
        (1234567, "", "1,234,567"),
        (64070.3, "", "64,070"),
    ],
)
def test_a_result_has_its_unit(value, unit, shown):
    assert Step("x", value, unit).result == shown


def test_a_topic_that_begins_later_has_a_solved_and_a_begun_problem_of_its_own():
    later = [
        Problem(title, "How long?", 0.00903, *STEPS, kind=kind)
        for title, kind in (("Fifth", WORKED), ("Sixth", FADED), ("Seventh", ""))
    ]
    *_, fifth, sixth, seventh = parts(page("Module 03", FOUR + later))
    assert "2. Time: 9.03 ms" in fifth and fifth.startswith("5. Fifth (worked)")
    assert "1. Rounds: 14" in sixth and f"2. Time: {BLANK}" in sixth
    assert "Rounds" not in seventh and "(yours)" in seventh


def test_a_page_says_what_becomes_of_it():
    assert "Nothing is handed in" in page("Module 03", FOUR)


def test_all_problems_after_the_second_are_blank():
    kinds = [part.splitlines()[0].split("(")[1] for part in parts(page("Module 03", 2 * FOUR))]
    assert kinds == ["worked)", "faded: complete it)", *["yours)"] * 6]
