"""A class begins with an agenda, from the plan in the instructor notes, and ends with what comes next."""

import pytest

from lib_dlhpc.explore.course import LABS, PATH
from lib_dlhpc.explore.slides.frame import CLOSES, OPENS, agenda, following
from lib_dlhpc.explore.slides.slide import AGENDA, CHECK, NEXT, OPENING, PREDICT, RESULT, Slide

NAMES = [module.name for module in PATH]
NOTES = """
| minutes | class of 50 |
|---|---|
| 0-5 | question |
| 5-10 | the first guess |
| 10-20 | the first figure |
| 20-30 | *Who waits?*; *What remains?* at home |
| 30-40 | *Who waits?*, and *What then?* |
| 40-50 | checks |

Skip first: *Who
waits?* Skip last: the checks.

More.
"""


def test_an_agenda_has_the_sections_of_a_class_and_their_minutes():
    slides = [
        Slide("A", kind=OPENING),
        Slide("B", kind=PREDICT, section="First"),
        Slide("C", kind=RESULT, section="First"),
        Slide("D", kind=RESULT, section="Who waits?"),
        Slide("E", kind=RESULT, section="What remains?"),
        Slide("F", kind=RESULT, section="What then?"),
        Slide("G", kind=CHECK),
    ]
    own = agenda(slides, NOTES)
    assert own.title == "From the question to the summary in 50 minutes"
    assert own.table == (
        ("minutes", "part"),
        ("0-5", OPENS),
        ("5-20", "First"),
        ("20-30", "Who waits?"),
        ("30-40", "What then?"),
        ("40-50", CLOSES),
    )
    assert own.notes.endswith("Skip first: Who waits? Skip last: the checks.")
    assert "optional slides" in agenda(slides, NOTES.replace("Skip first", "Omit")).notes


@pytest.mark.parametrize("name", NAMES)
def test_an_agenda_leaves_no_minute_out_and_names_every_section(decks, name):
    (own,) = (slide for slide in decks[name] if slide.kind == AGENDA)
    assert decks[name].index(own) == 1
    ends = [tuple(map(int, minutes.split("-"))) for minutes, _ in own.table[1:]]
    assert ends[0][0] == 0 and ends[-1][1] == 50
    assert [end for _, end in ends[:-1]] == [begin for begin, _ in ends[1:]]
    taught = {slide.section for slide in decks[name] if not slide.optional} - {""}
    assert taught <= {part for _, parts in own.table for part in parts.split(" · ")}


@pytest.mark.parametrize("module", PATH, ids=NAMES)
def test_a_class_ends_with_practice_labs_reading_and_the_next_question(decks, module):
    taught = [slide for slide in decks[module.name] if not slide.optional]
    own, said = taught[-1], "\n".join(taught[-1].lines)
    assert own.kind == NEXT and said.startswith("Practice: ") and "\nRead: " in said
    assert all(LABS[lab].title in said for lab in module.labs)
    at = PATH.index(module) + 1
    assert (PATH[at].question if at < len(PATH) else "explorer") in said


def test_a_module_without_reading_has_none():
    assert not any(line.startswith("Read") for line in following(PATH[0], "").lines)


def test_a_section_of_two_rows_is_one_part():
    slides = [
        Slide("A", kind=OPENING),
        Slide("B", kind=PREDICT, section="First"),
        Slide("C", kind=RESULT, section="First"),
        Slide("D", kind=RESULT, section="Second"),
        Slide("E", kind=CHECK),
    ]
    notes = NOTES.replace("| question |", "| question, the first guess |")
    notes = notes.replace("5-10 | the first guess", "5-10 | *Second*")
    first, *_ = agenda(slides, notes).table[1:]
    assert first == ("0-40", "First · Second")
