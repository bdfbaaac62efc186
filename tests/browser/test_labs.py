"""A lab as its learner does it: JupyterLab, the solution typed into its cell, checks and real ranks.

In JupyterLab a figure brings its own Vega, with no extension installed and nothing fetched.
"""

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from lesson_page import tells

pytestmark = [pytest.mark.browser, pytest.mark.slow]

FIGURE = """
from lib_dlhpc.explore.blocks.charts import chart
from lib_dlhpc.explore.memory_wall.charts import memory_state
chart("memory", *memory_state({"weights": 1e9, "activations": 9e9}, 16e9))
"""


@pytest.fixture(scope="module")
def window(jupyterlab: tuple[str, Path], open_lasting_page: Callable[..., Any]) -> Any:
    """One JupyterLab, in which a learner opens one lab after the other: its program starts once."""
    page = open_lasting_page(jupyterlab[0] + "lab")
    page.set_viewport_size({"width": 1280, "height": 6000})  # cells out of sight are not drawn
    page.wait_for_function("window.jupyterapp")
    page.evaluate("jupyterapp.restored")
    return page


@pytest.mark.parametrize(
    ("lab", "stem", "said"),
    [
        ("01_data_parallel_step", "data_parallel_step", ["All 7 hold.", "4 real ranks"]),
        ("02_overlap", "overlap", ["All 8 hold.", "Your step, recorded", "4 real ranks"]),
        (
            "04_pipeline",
            "pipeline",
            ["All 3 hold.", "4 microbatches", "All 10 hold.", "4 real ranks"],
        ),
        (
            "05_split_convolution",
            "split_convolution",
            ["All 3 hold.", "All 4 hold.", "4 real ranks"],
        ),
        ("06_fit_the_model", "fit_the_model", ["All 3 hold.", "1 of 3 hold", "4 real ranks"]),
        ("08_survive", "survive", ["All 3 hold.", "1 of 3 hold", "All 4 hold.", "8 of 10 hold"]),
        (
            "09_predict_your_cluster",
            "predict_your_cluster",
            ["All 2 hold.", "All 1 hold.", "on 8 ranks of 2 nodes", "5 of 7 hold", "say where"],
        ),
        (
            "10_race_the_planner",
            "race_the_planner",
            ["4 of 5 hold", "random, on average", "4 real ranks", "All 5 hold."],
        ),
        (
            "07_repair_the_input",
            "repair_the_input",
            ["All 2 hold.", "All 9 hold.", "times as many", "4 real ranks"],
        ),
    ],
)
def test_a_solved_lab_says_so(
    repository: Path,
    jupyterlab: tuple[str, Path],
    window: Any,
    lab: str,
    stem: str,
    said: list[str],
) -> None:
    folder = jupyterlab[1] / lab
    shutil.copytree(repository / "labs" / lab, folder)
    solution = repository / "instructor_notes" / "solutions" / f"lab_{lab}.py"
    head, *functions = solution.read_text(encoding="utf-8").split("\n\n\n")
    content = json.loads((folder / f"{stem}.ipynb").read_text(encoding="utf-8"))
    solved = 0
    for cell in content["cells"]:
        names = re.findall(r"^def (\w+)\(", "".join(cell["source"]), re.MULTILINE)
        known = [f for f in functions for name in names if f.startswith(f"def {name}(")]
        if known:
            cell["source"], solved = "\n\n\n".join([head, *known]), solved + 1
    assert solved
    (folder / f"{stem}.ipynb").write_text(json.dumps(content), encoding="utf-8")

    run_all(window, f"{lab}/{stem}.ipynb")
    for words in said:
        window.get_by_text(words).first.wait_for()
    assert (folder / "step.py").exists()


OPEN = """async path => {
  const { commands, shell } = jupyterapp;
  if (shell.currentWidget) await commands.execute("docmanager:save");
  await commands.execute("application:close-all");
  const { context } = await commands.execute("docmanager:open", { path });
  await context.sessionContext.ready;
  await context.sessionContext.session.kernel.info; }"""


def run_all(window: Any, path: str) -> None:
    """Open a notebook in the place of the one before, and run all its cells."""
    window.evaluate(OPEN, path)
    window.get_by_role("menuitem", name="Run", exact=True).click()
    window.get_by_text("Run All Cells", exact=True).click()


def test_a_figure_draws_in_jupyterlab(
    jupyterlab: tuple[str, Path], notebook: Callable[..., Path], window: Any
) -> None:
    notebook(jupyterlab[1] / "one.ipynb", "# One figure", FIGURE)
    run_all(window, "one.ipynb")
    window.wait_for_selector(".dlhpc-plot[data-serial] svg")
    tells(window.locator(".dlhpc-plot"), "fits: 10 GB of 16 GB")
