"""Diagrams: each idea has one, or a formula, or a table; all fit their places, are to scale and say what they show."""

from importlib import import_module
from itertools import combinations, pairwise

import pytest

from lib_dlhpc.errors import SpecError
from lib_dlhpc.explore.course import PATH, RECORDED
from lib_dlhpc.explore.slides import diagram
from lib_dlhpc.explore.slides.diagram import (
    Bar,
    Diagram,
    Lane,
    Node,
    Row,
    Shape,
    circle,
    held,
    lanes,
    linked,
    passes,
    scatter,
    written,
)
from lib_dlhpc.explore.slides.layout import BESIDE, SMALLEST, drawn
from lib_dlhpc.explore.slides.notebook import notebook_text, sections
from lib_dlhpc.explore.slides.slide import ANSWER, CHECK, IDEA, PREDICT, RESULT
from lib_dlhpc.explore.slides.sources import lesson_of, titles_of
from lib_dlhpc.schedules import PIPELINES, timetable

NAMES = [module.name for module in PATH]
ALL = [
    pytest.param(draw, id=f"{folder}: {name}")
    for folder in RECORDED
    for name, draw in import_module(f"lib_dlhpc.explore.{folder}.diagrams").DIAGRAMS.items()
]


def test_a_diagram_unfolds_in_time_or_row_by_row_and_its_axis_is_there_at_once():
    rows = [Lane("a", [Bar(0, 1), Bar(9, 10)]), Lane("b", [Bar(0.1, 1), Bar(4.6, 5)])]
    own = lanes(rows, "time", unfolds=True)
    bars = [shape for shape in own.shapes if shape.fill]
    assert [bar.step for bar in bars] == [0, 2, 0, 1]
    assert not any(shape.step for shape in own.shapes if not shape.fill)
    assert not any(shape.step for shape in lanes(rows, "time").shapes)
    table = held(("x",), [Row("a", ("1",)), Row("b", ("2",))], unfolds=True)
    assert [shape.step for shape in table.shapes] == [0, 0, 0, 1, 1]


def apart(one: Shape, other: Shape) -> bool:
    """Whether two boxes have no area in common."""
    return (
        one.left + one.wide <= other.left + 1e-6
        or other.left + other.wide <= one.left + 1e-6
        or one.top + one.high <= other.top + 1e-6
        or other.top + other.high <= one.top + 1e-6
    )


@pytest.mark.parametrize("name", NAMES)
def test_every_idea_is_drawn_or_is_a_formula_or_a_table(decks, name):
    for slide in decks[name]:
        if slide.kind == IDEA:
            assert slide.diagram or slide.formulas or slide.table, slide.title
            assert (slide.diagram is not None) + bool(slide.formulas) + bool(slide.table) == 1


@pytest.mark.parametrize("name", NAMES)
def test_every_question_but_those_of_runs_has_a_picture(decks, name):
    for slide in decks[name]:
        if slide.kind == PREDICT and slide.section != "Do it for real":
            assert slide.figure or slide.diagram, slide.title


@pytest.mark.parametrize("name", NAMES)
def test_every_guess_is_answered_on_the_next_slide(decks, name):
    for asked, after in pairwise(decks[name]):
        if asked.kind == PREDICT:
            assert after.kind in (RESULT, ANSWER), asked.title


@pytest.mark.parametrize("name", NAMES)
def test_a_diagram_is_of_a_section_or_a_question_and_fits_its_slide(decks, name, repository):
    text = notebook_text(repository / "modules" / f"{name}.ipynb")
    (folder,) = (each for each, number in RECORDED.items() if number == name[:2])
    diagrams = import_module(f"lib_dlhpc.explore.{folder}.diagrams").DIAGRAMS
    headings = {slide.section for slide in decks[name]} | {own.heading for own in sections(text)}
    named = {each.removesuffix(": answer") for each in diagrams}
    apart = {each for each, *_ in titles_of(text).drawn.values()}
    assert named <= headings | set(lesson_of(text).texts) | apart
    shown = [slide for slide in decks[name] if slide.diagram]
    assert sum(slide.kind != CHECK for slide in shown) == len(diagrams)  # a check repeats one
    for slide in shown:
        assert drawn(slide.diagram, BESIDE)[0][2] >= SMALLEST


@pytest.mark.parametrize("draw", ALL)
def test_boxes_are_inside_and_do_not_cross(draw):
    own = draw()
    assert len(own.said.split()) > 3 and "\n" not in own.said
    for shape in own.shapes:
        assert min(shape.left, shape.top) >= 0, shape
        assert max(shape.left + shape.wide, shape.top + shape.high) <= 1.001, shape
    filled = [shape for shape in own.shapes if shape.fill and shape.text]
    for one, other in combinations(filled, 2):
        assert apart(one, other), (one, other)
    for arrow in own.arrows:
        assert all(0 <= at <= 1.001 for at in (*arrow.start, *arrow.end)), arrow


def test_holders_are_columns_and_an_empty_text_is_no_cell():
    own = held(("a", "b"), [Row("w", ("1", "")), Row("g", ("2", "3"))], "sums")
    cells = {shape.text: shape for shape in own.shapes if shape.fill}
    assert set(cells) == {"1", "2", "3"} and cells["1"].left == cells["2"].left < cells["3"].left
    assert cells["2"].top == cells["3"].top > cells["1"].top
    assert own.arrows[0].both and own.said == "a: w 1, g 2; b: g 3; sums"


def test_lanes_are_to_scale_and_the_wall_stands_at_its_value():
    own = lanes([Lane("x", [Bar(0, 1, "a"), Bar(1, 3, "b")])], "time", (4.0, "full"))
    first, second = (shape for shape in own.shapes if shape.fill)
    assert second.wide == pytest.approx(2 * first.wide) and second.left == first.left + first.wide
    wall = own.arrows[-1]
    assert wall.plain and wall.start[0] - first.left == pytest.approx(4 * first.wide)
    assert own.said == "x: a, b; time; full"


def test_arrows_begin_and_end_at_the_edges_of_boxes():
    own = linked({"a": Node(0.2, 0.5, "a"), "b": Node(0.8, 0.5, "b")}, [("a", "b")])
    (arrow,) = own.arrows
    assert arrow.start == pytest.approx((0.3, 0.5)) and arrow.end == pytest.approx((0.7, 0.5))
    assert own.said == "a to b"


def test_a_circle_has_equal_gaps():
    nodes = list(circle("abcd", across=0.76).values())
    gaps = [(b.x - a.x) ** 2 + (b.y - a.y) ** 2 for a, b in pairwise([*nodes, nodes[0]])]
    assert gaps == pytest.approx([gaps[0]] * 4)


def test_passes_of_a_pipeline_are_those_of_its_schedule():
    found = passes(timetable(PIPELINES["gpipe"](2, 3)))
    assert [lane.label for lane in found] == ["stage 0", "stage 1"]
    assert all(len(lane.bars) == 6 for lane in found)
    assert [bar.text for bar in found[0].bars[:3]] == ["1", "2", "3"]


def test_points_are_in_order_on_logarithmic_axes():
    own = scatter([(1, 100), (10, 10), (100, 1)], {1: "knee"}, "time", "energy")
    points = [shape for shape in own.shapes if shape.fill]
    first, middle, last = points
    assert middle.left - first.left == pytest.approx(last.left - middle.left)
    assert first.top < middle.top < last.top
    assert "knee" in own.said


TEXTS = """
[who]
columns = ["a", "b"]
rows = [["w", "green", "{LAST}", ""]]
exchange = "sums"
[when]
lanes = [["x", 1, ["a", 1, "blue"], ["b", 2, "red"]]]
axis = "time"
wall = [4, "full"]
[where]
boxes = { a = [0.2, 0.5, "a"], b = [0.8, 0.5, "b", "gray", 0.4, 0.2] }
links = [["a", "b"]]
words = [[0.4, 0.1, 0.2, 0.1, "1 GB"]]
both = true
"""


def test_diagrams_are_read_from_the_file_beside_a_module(tmp_path):
    (tmp_path / "diagrams.toml").write_text(TEXTS)
    found = written({"LAST": 31, "__file__": str(tmp_path / "diagrams.py")})
    assert found["who"]() == held(("a", "b"), [Row("w", ("31", ""), diagram.GREEN)], "sums")
    bars = [Bar(1, 2, "a"), Bar(2, 4, "b", diagram.RED)]
    assert found["when"]() == lanes([Lane("x", bars)], "time", (4, "full"))
    nodes = {"a": Node(0.2, 0.5, "a"), "b": Node(0.8, 0.5, "b", diagram.GRAY, 0.4, 0.2)}
    words = [Shape(0.4, 0.1, 0.2, 0.1, "1 GB")]
    assert found["where"]() == linked(nodes, [("a", "b")], words, both=True)


def test_a_text_too_long_for_its_box_is_refused():
    own = Diagram((Shape(0, 0, 0.1, 0.1, "much too long for so small a box"),))
    with pytest.raises(SpecError, match="do not fit their boxes in 14 points"):
        drawn(own, BESIDE)
    assert drawn(Diagram((Shape(0, 0, 1, 1, "short"),)), BESIDE)[0][2] == 20
