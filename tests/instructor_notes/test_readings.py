"""Each paper that a syllabus assigns has sections and a question, on the page of a module, and an answer."""

import json
import re

import pytest

SYLLABI = ("14_weeks", "10_weeks", "6_weeks", "one_day", "half_day")
LINK = re.compile(r"\((https://(?:doi\.org|arxiv\.org|www\.usenix\.org)/[^)]+)\)")
# Another place, or paper, for the same question.
FREE = re.compile(r"\(free[^(]*\([^)]*\)\)|\(\[free\]\([^)]+\)\)")
READING = re.compile(r"^\*\*(.+?):\*\* (.+?)\n\n\*Answer\.\* (.+?)(?=\n\n|\Z)", re.M | re.S)
LONGEST = 45  # words of a question


def one_line(text):
    return " ".join(text.split())


@pytest.fixture
def readings(page):
    """By module: the head of each reading, its question and the answer."""
    parts = page("readings").split("\n## Module ")[1:]
    return {
        part[:2]: [tuple(map(one_line, each)) for each in READING.findall(part)] for part in parts
    }


@pytest.mark.parametrize("name", SYLLABI)
def test_every_paper_of_a_syllabus_has_sections_a_question_and_an_answer(page, readings, name):
    heads = " ".join(head for own in readings.values() for head, _, _ in own)
    rows = re.findall(
        r"^(?:\| home |.*\*\*Reading\*\*).*(?:\n\(\[free.*)?", page(f"syllabus_{name}"), re.M
    )
    assigned = {link for row in rows for link in LINK.findall(FREE.sub("", row))}
    assert assigned and assigned <= set(LINK.findall(heads))


def test_a_page_asks_the_questions_of_its_module_and_answers_none(repository, readings):
    assert sorted(readings) == [f"{number:02d}" for number in range(1, 14)]
    for number, own in readings.items():
        (path,) = (repository / "modules").glob(f"{number}_*.ipynb")
        last = "".join(json.loads(path.read_text("utf-8"))["cells"][-1]["source"])
        asked = re.findall(r"^\d\. (.+)$", last.split("**Questions for your reading**")[1], re.M)
        assert len(asked) == len(own) >= 1
        for line, (head, question, answer) in zip(asked, own, strict=True):
            paper, sections = re.sub(r"\[([^]]+)\]\([^)]+\)", r"\1", head).split(", ", 1)
            assert line.startswith(f"{paper}, {sections.split(' (arXiv')[0]}: ")
            assert line.endswith(question) and question.endswith("?")
            assert len(question.split()) <= LONGEST and answer not in last
