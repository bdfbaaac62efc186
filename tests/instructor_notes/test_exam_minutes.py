"""The minutes of exam items add up to what syllabi, papers and notes state."""

import re

import pytest

from lib_dlhpc.explore.course import PATH
from lib_dlhpc.teaching.problems import Step
from lib_dlhpc.teaching.questions import Open, Question, allowed, key, pace, read, sheet

WRONG = {"two words": "A reason why.", "three more words": "Another reason why.", "one": "A third."}
ITEM = Question(
    "it", "word " * 110, "right of them all", WRONG, "So.", [Step("Add", 1), Step("", 2)]
)


@pytest.fixture(scope="module")
def build(repository):
    return lambda name: read(repository / "instructor_notes" / "build.py", name)


def test_an_item_takes_its_words_at_120_a_minute_and_40_seconds_a_step():
    assert pace(ITEM) == pytest.approx(1 + 2 * 40 / 60)
    assert "- About 2.3 minutes." in key("An exam", [ITEM])


def test_a_sheet_allows_a_quarter_for_checking_and_ten_minutes_for_an_open_question():
    last = Open("Why?", "So.", {"says so": 6})
    assert allowed([ITEM] * 6) == 20 and allowed([ITEM] * 6, last) == 30
    assert "You have 30 minutes." in sheet("An exam", [ITEM] * 6, last=last, minutes=30)
    assert "minutes" not in sheet("An exam", [ITEM])


def test_the_papers_take_as_long_as_the_notes_state(questions, build, page):
    text = " ".join(page("README").split())
    least, most = map(
        float, re.search(r"minutes of each item, ([\d.]+) to ([\d.]+)", text).groups()
    )
    stated = {
        "midterm": r"the midterm take at most (\d+) of its (\d+) minutes",
        "final": r"those of the exam at most (\d+) of (\d+),",
        "final_6_weeks": r"exam of the 6 weeks at most (\d+) of (\d+);",
    }
    of = {name: paper for course in build("PAPERS").values() for name, paper in course.items()}
    for version in range(6):
        pools = {module.number: questions(module.name, version) for module in PATH}
        every = [pace(item) for pool in pools.values() for item in pool]
        assert least <= round(min(every), 1) and max(every) <= most
        for name, items in build("papers")(pools, version).items():
            taken, minutes = map(int, re.search(stated[name], text).groups())
            assert sum(map(pace, items)) <= taken < minutes == of[name][2]


def test_the_syllabi_have_the_minutes_of_the_papers(build, page):
    for course, papers in build("PAPERS").items():
        text = page(f"syllabus_{course.replace(' ', '_')}")
        for name, (_, many, minutes, _) in papers.items():
            assert re.search(rf"{many} questions.*`exam/{name}\.md`.*\b{minutes} minutes", text), (
                name
            )
