"""The panel of the network laboratory on a page: lines at once, and what is measured when the button is pressed."""

import pytest
from lesson_page import LessonPage

from lib_dlhpc.launch.network import available

pytestmark = pytest.mark.browser

# The real measurement of fewer messages, on fewer ranks: tests/mpi has the rest.
PANEL = """
from lib_dlhpc.explore.labs.network_lab import network_lab
from lib_dlhpc.launch.network.crossover import measure

def quickly(ranks, bandwidth, latency, algorithms, sizes):
    return measure(2, bandwidth, latency, algorithms, sizes[:2])

network_lab(quickly)
"""
LINES = "document.querySelectorAll('.dlhpc-plot[data-serial] .mark-line path').length"
SYMBOLS = (
    "document.querySelectorAll('.dlhpc-plot[data-serial] .mark-symbol.layer_2_marks path').length"
)


@pytest.mark.slow
def test_what_is_measured_is_drawn(require, serve, open_page, notebook, tmp_path, eventually):
    require(available() == "", available())
    page = LessonPage(open_page(serve(notebook(tmp_path / "panel.ipynb", PANEL))[0]))
    eventually(lambda: page.evaluate(LINES) >= 3, "lines of the textbook")
    eventually(lambda: page.evaluate(SYMBOLS) == 0)
    page.slider_moves(0, "Bandwidth", "End")  # where to measure takes the least time
    page.slider_moves(0, "Latency", "Home")
    at_work = page.passing("are at work behind these links")
    page.get_by_role("button", name="Measure on 4 ranks").click()
    eventually(at_work)
    eventually(lambda: page.get_by_text("Ping-pong.").count(), "the measurement")
    eventually(lambda: page.evaluate(SYMBOLS) == 6, "a symbol for each size and algorithm")
    eventually(lambda: page.evaluate(LINES) == 6)
