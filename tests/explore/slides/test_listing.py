"""Code on slides is the code that runs; diagrams of steps are what schedules say."""

import inspect
from typing import Any

import pytest

from lib_dlhpc.explore.allreduce import own
from lib_dlhpc.explore.allreduce.bus import points
from lib_dlhpc.explore.allreduce.diagrams import SENT, SHOWN, bus, steps, textbook
from lib_dlhpc.explore.course import PATH
from lib_dlhpc.explore.slides.layout import SMALLEST, boxes
from lib_dlhpc.explore.slides.listing import listed
from lib_dlhpc.explore.slides.notebook import notebook_text
from lib_dlhpc.explore.slides.slide import CODE
from lib_dlhpc.explore.slides.sources import titles_of
from lib_dlhpc.schedules import ProofError, prove, ring_collectives, schedule

ALLGATHER = "lib_dlhpc.schedules.ring_collectives:allgather"


def test_a_listing_is_the_function_without_its_docstring():
    slide = listed("Title", [ALLGATHER])
    source = inspect.getsource(ring_collectives.allgather)
    assert all(line in source.split("\n") for line in slide.lines)
    assert slide.lines[0].startswith("def allgather(") and '"""' not in "".join(slide.lines)
    assert "filled on all others" in slide.notes and "ring_collectives.py" in slide.source


@pytest.mark.parametrize("name", [module.name for module in PATH])
def test_listings_are_on_the_slides_and_can_be_read(decks, name, repository):
    titles = titles_of(notebook_text(repository / "modules" / f"{name}.ipynb"))
    slides = [slide for slide in decks[name] if slide.kind == CODE]
    written = [title for title, *_ in titles.writes.values()]
    assert [slide.title for slide in slides] == [*written, *titles.code]
    for slide in slides:
        (box,) = (each for each in boxes(slide, name) if each.role == "code")
        assert box.size >= SMALLEST and len(box.lines) <= 16


def test_learners_begin_to_write_with_the_function_of_the_page(decks, repository):
    """It is no allreduce: the proof refuses it, and the page says why."""
    text = notebook_text(repository / "modules" / "03_allreduce.ipynb")
    source = text[text.index("def my_allreduce") : text.index("try_out(my_allreduce)")]
    page: dict[str, Any] = {}
    exec(source, page)
    assert list(page["my_allreduce"](4, 8)) == list(own.my_allreduce(4, 8))
    with pytest.raises(ProofError):
        prove(schedule(own.my_allreduce, 4, 8))
    (slide,) = (each for each in decks["03_allreduce"] if each.section == "Write your own")
    assert len(slide.lines) == 3 and len(slide.aside) == 3 and "Checked: " in slide.aside[-1]
    assert "def " not in slide.notes and "6 ranks" in slide.notes


def test_by_the_textbook_halving_overtakes_doubling_on_slow_links_at_50_kb():
    doubling, halving = (
        [float(shape.text.split()[0]) for shape in textbook().shapes if shape.fill == fill]
        for fill in (SHOWN["recursive_doubling"], SHOWN["rabenseifner"])
    )
    assert [a < b for a, b in zip(doubling, halving, strict=True)] == [
        size < 50_000 for size in SENT
    ]
    assert SENT[2] == 50_000 and doubling[2] == halving[2]


def test_the_steps_are_those_of_the_schedules():
    """In a ring each rank sends one of four blocks a round; halving sends two, then one."""
    texts = [shape.text for shape in steps().shapes if "→" in shape.text]
    counts = [1 + ("to" in text.split("\n")[0]) for text in texts]
    assert counts == 12 * [1] + 4 * [2] + 4 * [1]


def test_alpha_beta_through_two_points_is_too_fast_between_them():
    """It is far off in the middle and close for long messages; NCCL's protocols are closer in the middle."""
    off = [(at.line / at.published - 1, at.protocols / at.published - 1) for at in points()]
    assert all(line > 0.1 and abs(line) > abs(protocols) for line, protocols in off[:5])
    assert all(abs(line) < 0.04 for line, _ in off[5:])
    assert "its error +40%" in bus().said
