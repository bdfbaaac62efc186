"""Execute the modules anew and store what a reader sees where no kernel runs: make notebooks.

    python modules/store.py [NOTEBOOK ...]       needs Chromium, as the browser tests do

A code cell gets its text/plain, which `make test` compares with what the cell says then (nbval), and a picture
of the first figure that it made. No state of widgets is stored, nor what differs by run.
"""

import base64
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import nbformat
import oxipng
from nbclient import NotebookClient
from playwright.sync_api import Page, sync_playwright

from lib_dlhpc.explore.blocks import built, figure

HERE = Path(__file__).parent
WIDTH = 680  # px
LARGEST, NOTEBOOK = 64_000, 200_000  # bytes of a picture, and of a notebook
WIDGET = "application/vnd.jupyter.widget-view+json"
STYLE = """body { font: 14px sans-serif; margin: 0; background: white }
figcaption { font-weight: bold } figure { margin: 8px } .dlhpc-words, details { display: none }"""
# A figure drawn by its own code, as if its kernel were there.
DRAW = """async ([code, css, state]) => {
  document.head.appendChild(document.createElement("style")).textContent = css;
  const url = URL.createObjectURL(new Blob([code], { type: "text/javascript" }));
  const { default: widget } = await import(url);
  widget.render({ model: { get: name => state[name], on() {} }, el: document.body });
}"""
DRAWN = "document.querySelectorAll('.dlhpc-plot[data-serial]').length === 1"


def main(names: list[str]) -> None:
    """Store the outputs of these notebooks, or of all modules."""
    with drawing() as page:
        for path in map(Path, names or sorted(HERE.glob("*.ipynb"))):
            notebook = nbformat.read(path, as_version=4)
            execute(notebook, path.parent, page)
            text = within(notebook)
            path.write_text(text, encoding="utf-8")
            print(f"{path.name}: {len(text) / 1e3:.0f} kB")


def execute(notebook: Any, folder: Path, page: Page) -> None:
    """Execute all cells in a fresh kernel and put in place of their outputs what is to be stored."""
    client = NotebookClient(
        notebook, kernel_name="python3", resources={"metadata": {"path": str(folder)}}
    )
    count = 0
    with client.setup_kernel():
        for index, cell in enumerate(notebook.cells):
            if cell.cell_type != "code":
                continue
            before, count = set(client.widget_state), count + 1
            client.execute_cell(cell, index)
            made = [state for key, state in client.widget_state.items() if key not in before]
            cell.outputs = list(stored(cell.outputs, made, page))
            cell.execution_count, cell.metadata = count, shown(cell)
            for output in cell.outputs:
                if output.output_type == "execute_result":
                    output.execution_count = count


def within(notebook: Any) -> str:
    """Return the notebook as text, without its last pictures where it would be too large."""
    pictures = [
        (cell, output)
        for cell in notebook.cells
        for output in cell.get("outputs", [])
        if "image/png" in output.get("data", {})
    ]
    while len(text := nbformat.writes(notebook) + "\n") >= NOTEBOOK:
        cell, picture = pictures.pop()
        cell.outputs.remove(picture)
    return text


def shown(cell: Any) -> Any:
    """Return what a page needs to know of a cell: its tags, and that code nobody writes is hidden in JupyterLab."""
    tags = cell.metadata.get("tags")
    hidden = {} if "def " in cell.source else {"jupyter": {"source_hidden": True}}
    return nbformat.from_dict({**({"tags": tags} if tags else {}), **hidden})


def stored(outputs: list[Any], made: list[Any], page: Page) -> Iterator[Any]:
    """Yield a picture of the first figure that was made, then the outputs without their widgets."""
    figures = (state for state in made if "spec" in state and state.get("summary"))
    if first := next(figures, None):
        picture = base64.b64encode(drawn(first, page)).decode()
        if len(picture) <= LARGEST:
            yield nbformat.v4.new_output("display_data", {"image/png": picture})
    for output in outputs:
        if "data" in output:
            output.data.pop(WIDGET, None)
        yield output


def drawn(state: Any, page: Page) -> bytes:
    """Return a figure as PNG; state: what the widget holds."""
    page.goto("about:blank")
    page.add_script_tag(content=built.vega().read_text("utf-8"), type="module")
    css = (figure.HERE / "static" / "figure.css").read_text("utf-8")
    page.evaluate(DRAW, [figure.CODE, css + STYLE, {"serial": 0, "signals": {}, **state}])
    page.wait_for_function(DRAWN)
    return oxipng.optimize_from_memory(page.locator("body").screenshot(), level=4)


@contextmanager
def drawing() -> Iterator[Page]:
    """Give a page of a headless Chromium."""
    program = shutil.which("chromium") or shutil.which("google-chrome")
    with sync_playwright() as driver:
        flags = ["--no-sandbox", "--disable-gpu"]
        browser = driver.chromium.launch(executable_path=program, args=flags)
        yield browser.new_page(viewport={"width": WIDTH, "height": 200})
        browser.close()


if __name__ == "__main__":
    main(sys.argv[1:])
