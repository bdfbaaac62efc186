"""A lab as its learner does it: JupyterLab, the solution typed into its cell, checks and real ranks.

In JupyterLab a figure brings its own Vega, with no extension installed and nothing fetched.
"""

import ast
import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from lesson_page import has, tells
from patience import POLLING

pytestmark = [pytest.mark.browser, pytest.mark.slow]

LABS = (
    *("01_data_parallel_step", "02_overlap", "04_pipeline", "05_split_convolution"),
    *("06_fit_the_model", "07_repair_the_input", "08_survive", "09_predict_your_cluster"),
    *("10_race_the_planner", "11_serve_the_model", "12_lay_out_a_language_model"),
    *("13_read_a_trace", "14_fuse_attention", "15_size_and_fit"),
)
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
    page.wait_for_function("window.jupyterapp", polling=POLLING)
    page.evaluate("jupyterapp.restored")
    return page


def solution_of(repository: Path, lab: str) -> tuple[str, list[str]]:
    """Return the solution of a lab: its head, and the source of each function."""
    text = (repository / "instructor_notes" / "solutions" / f"lab_{lab}.py").read_text("utf-8")
    head, *functions = text.split("\n\n\n")
    return head, functions


def typed(repository: Path, lab: str, source: str) -> list[str]:
    """Return the functions of the solution that a learner types in the place of those of a cell."""
    _, functions = solution_of(repository, lab)
    names = re.findall(r"^def (\w+)\(", source, re.MULTILINE)
    return [each for each in functions for name in names if each.startswith(f"def {name}(")]


def helpers(repository: Path, lab: str, cells: str, called_in: list[str]) -> list[str]:
    """Return the functions of the solution that these call and no cell has, such as the side of a tile."""
    _, functions = solution_of(repository, lab)
    text = "\n".join(called_in)
    named = [(each, name[1]) for each in functions if (name := re.match(r"def (\w+)\(", each))]
    return [
        each
        for each, name in named
        if f"def {name}(" not in cells and re.search(rf"(?<!def )\b{name}\(", text)
    ]


@pytest.mark.parametrize(
    ("lab", "stem", "said"),
    [
        ("02_overlap", "overlap", ["All 8 hold.", "Your step, recorded", "4 real ranks"]),
        (
            "04_pipeline",
            "pipeline",
            ["All 3 hold.", "4 microbatches", "All 10 hold.", "4 real ranks"],
        ),
        ("14_fuse_attention", "fuse_attention", ["All 14 hold."]),
    ],
)
def test_a_solved_lab_says_so(repository, jupyterlab, window, lab, stem, said):
    """Labs with one function, with several cells, and without ranks; tests/labs has what each lab shows."""
    folder = jupyterlab[1] / lab
    shutil.copytree(repository / "labs" / lab, folder)
    text = (folder / f"{stem}.ipynb").read_text(encoding="utf-8")
    head, _ = solution_of(repository, lab)
    content, solved = json.loads(text), 0
    for cell in content["cells"]:
        if known := typed(repository, lab, "".join(cell["source"])):
            own = helpers(repository, lab, text, known)
            cell["source"], solved = "\n\n\n".join([head, *own, *known]), solved + 1
    assert solved
    (folder / f"{stem}.ipynb").write_text(json.dumps(content), encoding="utf-8")

    run_all(window, f"{lab}/{stem}.ipynb")
    for words in said:
        window.get_by_text(words).first.wait_for()
    assert (folder / "step.py").exists()


@pytest.mark.parametrize("lab", LABS)
def test_a_solution_goes_into_the_cells_of_its_notebook(repository, lab):
    """Its functions take as many parameters as the starters, so that the checks below can call either."""
    (notebook,) = (repository / "labs" / lab).glob("*.ipynb")
    cells = json.loads(notebook.read_text("utf-8"))["cells"]
    solved = 0
    for source in ("".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"):
        if known := typed(repository, lab, source):
            assert parameters("\n\n\n".join(known)).items() <= parameters(source).items()
            solved += 1
    assert solved


def parameters(source: str) -> dict[str, int]:
    """Return how many parameters each function takes."""
    functions = [node for node in ast.parse(source).body if isinstance(node, ast.FunctionDef)]
    return {each.name: len(each.args.args) for each in functions}


# The kernel of the notebook before ends first: its last output after a save would make JupyterLab ask before it closes.
# A server that ends idle kernels also ends one that is slow to start.
OPEN = """async path => {
  const { commands, shell, serviceManager } = jupyterapp;
  await serviceManager.sessions.shutdownAll();
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


def test_a_figure_draws_in_jupyterlab(jupyterlab, notebook, window):
    notebook(jupyterlab[1] / "one.ipynb", "# One figure", FIGURE)
    run_all(window, "one.ipynb")
    window.wait_for_selector(".dlhpc-plot[data-serial] svg")
    tells(window.locator(".dlhpc-plot"), "fits: 10 GB of 16 GB")


def test_hints_open_one_after_another(repository, jupyterlab, notebook, window):
    folder = jupyterlab[1] / "01_data_parallel_step"
    folder.mkdir(exist_ok=True)
    shutil.copy(repository / "labs" / folder.name / "hints.toml", folder)
    code = "from lib_dlhpc.explore.labs.hints import hints\n\nhints()"
    notebook(folder / "hints_alone.ipynb", "# Hints", code)
    run_all(window, f"{folder.name}/hints_alone.ipynb")
    first = window.get_by_role("button", name="Open hint 1 of 3: step: a rank without samples")
    first.click()
    tells(window.locator(".dlhpc-results"), "What do the other ranks do")
    window.get_by_role("button", name="Open hint 2 of 3: step: a rank without samples").click()
    tells(window.locator(".dlhpc-results"), "A collective completes only if every rank")
    has(window.get_by_role("button", name="Open hint 1 of 3"), 2)
