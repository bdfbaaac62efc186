"""A bench has a control for each setting, shows its view at once and after each move, and outlives what cannot be."""

from typing import Annotated, Any, NamedTuple

import ipywidgets
import pytest
from experiment_page import controls, result_text

from lib_dlhpc.errors import SpecError
from lib_dlhpc.explore.blocks.bench import Bench, Dropdown, Slider, View, amount, gigabits
from lib_dlhpc.explore.memory_wall.charts import memory_state


class Run(NamedTuple):
    """Two settings with controls, and one without."""

    gpus: Annotated[int, Slider("GPUs", "How many", (8, 1024, 4096))] = 1024
    link: Annotated[float, Dropdown("Link", "Between nodes", (1e9 / 8, 1e11 / 8), gigabits)] = (
        1e11 / 8
    )
    depth: int = 3


def view(run: Run) -> View:
    if run.gpus == 4096:
        raise SpecError("4,096 GPUs are more than there are.")
    return View(
        f"<b>{run.gpus}</b> of depth {run.depth}",
        "The link is slow." if run.link < 1e9 else "",
        {"memory": memory_state({"weights": 1e9 * run.gpus}, 16e9)},
    )


def bench(fine: str | None = "All is well.", shown: Any = view) -> Bench[Run]:
    return Bench(Run(), shown, ["memory", ipywidgets.Button()], fine, "the bar.")


def test_each_setting_has_a_control_that_stands_where_it_is_at_first():
    page = bench()
    assert page.setting == Run()
    own = controls(page)
    assert list(own) == ["GPUs", "Link"]
    assert own["GPUs"].label == "1,024" and own["Link"].label == "100 Gb/s"
    assert amount("B")(25e6) == "25 MB"


def test_a_move_shows_its_view_and_the_wall():
    page = bench()
    assert (
        "1024" in result_text(page)
        and "All is well." in result_text(page)
        and "the bar." in result_text(page)
    )
    controls(page)["Link"].index = 0
    assert "Wall. The link is slow." in result_text(page) and "All is well." not in result_text(
        page
    )
    before = page.charts["memory"].summary
    controls(page)["GPUs"].value = 8
    assert "<b>8</b>" in result_text(page) and page.charts["memory"].summary != before


@pytest.mark.parametrize("fine", ["All is well.", None])
def test_what_cannot_be_says_why_and_leaves_the_charts(fine):
    page = bench(fine)
    before = page.charts["memory"].data
    controls(page)["GPUs"].value = 4096
    assert "more than there are" in result_text(page) and page.charts["memory"].data == before
    controls(page)["GPUs"].value = 8
    assert "more than there are" not in result_text(page) and "<b>8</b>" in result_text(page)


def test_what_is_fine_may_depend_on_the_setting():
    page = bench(shown=lambda run: View(fine=f"{run.gpus} are enough."))
    assert "1024 are enough." in result_text(page) and "All is well." not in result_text(page)
    page.put(View("Later.", "A wall."), wall=False)
    assert "Later." in result_text(page) and "A wall." not in result_text(page)
