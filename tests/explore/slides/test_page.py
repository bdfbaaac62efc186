"""A deck as a page: every slide with its texts, its notes and what its pictures show, and no address outside."""

import re
from html import escape
from html.parser import HTMLParser
from importlib import import_module

import pytest

from lib_dlhpc.errors import SpecError
from lib_dlhpc.explore.course import PATH
from lib_dlhpc.explore.slides import page as pages
from lib_dlhpc.explore.slides.diagram import Arrow, Diagram, Shape
from lib_dlhpc.explore.slides.layout import HEIGHT, WIDTH
from lib_dlhpc.explore.slides.page import page, shown
from lib_dlhpc.explore.slides.references import parts as referred
from lib_dlhpc.explore.slides.slide import BOARD, CHECK, CODE, IDEA, PREDICT, Slide

VOID = {"br", "col", "img", "link", "meta"}


class Tags(HTMLParser):
    """Reads a page, and refuses an end that belongs to no beginning."""

    def __init__(self):
        super().__init__()
        self.open, self.images = [], []

    def handle_starttag(self, tag, attrs):
        if tag == "img":
            self.images.append(dict(attrs))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


@pytest.fixture
def drawn(monkeypatch):
    """Formulas without ziamath, which the lock does not have."""
    monkeypatch.setattr(pages, "formula", lambda tex: ("<svg/>", (0.1, 0.02)))


# All kinds of slides are among them.
@pytest.mark.parametrize("module", PATH[:4], ids=lambda own: own.name)
def test_a_page_has_each_slide_with_its_notes(decks, module, drawn):
    slides = decks[module.name]
    text, tags = page(slides, module.heading), Tags()
    tags.feed(text)
    assert not tags.open
    parts = re.findall(r"<section id=.*?</section>", text, re.S)
    for number, (slide, part) in enumerate(zip(slides, parts, strict=True), 1):
        assert f'id="s{number}"' in part
        part = re.sub("</?a[^>]*>", "", part)  # papers are links
        assert escape(slide.notes) in part
        assert escape(slide.title) in part
        cells = [cell for row in slide.table for cell in row]
        for line in (*slide.lines, *slide.aside, *cells):
            assert slide.stepwise or slide.kind == CODE or escape(line) in part, line
    assert all(image["alt"] and image["src"].startswith("data:image/svg") for image in tags.images)
    pictures = sum(
        len(slide.formulas)
        + (slide.figure is not None)
        + (slide.diagram is not None)
        + bool(slide.emblem)
        for slide in slides
    )
    assert len(tags.images) == pictures
    assert not re.search(r"src=\"(?!data:)", text)  # it opens without a network
    links = re.findall(r'href="([^"]*)"', text)
    assert any(link.startswith("https://arxiv.org/abs/") for link in links)
    assert all(re.match(r"#|https://(?:arxiv|doi)\.org/", link) for link in links)


def test_a_paper_is_a_link_that_ends_where_its_name_ends():
    assert list(referred("In arXiv:2401.10241, and doi:10.1016/S0020(03)5.")) == [
        ("In ", ""),
        ("arXiv:2401.10241", "https://arxiv.org/abs/2401.10241"),
        (", and ", ""),
        ("doi:10.1016/S0020(03)5", "https://doi.org/10.1016/S0020(03)5"),
        (".", ""),
    ]


def test_what_comes_later_appears_step_by_step_and_answers_last(drawn):
    steps = Slide("A", ("why", "how", "so: 3"), formulas=("a", "b"), stepwise=True, kind=BOARD)
    assert re.findall(r'data-step="(\d)"', shown(steps, "foot", 1)) == ["1", "2", "1"]
    check = Slide("A?", ("A. b", "B. c", "Right: B"), kind=CHECK)
    assert re.findall(r'<p class="answer" data-step="1">(.*?)</p>', shown(check, "", 1)) == [
        "Right: B"
    ]


@pytest.mark.parametrize("module", PATH[:4], ids=lambda own: own.name)
def test_what_a_slide_asks_is_a_link_to_its_votes(decks, module, drawn):
    texts = import_module(f"lib_dlhpc.explore.{module.folder}.questions").lesson.texts
    voted = [slide for slide in decks[module.name] if slide.kind in (PREDICT, CHECK)]
    assert len({slide.vote for slide in voted}) == len(voted) > 5
    for slide in voted:
        folder, name = slide.vote.split("/")
        assert folder == module.folder and texts[name].keys() & {"guess", "check", "compute"}
    assert f'data-vote="{voted[0].vote}"' in shown(voted[0], "foot", 1)


def test_what_is_covered_is_not_on_the_page(decks, drawn):
    slides = decks["02_data_parallel"]
    covered = next(slide for slide in slides if slide.covered)
    part = shown(covered, "foot", 1)
    assert "The result is covered." in part and escape(covered.figure.summary) not in part


def test_boxes_are_shares_of_the_slide_and_marks_are_texts():
    own = Diagram(
        (Shape(0, 0, 0.5, 0.5, "a < b\nc", "D6E6F0"), Shape(0.5, 0.5, 0.5, 0.5, "d")),
        (Arrow((0, 0), (1, 1), both=True), Arrow((0, 1), (1, 0), plain=True)),
        "two boxes",
    )
    part = shown(Slide("A & B", ("1 < 2",), kind=IDEA, diagram=own), "foot", 7)
    assert "A &amp; B" in part and "a &lt; b<br>c" in part and 'alt="two boxes"' in part
    assert part.count("--fill:#D6E6F0") == 1 and ">7</div>" in part
    shares = re.findall(r"left:([\d.]+)%;top:([\d.]+)%;width:([\d.]+)%;height:([\d.]+)%", part)
    for left, top, wide, high in (map(float, each) for each in shares):
        assert left + wide <= 100.1 and top + high <= 100.1
    assert pages.placed((0, 0, WIDTH, HEIGHT), "a", "").count("100.000%") == 2
    assert pages.arrows(own).count("url(#head)") == 2


def test_a_text_that_does_not_fit_is_refused():
    with pytest.raises(SpecError, match="does not fit its box"):
        shown(Slide("A", ("word " * 900,), kind=IDEA), "foot", 1)


def test_code_keeps_its_lines():
    part = shown(Slide("A", ("if a < b:", "    c()"), kind=CODE), "foot", 1)
    assert "<pre>if a &lt; b:\n    c()</pre>" in part
