"""In JupyterLab a figure brings its own Vega, with no extension installed and nothing fetched."""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

pytestmark = [pytest.mark.browser, pytest.mark.slow]

CELL = """
from lib_dlhpc.explore.charts import chart, memory_state
chart("memory", *memory_state({"weights": 1e9, "activations": 9e9}, 16e9))
"""


@pytest.fixture
def lab(tmp_path: Path, notebook: Callable[..., Path]) -> Iterator[str]:
    """JupyterLab on a folder with one notebook, with settings and data folders of its own."""
    notebook(tmp_path / "one.ipynb", "# One figure", CELL)
    places = {name: str(tmp_path / name) for name in ("JUPYTER_CONFIG_DIR", "JUPYTER_DATA_DIR")}
    options = [
        "--no-browser", "--allow-root", "--port=0", "--ip=127.0.0.1", "--IdentityProvider.token=",
        f"--ServerApp.root_dir={tmp_path}", "--LabApp.news_url=",
        "--LabApp.check_for_updates_class=jupyterlab.NeverCheckForUpdate",
    ]  # fmt: skip
    server = subprocess.Popen(
        [sys.executable, "-m", "jupyterlab", *options],
        env={**os.environ, **places}, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert server.stderr is not None
    for line in server.stderr:
        if address := re.search(r"http://127.0.0.1:[1-9]\d*/", line):
            break
    else:
        pytest.fail("JupyterLab did not start")
    # Its log must not fill the pipe.
    drain = subprocess.Popen(
        [sys.executable, "-c", "import sys; sys.stdin.read()"], stdin=server.stderr
    )
    yield address.group(0)
    server.terminate()
    server.wait(30)
    drain.wait(30)
    shutil.rmtree(tmp_path, ignore_errors=True)


def test_a_figure_draws_in_jupyterlab(lab: str, open_page: Callable[..., Any]) -> None:
    page = open_page(lab + "lab/tree/one.ipynb")
    page.wait_for_selector(".jp-Notebook .jp-CodeCell")
    page.wait_for_selector("text=Python 3 (ipykernel) | Idle")
    page.get_by_role("menuitem", name="Run", exact=True).click()
    page.get_by_text("Run All Cells", exact=True).click()
    page.wait_for_selector(".dlhpc-plot[data-serial] svg")
    assert "fits: 10 GB of 16 GB" in page.locator(".dlhpc-plot").inner_text()
