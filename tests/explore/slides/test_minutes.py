"""Slides of a section have the minutes that the plan in the instructor notes gives it; what it omits is optional."""

import re
from itertools import pairwise

import pytest

from lib_dlhpc.explore.course import PATH
from lib_dlhpc.explore.slides.asked import TRY
from lib_dlhpc.explore.slides.minutes import OPTIONAL, plan, timed
from lib_dlhpc.explore.slides.slide import CHECK, IDEA, OPENING, PREDICT, RESULT, Slide

NAMES = [module.name for module in PATH]
TIMES = re.compile(r"Minutes (\d+):(\d\d) to (\d+):(\d\d) of 50\.\n")
NOTES = """
| minutes | class of 50 |
|---|---|
| 0-5 | question; the first guess |
| 5-15 | the first figure |
| 15-20 | *Who waits?* and *A long one*; *What remains?* at home |
| 20-50 | checks |
"""


def times(slide):
    """Return the seconds at which a slide begins and ends, or None for an optional one."""
    if slide.notes.startswith(OPTIONAL):
        return None
    begin, begin_s, end, end_s = map(int, TIMES.match(slide.notes).groups())
    return 60 * begin + begin_s, 60 * end + end_s


def found(slides):
    return [own for own in map(times, slides) if own]


@pytest.fixture
def rows(repository):
    return lambda name: plan((repository / "instructor_notes" / f"{name}.md").read_text("utf-8"))


@pytest.mark.parametrize("name", NAMES)
def test_one_slide_follows_the_other_for_fifty_minutes(decks, name):
    own = found(decks[name])
    assert own[0][0] == 0 and own[-1][1] == 3000
    assert all(one[1] == other[0] and one[0] < one[1] for one, other in pairwise(own))


@pytest.mark.parametrize("name", NAMES)
def test_where_a_part_of_the_plan_begins_a_slide_begins(decks, name, rows):
    begins = {begin for begin, _ in found(decks[name])}
    assert {row.begin for row in rows(name)} <= begins


@pytest.mark.parametrize("name", NAMES)
def test_an_experiment_has_a_minute_or_is_optional(decks, name):
    for slide in decks[name]:
        _, line, rest = slide.notes.partition(TRY.removesuffix(" Try:"))
        if line and "optional" not in rest.partition("\n")[0].lower():
            begin, end = times(slide)
            assert (end - begin) / 60 >= len(re.findall(r"^\d+\. ", rest, re.M)), slide.title


def test_sections_have_the_minutes_of_the_plan(decks):
    slides = decks["03_allreduce"]
    of = {
        heading: found(slide for slide in slides if slide.section == heading)
        for heading in ("How does a schedule sum?", "Write your own", "Do it for real")
    }
    first, write, real = (own[0][0] // 60 for own in of.values())
    assert (first, write, real) == (15, 33, 40)
    assert of["Write your own"][-1][1] == 40 * 60


def test_a_plan_is_shared_by_weight_and_what_it_leaves_out_is_optional():
    tries = f"{TRY}\n1. One.\n2. Two.\n3. Three."
    slides = [
        Slide("A", kind=OPENING),
        Slide("B", kind=PREDICT, section="First"),
        Slide("C", notes=tries, kind=RESULT, section="First"),
        Slide("D", kind=IDEA, section="Who waits?"),
        Slide("E", notes=tries, kind=RESULT, section="A long one: with its end"),
        Slide("F", notes=tries, kind=RESULT, section="What remains?"),
        Slide("G", kind=CHECK),
    ]
    own = list(timed(slides, NOTES))
    assert [times(slide) for slide in own] == [
        (0, 100),
        (100, 300),
        (300, 900),
        (900, 990),
        (990, 1200),
        None,
        (1200, 3000),
    ]
    assert TRY in own[2].notes and "Try the first 3, the others" not in own[4].notes
    assert "Optional:" in own[5].notes.split("\n")[1]
