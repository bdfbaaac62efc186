"""An experiment at a click: its settings are those of the click, and what clicks find stays on their page."""

from typing import Annotated, Any, NamedTuple

import pytest
from experiment_page import Now, click, controls, result_text

from lib_dlhpc.errors import SpecError
from lib_dlhpc.explore.blocks.bench import Slider, View
from lib_dlhpc.explore.blocks.panel import Panel, at_click
from lib_dlhpc.explore.memory_wall.charts import memory_state


class Run(NamedTuple):
    """One setting."""

    gpus: Annotated[int, Slider("GPUs", "How many", (1, 2, 4))] = 1


def asked(run: Run) -> str | View:
    return (
        f"{run.gpus} would be measured" if run.gpus < 4 else View("four", notice="A lot <of them>.")
    )


def refused(run: Run) -> str:
    return "Not with two." * (run.gpus == 2)


@at_click(Run(), asked, "Measure", "memory", "Nothing yet.", fine="Fine.", refused=refused)
def measure_here(panel: Panel, run: Run, measure: Any = pytest.fail) -> None:
    """Look for the
    larger bar.
    """
    panel.known[run] = measure(run)
    panel.show(memory_state({"weights": 1e9 * run.gpus}, 16e9), f"<p>{len(panel.known)} known</p>")
    panel.say(f"measured {panel.known[run]}")


def test_it_says_what_a_click_would_do_and_what_to_look_for():
    text, page = result_text(measure_here()), measure_here()
    assert "1 would be measured" in text and "Nothing yet." in text and "✓ Fine." in text
    assert text.endswith("<b>Look for</b> the larger bar.</p>")
    controls(page)["GPUs"].value = 4
    assert "A lot &lt;of them&gt;." in result_text(page) and "Fine." not in result_text(page)


def test_a_click_measures_what_the_controls_say_and_finds_what_earlier_ones_found():
    page = measure_here(lambda run: f"{run.gpus} GPUs", thread=Now)
    click(page, "Measure")
    assert "measured 1 GPUs" in result_text(page) and "1 known" in result_text(page)
    controls(page)["GPUs"].value = 4
    click(page, "Measure")
    assert "measured 4 GPUs" in result_text(page) and "2 known" in result_text(page)
    other = measure_here(lambda run: 0, thread=Now)
    click(other, "Measure")
    assert "1 known" in result_text(other)


def test_the_controls_may_move_while_it_measures():
    later: list[Any] = []

    class Later(Now):
        def __init__(self, target: Any, daemon: bool) -> None:
            self.start = lambda: later.append(target)

    page = measure_here(lambda run: f"{run.gpus} GPUs", thread=Later)
    click(page, "Measure")
    controls(page)["GPUs"].value = 4
    later.pop()()
    assert "measured 1 GPUs" in result_text(page)


def test_what_is_refused_is_not_measured_and_a_failure_is_shown():
    page = measure_here(thread=Now)
    controls(page)["GPUs"].value = 2
    click(page, "Measure")
    assert "Not with two." in result_text(page)

    def fails(run: Run) -> str:
        raise SpecError("There is no GPU here.")

    page = measure_here(fails, thread=Now)
    assert not click(page, "Measure").disabled and "There is no GPU here." in result_text(page)
