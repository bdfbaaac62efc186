"""Laws of the numbers of an exam: drawn from ranges, possible, and to be had by hand."""

from itertools import combinations

import pytest

from lib_dlhpc.explore.course import PATH
from lib_dlhpc.teaching.numbers import value
from lib_dlhpc.teaching.questions import read

DRAWN = [module.name for module in PATH]
MANY = range(40)  # of which a hundred texts leave 33 on average


def of_each_item(questions, name):
    """Yield the versions of each item whose answer is a number."""
    for items in zip(*(questions(name, seed) for seed in MANY), strict=True):
        if value(items[0].right) is not None:
            yield items


@pytest.mark.parametrize("name", DRAWN)
def test_numbers_are_drawn_from_ranges(questions, name):
    for items in of_each_item(questions, name):
        assert len({item.text for item in items}) >= 32, items[0].name


@pytest.mark.parametrize("name", DRAWN)
def test_no_option_eliminates_itself(questions, name):
    for item in (item for items in of_each_item(questions, name) for item in items):
        every = [item.right, *item.wrong]
        assert len(set(every)) == 4, (item.name, every)
        numbers = [number for option in every if (number := value(option)) is not None]
        for one, other in combinations(numbers, 2):
            assert abs(one - other) > 0.05 * max(one, other), (item.name, every)
        assert all(1 / 20 <= each / value(item.right) <= 20 for each in numbers), (item.name, every)
        shares = [value(option) for option in every if option.endswith("%")]
        assert all(0 < share < 100 for share in shares), (item.name, every)


@pytest.mark.parametrize("name", DRAWN)
def test_steps_by_hand_lead_to_the_right_option(questions, name):
    for item in (item for items in of_each_item(questions, name) for item in items):
        found = value(item.steps[-1].result)
        assert found == pytest.approx(value(item.right), rel=0.05), item.name
        options = [option for option in (item.right, *item.wrong) if value(option) is not None]
        nearest = min(options, key=lambda option: abs(value(option) - found))
        assert nearest == item.right, (item.name, found, options)


@pytest.mark.parametrize("name", DRAWN)
def test_an_exam_ends_with_an_open_question_of_six_points(repository, name):
    last = read(repository / "instructor_notes" / "exam" / f"{name}.py", "OPEN")
    assert last.points == 6 and len(last.rubric) >= 3
    assert last.text.endswith("?") or last.text.endswith(".")
    assert last.answer not in last.text
