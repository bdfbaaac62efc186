"""Files for a course's own system hold each question, its right option and the feedback, whatever signs are in them."""

import re

import pytest

from lib_dlhpc.teaching.questions import Question, options
from lib_dlhpc.teaching.quizzes import gift, text2qti

QUESTIONS = [
    Question(
        "a set {1}: ~",
        "Is p = 2 in {1, 2} # or\nnot: \\N?",
        "yes = it is",
        {"no ~ it is not": "Sets: {} are empty.", "a #": "b", "c": "d"},
        "because 2 = 2",
    ),
    Question(
        "second", "What costs $3 and $4?", "1 B", {"2 B": "x", "3 B": "y", "4 B": "z"}, "It is."
    ),
]


def read_gift(text):
    """Read GIFT by its rules: signs behind a backslash are plain. Return name, text and marked options."""
    kept = re.sub(r"\\(.)", lambda found: f"\x00{ord(found[1])};", text)
    plain = lambda part: re.sub(r"\x00(\d+);", lambda found: chr(int(found[1])), part.strip())  # noqa: E731
    for name, asked, answers in re.findall(
        r"^::(.*?)::\[markdown\](.*?)\{(.*?)\}", kept, re.M | re.S
    ):
        each = re.findall(r"([=~])([^=~#]*)(?:#([^=~#]*))?", answers)
        yield plain(name), plain(asked), [(mark, plain(one), plain(why)) for mark, one, why in each]


@pytest.mark.parametrize("feedback", [True, False])
@pytest.mark.parametrize("seed", [0, 1])
def test_moodle_gets_every_sign(seed, feedback):
    found = list(read_gift(gift("A/B", QUESTIONS, seed, feedback)))
    assert len(found) == len(QUESTIONS)
    for question, (name, text, answers) in zip(QUESTIONS, found, strict=True):
        assert (name, text) == (question.name, " ".join(question.text.split()))
        assert [one for _, one, _ in answers] == options(question, seed)
        assert [one for mark, one, _ in answers if mark == "="] == [question.right]
        whys = {one: why for _, one, why in answers}
        expected = {question.right: question.because, **question.wrong}
        assert whys == (expected if feedback else dict.fromkeys(expected, ""))


def test_a_category_with_a_slash_is_one():
    assert gift("A/B", []).splitlines()[0] == "$CATEGORY: A//B"


@pytest.mark.parametrize("feedback", [True, False])
def test_text2qti_gets_one_right_option_and_no_formula(feedback):
    text = text2qti("Title", QUESTIONS, 1, feedback)
    assert text.startswith("Quiz title: Title\n")
    assert re.findall(r"^(\d)\. ", text, re.M) == ["1", "2"]
    right = re.findall(r"^\*[a-d]\) (.*)$", text, re.M)
    assert right == [question.right for question in QUESTIONS]
    assert len(re.findall(r"^[a-d]\) ", text, re.M)) == 6
    assert text.count("\n... ") == (8 if feedback else 0)
    assert r"What costs \$3 and \$4?" in text  # between dollar signs it would be a formula
