"""In JupyterLab a figure brings its own Vega, with no extension installed and nothing fetched."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from lesson_page import tells

pytestmark = [pytest.mark.browser, pytest.mark.slow]

CELL = """
from lib_dlhpc.explore.charts import chart, memory_state
chart("memory", *memory_state({"weights": 1e9, "activations": 9e9}, 16e9))
"""


def test_a_figure_draws_in_jupyterlab(
    jupyterlab: tuple[str, Path], notebook: Callable[..., Path], open_page: Callable[..., Any]
) -> None:
    notebook(jupyterlab[1] / "one.ipynb", "# One figure", CELL)
    page = open_page(jupyterlab[0] + "lab/tree/one.ipynb")
    page.wait_for_selector(".jp-Notebook .jp-CodeCell")
    page.wait_for_selector("text=Python 3 (ipykernel) | Idle")
    page.get_by_role("menuitem", name="Run", exact=True).click()
    page.get_by_text("Run All Cells", exact=True).click()
    page.wait_for_selector(".dlhpc-plot[data-serial] svg")
    tells(page.locator(".dlhpc-plot"), "fits: 10 GB of 16 GB")
