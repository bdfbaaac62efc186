"""Each class of the 14 weeks has a plan: minutes that add up, and sections that the module's notebook has."""

import json
import re

import pytest

PART = re.compile(r"^\| ([12]) \| (\d+) \| ([^|]+) \| (.+) \|$", re.M)  # class, minutes, part, what
ITALICS = re.compile(r"\*([^*]+)\*")
PLAN = re.compile(r"\]\((\d\d_\w+)\.md\)")
ALWAYS = {"The formula, opened", "Do it for real", "Check yourself", "Practice"}
ALWAYS |= {"What surprised you", "What was published?"}  # not a figure of its own
OTHERS = {"Concept test", "Opening", "The first figure", "Closing", "All of it", "Midterm", "Talks"}


@pytest.fixture(scope="module")
def weeks(repository):
    """The plans by week, and the modules in their headings."""
    text = (repository / "instructor_notes" / "classes_14_weeks.md").read_text("utf-8")
    parts = text.split("\n## Week ")[1:]
    assert [int(part.split(":")[0]) for part in parts] == list(range(1, 15))
    return dict(enumerate(parts, 1))


@pytest.fixture(scope="module")
def headings(repository):
    """The headings of the notebooks by module, in their order."""
    found = {}
    for path in sorted((repository / "modules").glob("[0-9]*.ipynb")):
        cells = json.loads(path.read_text("utf-8"))["cells"]
        text = "\n".join("".join(c["source"]) for c in cells if c["cell_type"] == "markdown")
        found[path.stem[:2]] = re.findall(r"^## (.+)$", text, re.M)
    return found


def modules_of(week):
    return re.findall(r"\d\d", week.splitlines()[0].partition(":")[2])


@pytest.mark.parametrize("number", range(1, 15))
def test_the_minutes_of_a_class_add_up(weeks, number):
    rows = PART.findall(weeks[number])
    assert [each for each, *_ in rows] == sorted(each for each, *_ in rows)
    for one in "12":
        assert sum(int(minutes) for each, minutes, *_ in rows if each == one) == 50, one


@pytest.mark.parametrize("number", range(1, 15))
def test_a_part_is_a_section_of_the_notebook(weeks, headings, number):
    known = {each for module in modules_of(weeks[number]) for each in headings[module]}
    for _, _, part, what in PART.findall(weeks[number]):
        assert part in OTHERS or ITALICS.findall(part), part
        assert set(ITALICS.findall(part)) <= known, part
        assert part != "All of it" or PLAN.search(what)[1][:2] in modules_of(weeks[number])
    after = weeks[number].rpartition("|\n")[2]
    assert set(ITALICS.findall(after)) <= known


def test_a_module_in_two_classes_leaves_no_section_without_a_place(weeks, headings):
    named, split = {}, set()
    for week in weeks.values():
        for module in modules_of(week):
            named.setdefault(module, set()).update(ITALICS.findall(week))
            if "All of it" not in week:
                split.add(module)
    assert len(split) == 10
    for module in split:
        assert set(headings[module]) - {"What was published?"} <= named[module], module


def test_sections_come_in_the_order_of_the_notebook_and_of_its_deck(weeks, headings):
    places = {}
    for week in weeks.values():
        for module in modules_of(week):
            rows = [part for _, _, part, _ in PART.findall(week)]
            found = [each for part in rows for each in ITALICS.findall(part) if each not in ALWAYS]
            places.setdefault(module, []).extend(headings[module].index(each) for each in found)
    assert all(own == sorted(own) for own in places.values())


def test_the_plans_follow_the_modules_of_the_syllabus(weeks, repository):
    text = (repository / "instructor_notes" / "syllabus_14_weeks.md").read_text("utf-8")
    taught = re.findall(r"^\| week (\d+) \| ([\d, ]*) ?\|", text, re.M)
    for number, modules in taught:
        assert modules_of(weeks[int(number)]) == re.findall(r"\d\d", modules), number
