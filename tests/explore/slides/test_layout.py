"""Every text of every deck fits its box, in type that can be read from the last row."""

from itertools import pairwise

import pytest

from lib_dlhpc.errors import SpecError
from lib_dlhpc.explore.course import PATH
from lib_dlhpc.explore.slides.layout import (
    BESIDE,
    END,
    FIGURE,
    HEIGHT,
    TOP,
    WIDTH,
    Box,
    board,
    boxes,
    cells,
    figure_place,
    figure_size,
    fits,
    fitted,
    formula_places,
    width,
    wrapped,
)
from lib_dlhpc.explore.slides.slide import EARLIER, IDEA, PREDICT, RESULT, Slide

SMALLEST_LABEL = 12  # px, of axes (blocks/built.py)
NAMES = [module.name for module in PATH]
# Helvetica, which Arial has the widths of: Adobe's metrics, in thousandths of an em, from the space to the tilde.
HELVETICA = [
    *(278, 278, 355, 556, 556, 889, 667, 191, 333, 333, 389, 584, 278, 333, 278, 278),
    *(556, 556, 556, 556, 556, 556, 556, 556, 556, 556, 278, 278, 584, 584, 584, 556),
    *(1015, 667, 667, 722, 722, 667, 611, 778, 722, 278, 500, 667, 556, 833, 722, 778),
    *(667, 778, 722, 667, 611, 722, 667, 944, 667, 667, 611, 278, 278, 278, 469, 556),
    *(333, 556, 556, 500, 556, 556, 278, 556, 556, 222, 222, 500, 222, 833, 556, 556),
    *(556, 556, 333, 500, 278, 556, 500, 722, 500, 500, 500, 334, 260, 334, 584),
]
OVERFLOW = Box(
    (0.6, 1.6, 4.0, 1.0), ("A text of a hundred characters and more does not fit here. " * 3,), 24
)


def inside(box, wide=WIDTH, high=HEIGHT):
    """Assert that a text can be read, fits its box, and that the box is on the slide."""
    left, top, across, down = box.place
    assert box.size >= 14 and fits(box), box
    assert min(left, top) >= 0 and left + across <= wide and top + down <= high, box


def test_a_planted_overflow_is_seen():
    with pytest.raises(AssertionError):
        inside(OVERFLOW)
    with pytest.raises(AssertionError):
        inside(OVERFLOW._replace(lines=("short",), size=12))
    with pytest.raises(SpecError, match="does not fit its box in 14 points"):
        fitted(OVERFLOW.lines * 3, OVERFLOW.place, 24)
    with pytest.raises(SpecError, match="does not fit a slide in 12 points"):
        cells(Slide("Too much", table=(("word " * 99, "b"),) * 9))


@pytest.mark.parametrize("name", NAMES)
def test_every_text_fits_its_box(decks, name):
    for slide in decks[name]:
        found = boxes(slide, name)
        for box in found:
            inside(box)
        said = [line for box in found for line in box.lines]
        shown = [slide.title, *slide.aside, name] + ([] if slide.stepwise else [*slide.lines])
        assert set(shown) <= set(said)


@pytest.mark.parametrize("name", NAMES)
def test_texts_do_not_cross_each_other_or_the_figure(decks, name):
    for slide in decks[name]:
        places = [box.place for box in boxes(slide, name)]
        if slide.figure:
            places.append(figure_place(slide))
        if slide.diagram:
            places.append(BESIDE)
        if slide.table:
            places.append(cells(slide).place)
        for number, one in enumerate(places):
            for other in places[number + 1 :]:
                apart = (
                    one[axis] + one[axis + 2] <= other[axis] + 0.01
                    or other[axis] + other[axis + 2] <= one[axis] + 0.01
                    for axis in (0, 1)
                )
                assert any(apart), (slide.title, one, other)


@pytest.mark.parametrize("name", NAMES)
def test_titles_are_large_and_tables_can_be_read(decks, name):
    for slide in decks[name]:
        (title,) = (box for box in boxes(slide, name) if box.role == "title")
        assert title.size >= (28 if slide.kind in (IDEA, RESULT) else 24), slide.title
        reasons = {box.size for box in boxes(slide, name) if box.role == "reason"}
        assert len(reasons) == slide.stepwise
        if slide.table:
            own = cells(slide)
            assert own.size >= 14 and sum(own.columns) == pytest.approx(own.place[2]), slide.title
            assert own.place[1] + own.place[3] <= 6.6, slide.title


def test_formulas_leave_their_lines_eighteen_points_if_they_can():
    texts = tuple(rf"a = {number}" for number in range(3))
    short, none = (Slide("A", lines, formulas=texts) for lines in (("b " * 60,), ()))
    assert board(short)[3] < board(none)[3] == pytest.approx(END - TOP)
    (body,) = (box for box in boxes(short, "") if box.role == "body")
    assert body.size >= 18 and body.place[1] >= sum(board(short)[1::2])


def test_a_figure_takes_half_of_its_slide():
    assert FIGURE[2] * FIGURE[3] > WIDTH * HEIGHT / 2
    assert BESIDE[2] * BESIDE[3] > WIDTH * HEIGHT / 3


@pytest.mark.parametrize("kind", [PREDICT, RESULT])
def test_the_labels_of_a_figure_have_sixteen_points(kind):
    own = Slide("A", kind=kind)
    (wide, high), (_, _, across, down) = figure_size(own), figure_place(own)
    assert SMALLEST_LABEL * across * 72 / wide >= 16
    assert wide / high == pytest.approx(across / down)


@pytest.mark.parametrize("name", NAMES)
def test_what_a_figure_shows_is_said_in_sixteen_points(decks, name):
    for slide in decks[name]:
        if slide.kind == RESULT:
            (said,) = (box for box in boxes(slide, name) if box.role == "result")
            assert said.size >= 16, slide.title


def test_two_questions_stand_beside_each_other_in_one_size():
    own = Slide("A", ("b", "A. c"), kind=EARLIER, aside=("dddd " * 60, "A. e"))
    left, right = (box for box in boxes(own, "") if box.role == "body")
    assert left.size == right.size < 26
    assert left.place[0] + left.place[2] < right.place[0] and left.place[1] == right.place[1]


@pytest.mark.parametrize("stepwise", [True, False])
def test_formulas_fill_their_place_in_one_size(stepwise):
    sizes = [(0.05, 0.02), (0.2, 0.03), (0.1, 0.02)]
    own = Slide("A", ("b",) * 3, formulas=("a",) * 3, stepwise=stepwise)
    places = formula_places(own, sizes)
    points = {round(place[2] / size[0], 6) for place, size in zip(places, sizes, strict=True)}
    assert len(points) == 1 and points.pop() <= (26 if stepwise else 40)
    assert all(a[1] + a[3] <= b[1] for a, b in pairwise(places))
    assert places[-1][1] + places[-1][3] <= END
    if not stepwise:  # as much room above as below
        _, top, _, high = board(own)
        assert places[0][1] - top == pytest.approx(top + high - sum(places[-1][1::2]), abs=1e-9)


def test_no_sign_is_wider_than_it_is_thought_to_be():
    signs = map(chr, range(ord(" "), ord("~") + 1))
    for sign, thousandths in zip(signs, HELVETICA, strict=True):
        assert thousandths / 1000 <= width(sign) + 0.005, sign


def test_lines_are_wrapped_between_words_and_long_words_are_broken():
    assert wrapped("aa aa aa", 3 * 0.6) == 3
    assert wrapped("aa aa aa", 5 * 0.6) == 2
    assert wrapped("a" * 30, 10 * 0.6 + 0.01) == 3
