"""Sheets and keys: each option once, the same order for a seed, no answer on the sheet."""

import pytest

from lib_dlhpc.errors import SpecError
from lib_dlhpc.teaching.problems import Step
from lib_dlhpc.teaching.questions import (
    LETTERS,
    Draw,
    Open,
    Question,
    drawn,
    exam,
    fair,
    key,
    options,
    read,
    right_letter,
    sheet,
)

WRONG = {"two": "One is forgotten.", "three": "All are counted.", "four": "Some are counted twice."}
ONE = Question("count", "How many?", "one", WRONG, "There is one.")


@pytest.mark.parametrize("seed", range(5))
def test_every_option_is_listed_once_in_an_order_of_the_seed(seed):
    found = options(ONE, seed)
    assert sorted(found) == sorted(["one", *WRONG])
    assert found == options(ONE, seed)
    assert found[LETTERS.index(right_letter(ONE, seed))] == "one"


def test_versions_differ_in_order():
    assert len({tuple(options(ONE, seed)) for seed in range(20)}) > 5


def test_the_sheet_gives_nothing_away_and_the_key_everything():
    asked, answers = sheet("Exam", [ONE], seed=3), key("Exam", [ONE], seed=3)
    assert ONE.because not in asked
    assert not any(reason in asked for reason in WRONG.values())
    letter = right_letter(ONE, 3)
    assert f"- {letter}. one" in asked
    assert f"**1.** {letter}. There is one." in answers
    assert all(f"{option}: {reason}" in answers for option, reason in WRONG.items())


def test_a_sheet_says_what_to_hand_in():
    assert "one letter for each question" in sheet("Test", [ONE])
    assert "half a page" not in sheet("Test", [ONE])
    assert "one point" in sheet("Exam", [ONE]) and "one point" not in sheet(
        "Test", [ONE], graded=False
    )
    assert "half a page" in sheet("Exam", [ONE], 0, Open("Why?", "So.", {"says so": 6}))


def test_a_file_without_questions_is_refused(tmp_path):
    with pytest.raises(SpecError, match="no file"):
        read(tmp_path / "none.py", "QUESTIONS")
    (tmp_path / "empty.py").write_text("PROBLEMS = []\n")
    with pytest.raises(SpecError, match="defines no QUESTIONS"):
        read(tmp_path / "empty.py", "QUESTIONS")


def test_seeds_in_a_row_draw_each_case_once():
    cases = ["a", "b", "c", "d"]
    drawn = [Draw(seed, "item").of(cases) for seed in range(7, 11)]
    assert sorted(drawn) == cases
    assert Draw(7, "item").of(cases) == drawn[0]


def test_an_exam_draws_the_items_that_are_functions(tmp_path):
    path = tmp_path / "exam.py"
    path.write_text(
        "from lib_dlhpc.teaching.questions import Question\n"
        "WRONG = {'two': 'x', 'three': 'y', 'four': 'z'}\n"
        "fixed = Question('fixed', 'How many?', 'one', WRONG, 'One.')\n"
        "def drawn(draw):\n"
        "    return fixed._replace(name='drawn', right=draw.of(['six', 'seven']))\n"
        "QUESTIONS = [fixed, drawn]\n"
    )
    first, second = exam(path, 0), exam(path, 1)
    assert first[0] == second[0]
    assert {first[1].right, second[1].right} == {"six", "seven"}


def test_a_range_is_drawn_from_end_to_end_and_alike_each_time():
    found = [Draw(seed, "item").between(3, 9, 2) for seed in range(60)]
    assert set(found) == {3, 5, 7, 9}
    assert found == [Draw(seed, "item").between(3, 9, 2) for seed in range(60)]
    assert {Draw(seed, "item").between(0.1, 0.3, 0.1) for seed in range(60)} == {0.1, 0.2, 0.3}


def test_numbers_of_one_draw_do_not_hang_together():
    pairs = {(draw.any("abc"), draw.any("abc")) for draw in (Draw(s, "item") for s in range(90))}
    assert len(pairs) == 9


def with_options(right, *wrong):
    return Question("q", "?", right, {each: f"reason {each}" for each in wrong}, "So.")


@pytest.mark.parametrize(
    ("options_", "are_fair"),
    [
        (("4 ms", "8 ms", "2 ms", "1 ms"), True),
        (("4 ms", "8 ms", "2 ms", "0 s"), False),
        (("4 ms", "8 ms", "2 ms", "81 ms"), False),  # more than twenty times as long
        (("4 ms", "8 ms", "2 ms", "4.1 ms"), False),  # nearly the answer
        (("40%", "80%", "20%", "10%"), True),
        (("40%", "80%", "20%", "100%"), False),
        (("one", "two", "three", "four"), True),
    ],
)
def test_options_are_fair_if_each_could_be_the_answer(options_, are_fair):
    assert fair(with_options(*options_)) == are_fair


def test_an_unfair_draw_and_a_number_of_the_page_are_drawn_again():
    def item(draw):
        right = draw.any(["7", "8", "9"])
        return with_options(right, "8", "16", "32")

    assert {drawn(item, seed, {("7", "")}).right for seed in range(20)} == {"9"}
    with pytest.raises(SpecError, match="item: none of 100 draws"):
        drawn(item, 0, {("7", ""), ("9", "")})


def test_the_key_has_steps_and_a_rubric_that_the_sheet_has_not():
    question = ONE._replace(steps=[Step("Bytes over rate", 2e-3, "s")])
    last = Open("Why?", "Because it waits.", {"names the wait": 2, "measures it": 4})
    asked, answers = sheet("Exam", [question], 0, last), key("Exam", [question], 0, last)
    assert "- By hand. Bytes over rate: 2 ms" in answers and "Bytes over rate" not in asked
    assert "Why?" in asked and "(6 points)" in asked
    assert "- 4: measures it" in answers and "measures it" not in asked
    assert last.answer in answers and last.answer not in asked
