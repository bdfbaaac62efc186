"""Sheets and keys: each option once, the same order for a seed, no answer on the sheet."""

import pytest

from lib_dlhpc.errors import SpecError
from lib_dlhpc.teaching.questions import (
    LETTERS,
    Draw,
    Question,
    exam,
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
