"""A figure on paper: its columns, its legend, no color of a page, and a file that is a picture."""

import re
from itertools import pairwise

import pytest

from lib_dlhpc.explore.allreduce import sizes
from lib_dlhpc.explore.blocks.figure import Figure
from lib_dlhpc.explore.data_parallel import waiting
from lib_dlhpc.explore.data_parallel.buckets import one_step
from lib_dlhpc.explore.one_step import layers
from lib_dlhpc.explore.one_step.machines import Mine
from lib_dlhpc.explore.slides.asked import figures
from lib_dlhpc.explore.slides.picture import emblem, entries, filled, png, svg


@pytest.fixture(scope="module")
def gantt():
    return next(figures(one_step()))


def test_every_dataset_of_the_figure_is_in_the_drawing(gantt):
    found = {data["name"]: data.get("values") for data in filled(gantt)["data"]}
    for name, columns in gantt.data.items():
        if name != "key":
            assert len(found[name]) == len(next(iter(columns.values())))
    assert "values" not in gantt.spec["data"][0]  # the figure itself is as it was


def test_a_picture_is_as_high_as_the_figure_on_its_page(gantt):
    assert filled(gantt)["height"] == gantt.signals["height"] != gantt.spec["height"]


def test_the_legend_stands_above_the_drawing(gantt):
    text = svg(gantt)
    labels = [each["label"] for each in entries(gantt)]
    assert "communication" in labels
    assert all(f">{label}</text>" in text for label in labels)
    assert "url(#dlhpc-hatch)" in text and 'pattern id="dlhpc-hatch"' in text


def test_nothing_is_left_of_a_page(gantt):
    assert not re.search(r"currentColor|var\(", svg(gantt))


def test_words_beside_bars_are_not_hidden_by_their_halo():
    found = next(figures(layers.step_by_layers(Mine())))
    assert re.search(r'<text paint-order="stroke"[^>]*>[^<]*bound', svg(found))


def test_a_png_is_one(gantt):
    assert png(gantt, scale=0.2).startswith(b"\x89PNG")


def test_figures_that_are_not_drawn_yet_are_left_out(gantt):
    assert list(figures(Figure(gantt.spec))) == []


def test_a_figure_is_as_large_as_its_place(gantt):
    assert re.search(r'<svg[^>]* width="760.0" height="300.0"', svg(gantt, (760, 300)))


def test_a_covered_figure_has_axes_and_legend_and_a_question_mark(gantt):
    text = svg(gantt, (520, 350), covered=True)
    assert ">?</text>" in text and ">communication</text>" in text and ">time</text>" in text
    shown = svg(gantt, (520, 350))
    assert 'aria-roledescription="rect mark' in shown or shown.count("<path") > 3 * text.count(
        "<path"
    )
    assert "rank 0" in shown and "rank 0" not in text


def test_a_legend_explains_only_what_a_bar_has():
    found = next(figures(layers.step_by_layers(Mine())))
    assert {each["label"] for each in entries(found)} == set(found.data["parts"]["part"])


def test_the_title_of_an_axis_takes_two_lines_rather_than_leave_the_slide():
    found = list(figures(waiting.the_slowest()))
    title = "step over mean compute time"
    (figure,) = (own for own in found if title in str(own.spec["axes"]))
    assert title in svg(figure, (640, 400)) and title not in svg(figure, (640, 200))


def test_words_at_the_ends_of_lines_stand_apart_on_a_slide():
    """Five algorithms, three of which end within a line of text of each other."""
    drawn = svg(next(figures(sizes.message_sizes())), (640, 220))
    at = {
        name: float(y)
        for y, name in re.findall(r'translate\([\d.]+,([\d.]+)\)"[^>]*>([^<]+)</text>', drawn)
    }
    names = ["ring", "2-D torus", "Rabenseifner", "recursive doubling", "binomial"]
    places = sorted(at[name] for name in names)
    assert min(b - a for a, b in pairwise(places)) > 11


def test_the_small_picture_of_a_module_has_colors_of_its_own_and_words():
    drawn, said = emblem("io_bottleneck")
    assert drawn.startswith("<svg ") and "var(" not in drawn and 'fill="#009e73"' in drawn
    assert said == "Input stall of a step as more nodes read from the shared file system."
